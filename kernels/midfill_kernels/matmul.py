"""Products of few rows with a large weight, at the speed of reading the weight. Knows formats; no layer, no model.

M rows (16..512), N output columns, K inner width, S splits of K. The weight is the left operand of the tensor cores'
product and the rows the right one: 16 rows then waste nothing, and narrow weights widen in registers on their way.
Which numbers are added in which order depends on N, K and the format alone, never on M: a row's result does not depend
on the rows beside it.
"""

from dataclasses import dataclass
from typing import Final

import torch
import triton
import triton.language as tl
from torch import Tensor

from midfill_kernels.launch import (
    ceil_div,
    is_interpreted,
    launch_options,
    multiply,
    starts_early,
    wait_for_inputs,
    widen,
)
from midfill_kernels.quantize import FP8_MAX, INT4_GROUP, Format, Quantized, Weight


@dataclass(frozen=True)
class Tile:
    """How a product is cut: `cols` x `rows` outputs a program, `inner` positions a turn, K in `splits` pieces."""

    cols: int
    rows: int
    inner: int
    splits: int
    warps: int = 4
    stages: int = 4


MAX_ROWS: Final = 128  # outputs of one program; more rows than this read the weight again, out of the cache
TARGET_PROGRAMS: Final = 264  # two for each multiprocessor of an H100: a constant, so that results do not move
MAX_SPLITS: Final = 8
SHARED_BYTES: Final = 100 * 1024  # two programs of 227 KB: one alone leaves half a wave of 264 idle, and each prologue


