"""Products of rows with the experts that each row has chosen, at the speed of reading those experts.

R rows of width D choose k of X experts of width F each. An assignment is one choice of one row; there are A = R k of
them. They are sorted by expert and padded to whole blocks, so each program computes rows of a single expert. They are
sorted on the device, so a captured graph serves every choice. A row's bits do not depend on the rows beside it.
"""

from dataclasses import dataclass
from typing import Final

import torch
import triton
import triton.language as tl
from torch import Tensor

from midfill_kernels.launch import is_interpreted
from midfill_kernels.matmul import add_product, choose_inner, fit_stages, load_inputs

BLOCK_ROWS: Final = 16  # assignments that a program computes at once
GATED_COLS: Final = 64  # columns of the gate that a program computes, and as many of the up-projection
DOWN_COLS: Final = 128  # columns of the down-projection that a program computes


@dataclass(frozen=True)
class Experts:
    """The matrices of X experts: `gate` and `up` [X, F, D], `down` [X, D, F]."""

    gate: Tensor
    up: Tensor
    down: Tensor


@dataclass(frozen=True)
class Assignments:
    """B blocks of assignments, each block with those of one expert. `slots` [B x BLOCK_ROWS] are the assignments as
    numbers, row x k + choice; A marks padding. `experts` [B] are the blocks' experts; X marks a block without rows.
    """

    slots: Tensor
    experts: Tensor


def mix_experts_reference(x: Tensor, experts: Experts, chosen: Tensor, weights: Tensor) -> Tensor:
    """The definition in fp32, [k, R, D]: of each choice the expert's output times its weight (arXiv 2401.04088)."""
    gate, up, down = (matrices.float()[chosen] for matrices in (experts.gate, experts.up, experts.down))
    rows = x.float()[:, None, :, None]
    hidden = torch.nn.functional.silu(gate @ rows) * (up @ rows)
    return ((down @ hidden)[..., 0] * weights.float()[..., None]).transpose(0, 1)


def mix_experts(x: Tensor, experts: Experts, chosen: Tensor, weights: Tensor) -> Tensor:
    """The weighted outputs [k, R, D] in fp32 of the experts `chosen` [R, k] for `x` [R, D], with `weights` [R, k]; the
    next kernel adds them. The gated products [A, F] between are in the dtype of `x`.
    """
    num_experts, width, _ = experts.gate.shape
    num_rows, num_choices = chosen.shape
    assignments = assign(chosen, num_experts)
    hidden = torch.empty(num_rows * num_choices, width, dtype=x.dtype, device=x.device)
    _start(x, experts.gate, experts.up, assignments, None, hidden, num_choices)
    parts = torch.empty(num_choices, num_rows, x.shape[1], dtype=torch.float32, device=x.device)
    _start(hidden, experts.down, None, assignments, weights.contiguous(), parts, num_choices)
    return parts


