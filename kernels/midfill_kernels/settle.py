"""The decision of a step, on the device: which rows settle, what is left, who is done. Knows ids as numbers only.

B sequences of up to T rows each, R rows in all. The rules are two: settle what is sure enough (Fast-dLLM, arXiv
2505.22618, section 3.3) and at least the quota that ends in time, the surest first (LLaDA, arXiv 2502.09992, section
2.4). A threshold over 1 leaves the quota alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from midfill_kernels.head import Proposals
from midfill_kernels.launch import launch_options, starts_early, wait_for_inputs

SEED_STRIDE = 0x9E3779B97F4A7C15 - 2**64  # the golden ratio's bits, as int64: every step draws afresh


@dataclass(frozen=True)
class Fills:
    """The state of a batch in device memory; every step changes it in place.

    Per row [R]: `ids` int64, `masked` bool, `confidence` fp32, `seeds` int64. Per sequence [B]: `first_rows`
    and `lengths` int64, `steps` taken and `num_steps` allowed int32, `thresholds` fp32, `done` bool.
    """

    ids: Tensor
    masked: Tensor
    confidence: Tensor
    seeds: Tensor
    first_rows: Tensor
    lengths: Tensor
    steps: Tensor
    num_steps: Tensor
    thresholds: Tensor
    done: Tensor
    longest: int = 256


def open_fills(
    ids: Sequence[Tensor],
    masked: Sequence[Tensor],
    num_steps: Sequence[int],
    thresholds: Sequence[float],
    seeds: Sequence[int],
    device: torch.device,
) -> Fills:
    """The state of sequences with `ids` [T] and `masked` [T] each, before their first step."""
    lengths = torch.tensor([len(row) for row in ids], dtype=torch.int64)
    rows = torch.cat(list(masked)).bool()
    row_seeds = torch.cat(
        [seed + torch.arange(len(row), dtype=torch.int64) * 2**20 for seed, row in zip(seeds, ids, strict=True)]
    )
    return Fills(
        torch.cat(list(ids)).to(device, torch.int64),
        rows.to(device),
        torch.zeros(len(rows), device=device),
        row_seeds.to(device),
        (lengths.cumsum(0) - lengths).to(device),
        lengths.to(device),
        torch.zeros(len(lengths), dtype=torch.int32, device=device),
        torch.tensor(num_steps, dtype=torch.int32, device=device),
        torch.tensor(thresholds, dtype=torch.float32, device=device),
        torch.tensor([not bool(row.any()) for row in masked], device=device),
        int(lengths.max()),
    )


def settle_reference(fills: Fills, proposals: Proposals) -> Fills:
    """The definition, on the CPU: the state after a step, in new tensors."""
    after = replace(fills, **{name: value.cpu().clone() for name, value in _tensors(fills).items()})
    for index in range(len(after.lengths)):
        rows = slice(int(after.first_rows[index]), int(after.first_rows[index] + after.lengths[index]))
        masked = after.masked[rows]
        left = int(masked.sum())
        if left == 0:
            continue
        after.steps[index] += 1
        steps_left = max(1, int(after.num_steps[index] - after.steps[index]) + 1)
        quota = -(-left // steps_left)
        confidence = proposals.probability[rows].cpu()
        rank = confidence.masked_fill(~masked, -1.0).argsort(descending=True, stable=True).argsort()
        chosen = masked & ((confidence >= after.thresholds[index]) | (rank < quota))
        after.ids[rows] = torch.where(chosen, proposals.ids[rows].cpu(), after.ids[rows])
        after.confidence[rows] = torch.where(chosen, confidence, after.confidence[rows])
        after.masked[rows] = masked & ~chosen
        after.seeds[rows] += SEED_STRIDE
        after.done[index] = int(chosen.sum()) == left
    return after


def _tensors(fills: Fills) -> dict[str, Any]:
    values = {entry.name: getattr(fills, entry.name) for entry in fields(fills)}
    return {name: value for name, value in values.items() if isinstance(value, Tensor)}


def settle(fills: Fills, proposals: Proposals) -> None:
    """One step's decision in place; sequences that are done stay as they are. `proposals` are of all R rows."""
    _settle[(len(fills.lengths),)](
        fills.ids,
        fills.masked.view(torch.uint8),
        fills.confidence,
        fills.seeds,
        fills.first_rows,
        fills.lengths,
        fills.steps,
        fills.num_steps,
        fills.thresholds,
        fills.done.view(torch.uint8),
        proposals.ids,
        proposals.probability,
        SEED_STRIDE,
        B_ROWS=triton.next_power_of_2(fills.longest),
        B_RIVALS=min(64, triton.next_power_of_2(fills.longest)),
        PDL=starts_early(),
        num_warps=4,
        **launch_options(),
    )


@triton.jit
def _settle(
    p_ids,
    p_masked,
    p_confidence,
    p_seeds,
    p_first,
    p_length,
    p_steps,
    p_num_steps,
    p_threshold,
    p_done,
    p_proposed,
    p_probability,
    seed_stride,
    B_ROWS: tl.constexpr,
    B_RIVALS: tl.constexpr,
    PDL: tl.constexpr,
):
    wait_for_inputs(PDL)
    i_sequence = tl.program_id(0).to(tl.int64)
    first = tl.load(p_first + i_sequence)
    length = tl.load(p_length + i_sequence)
    o_local = tl.arange(0, B_ROWS)
    m_local = o_local < length
    o_row = first + o_local
    masked = tl.load(p_masked + o_row, m_local, 0) > 0
    left = tl.sum(masked.to(tl.int32), axis=0)
    if left > 0:
        step = tl.load(p_steps + i_sequence) + 1
        steps_left = tl.maximum(tl.load(p_num_steps + i_sequence) - step + 1, 1)
        quota = (left + steps_left - 1) // steps_left
        confidence = tl.load(p_probability + o_row, m_local, 0.0)
        # The rank by counting: how many masked rows are surer, or as sure and earlier.
        rank = tl.zeros((B_ROWS,), tl.int32)
        for start in range(0, B_ROWS, B_RIVALS):
            o_rival = start + tl.arange(0, B_RIVALS)
            m_rival = o_rival < length
            is_rival = tl.load(p_masked + first + o_rival, m_rival, 0) > 0
            rival = tl.load(p_probability + first + o_rival, m_rival, 0.0)
            is_surer = (rival[None, :] > confidence[:, None]) | (
                (rival[None, :] == confidence[:, None]) & (o_rival[None, :] < o_local[:, None])
            )
            rank += tl.sum((is_surer & is_rival[None, :]).to(tl.int32), axis=1)
        is_sure = confidence >= tl.load(p_threshold + i_sequence)
        chosen = masked & (is_sure | (rank < quota))
        tl.store(p_ids + o_row, tl.load(p_proposed + o_row, chosen, 0), chosen)
        tl.store(p_confidence + o_row, confidence, chosen)
        tl.store(p_seeds + o_row, tl.load(p_seeds + o_row, m_local, 0) + seed_stride, m_local)
        # Other rows of this program read `masked` above; they must have done so before it changes.
        tl.debug_barrier()
        tl.store(p_masked + o_row, (masked & (chosen == 0)).to(tl.uint8), m_local)
        tl.store(p_steps + i_sequence, step)
        settled = tl.sum(chosen.to(tl.int32), axis=0)
        tl.store(p_done + i_sequence, (settled == left).to(tl.uint8))