def choose_tile(weight: Weight, num_rows: int, x_group: int | None, *, gated: bool = False) -> Tile:
    """The tile for `num_rows`. Only `rows`, `warps` and `stages` may depend on `num_rows` (see the module)."""
    num_cols, width = weight.shape
    cols, inner = 64 if gated else 128, choose_inner(weight)
    if x_group is not None:
        inner = x_group
    rows = min(MAX_ROWS, max(16, triton.next_power_of_2(num_rows)))
    num_tiles = ceil_div(num_cols // 2 if gated else num_cols, cols)
    most = 1 if gated else min(MAX_SPLITS, ceil_div(width, 4 * inner))
    splits = max(1, min(most, TARGET_PROGRAMS // num_tiles))
    warps = 8 if rows == MAX_ROWS or weight.format == "int4" else 4  # int4 unpacks in registers: 4 warps spill
    stages = fit_stages(weight, cols * (2 if gated else 1), rows, inner, 1 if x_group else 2)
    return Tile(cols, rows, inner, splits, warps, stages)


def choose_inner(weight: Weight) -> int:
    """Inner positions a turn: 128 bytes of a plain weight's row, 128 positions of a narrow one's."""
    most = INT4_GROUP if weight.format == "int4" else 64 if weight.format == "plain" else 128
    return most if weight.format == "int4" else min(most, max(16, triton.next_power_of_2(weight.shape[1])))


def fit_stages(weight: Weight, cols: int, rows: int, inner: int, row_bytes: int) -> int:
    """How many turns' operands fit into shared memory, 2 to 5. A row's number takes `row_bytes`."""
    turn = inner * (cols * weight.nbytes // (weight.shape[0] * weight.shape[1]) + rows * row_bytes)
    return max(2, min(5, SHARED_BYTES // turn))


def matmul_reference(x: Tensor | Quantized, weight: Weight) -> Tensor:
    """The definition: [M, N] in fp32 from the exact values of both operands."""
    wide = x.dequantize() if isinstance(x, Quantized) else x.float()
    return wide @ weight.dequantize().T


def gated_matmul_reference(x: Tensor | Quantized, weight: Weight) -> Tensor:
    """The definition: silu(gate) * up in fp32, `weight` [2F, K] holding the gate's rows first (arXiv 2002.05202)."""
    gate, up = matmul_reference(x, weight).chunk(2, dim=1)
    return torch.nn.functional.silu(gate) * up


def matmul(x: Tensor | Quantized, weight: Weight, *, tile: Tile | None = None) -> Tensor:
    """Partial products [S, M, N] in fp32, whose sum over S is x @ weight.T; whoever reads them next adds them up.

    `x` is [M, K] bf16, fp16 or fp32, or fp8 rows, which need an fp8 weight.
    """
    tile = tile or choose_tile(weight, _num_rows(x), _group(x))
    width, per_split = weight.shape[1], ceil_div(ceil_div(weight.shape[1], tile.inner), tile.splits) * tile.inner
    splits = ceil_div(width, per_split)
    out = torch.empty(splits, _num_rows(x), weight.shape[0], dtype=torch.float32, device=weight.data.device)
    grid = (ceil_div(_num_rows(x), tile.rows), ceil_div(weight.shape[0], tile.cols), splits)
    _start(x, weight, out, None, tile, grid, per_split, weight.shape[0], 0)
    return out


def gated_matmul(x: Tensor | Quantized, weight: Weight, dtype: torch.dtype, *, tile: Tile | None = None) -> Tensor:
    """silu(x @ gate.T) * (x @ up.T) as [M, F] in `dtype`; `weight` [2F, K] holds the gate's rows, then the up's."""
    tile = tile or choose_tile(weight, _num_rows(x), _group(x), gated=True)
    half = weight.shape[0] // 2
    out = torch.empty(_num_rows(x), half, dtype=dtype, device=weight.data.device)
    grid = (ceil_div(_num_rows(x), tile.rows), ceil_div(half, tile.cols), 1)
    _start(x, weight, out, None, tile, grid, weight.shape[1], half, 0)
    return out


def gated_matmul_fp8(x: Tensor | Quantized, weight: Weight, group: int, *, tile: Tile | None = None) -> Quantized:
    """As `gated_matmul`, with the result in fp8, one scale for every `group` columns (dividing F)."""
    tile = tile or choose_tile(weight, _num_rows(x), _group(x), gated=True)
    stages = fit_stages(weight, 2 * group, tile.rows, tile.inner, 1 if _group(x) else 2)
    tile = Tile(group, tile.rows, tile.inner, 1, 8 if group * tile.rows >= 8192 else tile.warps, stages)
    half = weight.shape[0] // 2
    assert half % group == 0
    out = torch.empty(_num_rows(x), half, dtype=torch.float8_e4m3fn, device=weight.data.device)
    scales = torch.empty(_num_rows(x), half // group, dtype=torch.float32, device=weight.data.device)
    grid = (ceil_div(_num_rows(x), tile.rows), half // group, 1)
    _start(x, weight, out, scales, tile, grid, weight.shape[1], half, group)
    return Quantized(out, scales)


def _num_rows(x: Tensor | Quantized) -> int:
    return (x.values if isinstance(x, Quantized) else x).shape[0]


def _group(x: Tensor | Quantized) -> int | None:
    return x.group if isinstance(x, Quantized) else None


def _start(
    x: Tensor | Quantized,
    weight: Weight,
    out: Tensor,
    out_scales: Tensor | None,
    tile: Tile,
    grid: tuple[int, int, int],
    per_split: int,
    num_cols: int,
    out_group: int,
) -> None:
    values = x.values if isinstance(x, Quantized) else x
    format: Format | str = "fp8_both" if isinstance(x, Quantized) else weight.format
    assert values.is_contiguous() and values.shape[1] == weight.shape[1], "rows and weight differ in width"
    assert not isinstance(x, Quantized) or (weight.format == "fp8" and tile.inner == x.group)
    assert weight.format != "int4" or tile.inner == INT4_GROUP
    _matmul[grid](
        values,
        x.scales if isinstance(x, Quantized) else None,
        weight.data,
        weight.scale,
        out,
        out_scales,
        values.shape[0],
        num_cols,
        weight.shape[1],
        per_split,
        FORMAT=format,
        GATED=num_cols != weight.shape[0],
        OUT_GROUP=out_group,
        FP8_LIMIT=FP8_MAX,
        EVEN=weight.shape[1] % tile.inner == 0,
        B_COLS=tile.cols,
        B_ROWS=tile.rows,
        B_INNER=tile.inner,
        UPCAST=is_interpreted(),
        PDL=starts_early(),
        num_warps=tile.warps,
        num_stages=tile.stages,
        **launch_options(),
    )


@triton.jit
def load_turn(
    p_x, p_x_scale, o_row, m_row, start, width, FORMAT: tl.constexpr, EVEN: tl.constexpr, B_INNER: tl.constexpr
):
    """One turn's `x` [B_INNER, B_ROWS], its upper half for int4 (else `x` again), and its scales [B_ROWS] for fp8."""
    x_scale = tl.zeros_like(o_row).to(tl.float32)
    if FORMAT == "int4":
        p_half = p_x + o_row[None, :] * width + start + tl.arange(0, B_INNER // 2)[:, None]
        x = tl.load(p_half, m_row[None, :], 0.0)
        x_high = tl.load(p_half + B_INNER // 2, m_row[None, :], 0.0)
    else:
        o_inner = start + tl.arange(0, B_INNER)
        m_x = m_row[None, :] if EVEN else m_row[None, :] & (o_inner < width)[:, None]
        x = tl.load(p_x + o_row[None, :] * width + o_inner[:, None], m_x, 0.0)
        x_high = x
        if FORMAT == "fp8_both":
            x_scale = tl.load(p_x_scale + o_row * (width // B_INNER) + start // B_INNER, m_row, 0.0)
    return x, x_high, x_scale


@triton.jit
def weigh(
    accumulator, p_w, p_w_scale, o_col, m_col, x, x_high, x_scale, start, width,
    FORMAT: tl.constexpr, EVEN: tl.constexpr, B_INNER: tl.constexpr, UPCAST: tl.constexpr,
):  # fmt: skip
    """Adds one turn's product to `accumulator` [B_COLS, B_ROWS]; `x` is [B_INNER, B_ROWS], half of it for int4."""
    if FORMAT == "int4":
        o_byte = start // 2 + tl.arange(0, B_INNER // 2)
        packed = tl.load(p_w + o_col[:, None] * (width // 2) + o_byte[None, :], m_col[:, None], 0.0)
        # Through a signed type on purpose: unsigned bytes would wrap around below zero.
        low = widen((packed & 15).to(tl.int8) - 8, x.dtype, UPCAST)
        high = widen((packed >> 4).to(tl.int8) - 8, x.dtype, UPCAST)
        product = multiply(low, x, tl.zeros_like(accumulator), UPCAST)
        product = multiply(high, x_high, product, UPCAST)
        scale = tl.load(p_w_scale + o_col * (width // B_INNER) + start // B_INNER, m_col, 0.0)
        accumulator += product * scale[:, None]
    else:
        o_inner = start + tl.arange(0, B_INNER)
        m_w = m_col[:, None] if EVEN else m_col[:, None] & (o_inner < width)[None, :]
        w = tl.load(p_w + o_col[:, None] * width + o_inner[None, :], m_w, 0.0)
        if FORMAT == "fp8_both":
            accumulator += multiply(w, x, tl.zeros_like(accumulator), UPCAST) * x_scale[None, :]
        else:
            accumulator = multiply(widen(w, x.dtype, UPCAST), x, accumulator, UPCAST)
    return accumulator


@triton.jit(do_not_specialize=["num_rows"])
def _matmul(
    p_x,
    p_x_scale,
    p_w,
    p_w_scale,
    p_out,
    p_out_scale,
    num_rows,
    num_cols,
    width,
    per_split,
    FORMAT: tl.constexpr,
    GATED: tl.constexpr,
    OUT_GROUP: tl.constexpr,
    FP8_LIMIT: tl.constexpr,
    EVEN: tl.constexpr,
    B_COLS: tl.constexpr,
    B_ROWS: tl.constexpr,
    B_INNER: tl.constexpr,
    UPCAST: tl.constexpr,
    PDL: tl.constexpr,
):
    wait_for_inputs(PDL)
    # Rows turn fastest, so that all programs reading one piece of the weight run side by side.
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
        x, x_high, x_scale = load_turn(p_x, p_x_scale, o_row, m_row, start, width, FORMAT, EVEN, B_INNER)
        accumulator = weigh(
            accumulator, p_w, p_w_scale, o_col, m_col, x, x_high, x_scale, start, width, FORMAT, EVEN, B_INNER, UPCAST
        )
        if GATED:
            up = weigh(
                up, p_w, p_w_scale, o_col + num_cols, m_col, x, x_high, x_scale, start, width,
                FORMAT, EVEN, B_INNER, UPCAST,
            )  # fmt: skip
    if FORMAT == "int8" or FORMAT == "fp8" or FORMAT == "fp8_both":
        accumulator *= tl.load(p_w_scale + o_col, m_col, 0.0)[:, None]
        if GATED:
            up *= tl.load(p_w_scale + num_cols + o_col, m_col, 0.0)[:, None]
    if GATED:
        accumulator = accumulator / (1 + tl.exp(-accumulator)) * up
    if OUT_GROUP > 0:
        scale = tl.maximum(tl.max(tl.abs(accumulator), axis=0), 1e-12) / FP8_LIMIT
        tl.store(p_out_scale + o_row * (num_cols // OUT_GROUP) + tl.program_id(1), scale, m_row)
        accumulator = accumulator / scale[None, :]
    p_tile = p_out + (i_split * num_rows + o_row)[None, :] * num_cols + o_col[:, None]
    tl.store(p_tile, accumulator.to(p_out.dtype.element_ty), m_row[None, :] & m_col[:, None])