def assign(chosen: Tensor, num_experts: int) -> Assignments:
    """The assignments of the experts `chosen` [R, k]. Shapes give the number of blocks, so the host never waits."""
    flat = chosen.flatten()
    num_assignments = len(flat)
    num_blocks = min(num_assignments, num_experts + num_assignments // BLOCK_ROWS)  # enough for any choice
    counts = (flat == torch.arange(num_experts, device=flat.device)[:, None]).sum(dim=1)  # [X] of each expert
    blocks = (counts + BLOCK_ROWS - 1) // BLOCK_ROWS  # [X] of each expert
    ends = blocks.cumsum(dim=0)
    first_slots = (ends - blocks) * BLOCK_ROWS
    first_sorted = counts.cumsum(dim=0) - counts  # [X] the place of each expert's first assignment in `order`
    order = flat.argsort(stable=True)
    expert_of = flat[order]
    places = torch.arange(num_assignments, device=flat.device) + (first_slots - first_sorted)[expert_of]
    slots = torch.full((num_blocks * BLOCK_ROWS,), num_assignments, device=flat.device)
    slots.scatter_(0, places, order)  # each assignment to its place among the slots
    experts = torch.searchsorted(ends, torch.arange(num_blocks, device=flat.device), right=True)
    return Assignments(slots, experts)


def _start(
    x: Tensor, matrices: Tensor, up: Tensor | None, assignments: Assignments, weights: Tensor | None, out: Tensor,
    num_choices: int,
) -> None:  # fmt: skip
    """Launches the kernel, which writes `out`. With `up`, the gated products [A, F] of the rows `x` [R, D] (`matrices`
    are the gates); without, the down-projections [k, R, D] of the gated products `x` [A, F], times their `weights`.
    """
    assert all(tensor.is_contiguous() for tensor in (x, matrices, out)) and (up is None or up.is_contiguous())
    num_experts, num_cols, width = matrices.shape
    num_assignments = x.shape[0] * num_choices if up is not None else x.shape[0]
    cols, inner = DOWN_COLS if up is None else GATED_COLS, choose_inner(width)
    _mix[(len(assignments.experts), triton.cdiv(num_cols, cols))](
        x,
        matrices,
        up,
        assignments.slots,
        assignments.experts,
        weights,
        out,
        num_assignments,
        num_cols,
        width,
        num_experts,
        CHOICES=num_choices,
        GATED=up is not None,
        EVEN=width % inner == 0,
        B_COLS=cols,
        B_ROWS=BLOCK_ROWS,
        B_INNER=inner,
        UPCAST=is_interpreted(),
        num_warps=4,
        num_stages=fit_stages(matrices, DOWN_COLS, BLOCK_ROWS, inner),
    )


@triton.jit(do_not_specialize=["num_assignments"])
def _mix(
    p_x,
    p_w,
    p_up,
    p_slots,
    p_experts,
    p_weights,
    p_out,
    num_assignments,
    num_cols,
    width,
    num_experts,
    CHOICES: tl.constexpr,
    GATED: tl.constexpr,
    EVEN: tl.constexpr,
    B_COLS: tl.constexpr,
    B_ROWS: tl.constexpr,
    B_INNER: tl.constexpr,
    UPCAST: tl.constexpr,
):
    # Blocks vary fastest, so that the blocks of one expert read a piece of its weight side by side.
    i_block = tl.program_id(0).to(tl.int64)
    expert = tl.load(p_experts + i_block)
    if expert < num_experts:
        slot = tl.load(p_slots + i_block * B_ROWS + tl.arange(0, B_ROWS))
        m_row = slot < num_assignments
        o_row = slot
        o_out = (slot % CHOICES) * (num_assignments // CHOICES) + slot // CHOICES  # in [k, R]
        if GATED:
            o_row = slot // CHOICES
            o_out = slot
        o_col = tl.program_id(1).to(tl.int64) * B_COLS + tl.arange(0, B_COLS)
        m_col = o_col < num_cols
        first = expert * num_cols * width
        accumulator = tl.zeros((B_COLS, B_ROWS), tl.float32)
        if GATED:
            up = tl.zeros((B_COLS, B_ROWS), tl.float32)
        for start in range(0, width, B_INNER):
            x = load_inputs(p_x, o_row, m_row, start, width, EVEN, B_INNER)
            accumulator = add_product(accumulator, p_w + first, o_col, m_col, x, start, width, EVEN, B_INNER, UPCAST)
            if GATED:
                up = add_product(up, p_up + first, o_col, m_col, x, start, width, EVEN, B_INNER, UPCAST)
        if GATED:
            accumulator = accumulator / (1 + tl.exp(-accumulator)) * up
        else:
            accumulator *= tl.load(p_weights + slot, m_row, 0.0).to(tl.float32)[None, :]
        p_tile = p_out + o_out[None, :] * num_cols + o_col[:, None]
        tl.store(p_tile, accumulator.to(p_out.dtype.element_ty), m_row[None, :] & m_col[:, None])
