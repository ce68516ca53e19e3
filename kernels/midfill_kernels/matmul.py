"""Products of few rows with a large weight, at the speed of reading the weight.

M rows (16..512), N output columns, K inner width, S splits of K. The weight is the tensor cores' left operand, so 16
rows waste nothing. The order of sums depends on N and K alone, so a row's result does not depend on the rows beside it.
"""

from dataclasses import dataclass
from typing import Final

import torch
import triton
import triton.language as tl
from torch import Tensor

from midfill_kernels.launch import is_interpreted, multiply


@dataclass(frozen=True)
class Tile:
    """The tiling of a product: a program computes `cols` x `rows` outputs of one of `splits` pieces of K, and reads
    `inner` positions of K in one iteration. `warps` and `stages` are Triton's.
    """

    cols: int
    rows: int
    inner: int
    splits: int
    warps: int = 4
    stages: int = 4


MAX_ROWS: Final = 128  # of a tile; programs for further rows read the weight again, out of the cache
TARGET_PROGRAMS: Final = 264  # two for each multiprocessor of an H100; constant, so that every GPU splits alike
MAX_SPLITS: Final = 8
SHARED_BYTES: Final = 100 * 1024  # of 227 KB: one program alone would leave half a wave of 264 idle, and each prologue


def choose_tile(weight: Tensor, num_rows: int, *, gated: bool = False) -> Tile:
    """The tile for `num_rows`. Only `rows`, `warps` and `stages` may depend on `num_rows`: they change no sum."""
    num_cols, width = weight.shape
    cols, inner = 64 if gated else 128, choose_inner(width)
    rows = min(MAX_ROWS, max(16, triton.next_power_of_2(num_rows)))
    num_tiles = triton.cdiv(num_cols // 2 if gated else num_cols, cols)
    max_splits = 1 if gated else min(MAX_SPLITS, triton.cdiv(width, 4 * inner))
    splits = max(1, min(max_splits, TARGET_PROGRAMS // num_tiles))
    stages = fit_stages(weight, cols * (2 if gated else 1), rows, inner)
    return Tile(cols, rows, inner, splits, 8 if rows == MAX_ROWS else 4, stages)


def choose_inner(width: int) -> int:
    """Inner positions that an iteration reads: at most 64, which are 128 bytes of a weight's row in bf16."""
    return min(64, max(16, int(triton.next_power_of_2(width))))


def fit_stages(weight: Tensor, cols: int, rows: int, inner: int) -> int:
    """The number of iterations whose operands fit into shared memory, 2 to 5. The rows are 16-bit numbers."""
    iteration_bytes = inner * (cols * weight.itemsize + rows * 2)
    return max(2, min(5, SHARED_BYTES // iteration_bytes))


def matmul_reference(x: Tensor, weight: Tensor) -> Tensor:
    """The definition: [M, N] in fp32 from the exact values of both operands."""
    return x.float() @ weight.float().T


def gated_matmul_reference(x: Tensor, weight: Tensor) -> Tensor:
    """The definition: silu(gate) * up in fp32, `weight` [2F, K] holding the gate's rows first (arXiv 2002.05202)."""
    gate, up = matmul_reference(x, weight).chunk(2, dim=1)
    return torch.nn.functional.silu(gate) * up


def matmul(x: Tensor, weight: Tensor, *, tile: Tile | None = None) -> Tensor:
    """Partial products [S, M, N] in fp32 of `x` [M, K]. Their sum over S is x @ weight.T; the next kernel adds them."""
    tile = tile or choose_tile(weight, len(x))
    width = weight.shape[1]
    per_split = triton.cdiv(triton.cdiv(width, tile.inner), tile.splits) * tile.inner
    splits = triton.cdiv(width, per_split)
    out = torch.empty(splits, len(x), weight.shape[0], dtype=torch.float32, device=weight.device)
    _start(x, weight, out, tile, per_split)
    return out


def gated_matmul(x: Tensor, weight: Tensor, dtype: torch.dtype, *, tile: Tile | None = None) -> Tensor:
    """silu(x @ gate.T) * (x @ up.T) as [M, F] in `dtype`; `weight` [2F, K] holds the gate's rows, then the up's."""
    tile = tile or choose_tile(weight, len(x), gated=True)
    out = torch.empty(1, len(x), weight.shape[0] // 2, dtype=dtype, device=weight.device)
    _start(x, weight, out, tile, weight.shape[1])
    return out[0]


def _start(x: Tensor, weight: Tensor, out: Tensor, tile: Tile, per_split: int) -> None:
    """Launches the kernel, which writes `out`: [S, M, N], or [1, M, N / 2] for a gated product."""
    assert x.is_contiguous() and weight.is_contiguous() and x.shape[1] == weight.shape[1], (
        "rows and weight differ in width"
    )
    splits, num_rows, num_cols = out.shape
    _matmul[(triton.cdiv(num_rows, tile.rows), triton.cdiv(num_cols, tile.cols), splits)](
        x,
        weight,
        out,
        num_rows,
        num_cols,
        weight.shape[1],
        per_split,
        GATED=num_cols != weight.shape[0],
        EVEN=weight.shape[1] % tile.inner == 0,
        B_COLS=tile.cols,
        B_ROWS=tile.rows,
        B_INNER=tile.inner,
        UPCAST=is_interpreted(),
        num_warps=tile.warps,
        num_stages=tile.stages,
    )


@triton.jit
def load_inputs(p_x, o_row, m_row, start, width, EVEN: tl.constexpr, B_INNER: tl.constexpr):
    """The rows' inputs of one iteration, [B_INNER, B_ROWS]."""
    o_inner = start + tl.arange(0, B_INNER)
    m_x = m_row[None, :] if EVEN else m_row[None, :] & (o_inner < width)[:, None]
    return tl.load(p_x + o_row[None, :] * width + o_inner[:, None], m_x, 0.0)


@triton.jit
def add_product(
    accumulator, p_w, o_col, m_col, x, start, width, EVEN: tl.constexpr, B_INNER: tl.constexpr, UPCAST: tl.constexpr
):
    """Adds one iteration's product to `accumulator` [B_COLS, B_ROWS]; `x` is [B_INNER, B_ROWS]."""
    o_inner = start + tl.arange(0, B_INNER)
    m_w = m_col[:, None] if EVEN else m_col[:, None] & (o_inner < width)[None, :]
    w = tl.load(p_w + o_col[:, None] * width + o_inner[None, :], m_w, 0.0)
    return multiply(w, x, accumulator, UPCAST)


@triton.jit(do_not_specialize=["num_rows"])
def _matmul(
    p_x,
    p_w,
    p_out,
    num_rows,
    num_cols,
    width,
    per_split,
    GATED: tl.constexpr,
    EVEN: tl.constexpr,
    B_COLS: tl.constexpr,
    B_ROWS: tl.constexpr,
    B_INNER: tl.constexpr,
    UPCAST: tl.constexpr,
):
    # Rows vary fastest, so that all programs reading one piece of the weight run side by side.
    o_row = tl.program_id(0).to(tl.int64) * B_ROWS + tl.arange(0, B_ROWS)
    o_col = tl.program_id(1).to(tl.int64) * B_COLS + tl.arange(0, B_COLS)
    i_split = tl.program_id(2).to(tl.int64)
    m_row = o_row < num_rows
    m_col = o_col < num_cols
    accumulator = tl.zeros((B_COLS, B_ROWS), tl.float32)
    if GATED:
        up = tl.zeros((B_COLS, B_ROWS), tl.float32)
    first = tl.program_id(2) * per_split
    for start in range(first, tl.minimum(first + per_split, width), B_INNER):
        x = load_inputs(p_x, o_row, m_row, start, width, EVEN, B_INNER)
        accumulator = add_product(accumulator, p_w, o_col, m_col, x, start, width, EVEN, B_INNER, UPCAST)
        if GATED:
            up = add_product(up, p_w, o_col + num_cols, m_col, x, start, width, EVEN, B_INNER, UPCAST)
    if GATED:
        accumulator = accumulator / (1 + tl.exp(-accumulator)) * up
    p_tile = p_out + (i_split * num_rows + o_row)[None, :] * num_cols + o_col[:, None]
    tl.store(p_tile, accumulator.to(p_out.dtype.element_ty), m_row[None, :] & m_col[:, None])
