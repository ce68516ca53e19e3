"""Narrow number formats: fp8, int8 and int4 weights, fp8 rows. Knows scales and layouts; multiplies nothing.

M rows, N output columns, K inner width. Every format is symmetric: value = stored * scale.
"""

from dataclasses import dataclass
from typing import Final, Literal

import torch
import triton
import triton.language as tl
from torch import Tensor

from midfill_kernels.launch import launch_options, starts_early, wait_for_inputs

FP8_MAX: Final = 448.0  # the largest finite e4m3
INT4_GROUP: Final = 128  # inner positions that share a scale, and one unit of the packed layout

Format = Literal["plain", "fp8", "int8", "int4"]
FORMATS: Final[tuple[Format, ...]] = ("plain", "fp8", "int8", "int4")
TINY: Final = 1e-12


@dataclass(frozen=True)
class Quantized:
    """Rows in fp8: `values` [M, K] e4m3 and `scales` [M, K / group] fp32."""

    values: Tensor
    scales: Tensor

    @property
    def group(self) -> int:
        return self.values.shape[1] // self.scales.shape[1]

    def dequantize(self) -> Tensor:
        """[M, K] in fp32."""
        return self.values.float() * self.scales.repeat_interleave(self.group, dim=1)


@dataclass(frozen=True)
class Weight:
    """A matrix [N, K] of a linear layer, out of x [M, K] makes x @ weight.T [M, N].

    `data` is [N, K], or [N, K / 2] bytes for int4: within every run of 128 inner positions, byte i holds position i in
    its low and position i + 64 in its high half, so a tile unpacks without a shuffle. `scale` is [N] fp32, or
    [N, K / 128] for int4; absent for plain.
    """

    format: Format
    data: Tensor
    scale: Tensor | None
    shape: tuple[int, int]

    @property
    def nbytes(self) -> int:
        return self.data.nbytes + (0 if self.scale is None else self.scale.nbytes)

    def dequantize(self) -> Tensor:
        """[N, K] in fp32."""
        if self.scale is None:
            return self.data.float()
        if self.format != "int4":
            return self.data.float() * self.scale[:, None]
        return unpack_int4(self.data).float() * self.scale.repeat_interleave(INT4_GROUP, dim=1)


def pack(matrix: Tensor, format: Format) -> Weight:
    """`matrix` [N, K] in `format`. int4 needs K divisible by 128. Raises ValueError for what cannot be packed."""
    shape = (matrix.shape[0], matrix.shape[1])
    if format == "plain":
        return Weight(format, matrix.contiguous(), None, shape)
    if format == "int4":
        if shape[1] % INT4_GROUP:
            raise ValueError(f"int4 weights need an inner width divisible by {INT4_GROUP}, not {shape[1]}")
        groups = matrix.float().view(shape[0], -1, INT4_GROUP)
        scale = groups.abs().amax(dim=2).clamp(min=TINY) / 7
        whole = (groups / scale[..., None]).round().clamp(-7, 7).to(torch.int8).view(shape)
        return Weight(format, pack_int4(whole), scale, shape)
    limit, dtype = (FP8_MAX, torch.float8_e4m3fn) if format == "fp8" else (127.0, torch.int8)
    scale = matrix.float().abs().amax(dim=1).clamp(min=TINY) / limit
    stored = matrix.float() / scale[:, None]
    return Weight(format, (stored if format == "fp8" else stored.round()).to(dtype), scale, shape)


def pack_int4(whole: Tensor) -> Tensor:
    """Integers -8..7 [N, K] as bytes [N, K / 2] in the layout of `Weight`."""
    runs = (whole.view(whole.shape[0], -1, 2, INT4_GROUP // 2) + 8).to(torch.uint8)
    return (runs[:, :, 0] | (runs[:, :, 1] << 4)).reshape(whole.shape[0], -1)


def unpack_int4(data: Tensor) -> Tensor:
    """The inverse of `pack_int4`: int8 [N, K]."""
    runs = data.view(data.shape[0], -1, 1, INT4_GROUP // 2)
    halves = torch.cat((runs & 15, runs >> 4), dim=2).to(torch.int8) - 8
    return halves.reshape(data.shape[0], -1)


def quantize_rows_reference(x: Tensor, group: int) -> Quantized:
    """The definition: every group's largest magnitude becomes 448."""
    groups = x.float().view(x.shape[0], -1, group)
    scales = groups.abs().amax(dim=2).clamp(min=TINY) / FP8_MAX
    return Quantized((groups / scales[..., None]).view(x.shape).to(torch.float8_e4m3fn), scales)


def quantize_rows(x: Tensor, group: int) -> Quantized:
    """`x` [M, K] in fp8 with one scale for every `group` columns (a power of two dividing K)."""
    assert x.is_contiguous() and x.shape[1] % group == 0
    values = torch.empty(x.shape, dtype=torch.float8_e4m3fn, device=x.device)
    scales = torch.empty(x.shape[0], x.shape[1] // group, dtype=torch.float32, device=x.device)
    num_groups = scales.numel()
    b_groups = 8
    _quantize_rows[(triton.cdiv(num_groups, b_groups),)](
        x,
        values,
        scales,
        num_groups,
        GROUP=group,
        B_GROUPS=b_groups,
        FP8_LIMIT=FP8_MAX,
        PDL=starts_early(),
        num_warps=4,
        **launch_options(),
    )
    return Quantized(values, scales)


@triton.jit(do_not_specialize=["num_groups"])
def _quantize_rows(
    p_x,
    p_values,
    p_scales,
    num_groups,
    GROUP: tl.constexpr,
    B_GROUPS: tl.constexpr,
    FP8_LIMIT: tl.constexpr,
    PDL: tl.constexpr,
):
    wait_for_inputs(PDL)
    o_group = tl.program_id(0).to(tl.int64) * B_GROUPS + tl.arange(0, B_GROUPS)
    o_element = o_group[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    m_group = o_group < num_groups
    x = tl.load(p_x + o_element, m_group[:, None], 0.0).to(tl.float32)
    scale = tl.maximum(tl.max(tl.abs(x), axis=1), 1e-12) / FP8_LIMIT
    tl.store(p_scales + o_group, scale, m_group)
    tl.store(p_values + o_element, (x / scale[:, None]).to(p_values.dtype.element_ty), m_group[:, None])
