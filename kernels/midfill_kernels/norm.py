"""Adds a product to the residual stream and norms it, in one pass. S partial products, M rows, D width."""

import torch
import triton
import triton.language as tl
from torch import Tensor


def add_rms_norm_reference(
    parts: Tensor, residual: Tensor | None, gain: Tensor | None, eps: float
) -> tuple[Tensor, Tensor]:
    """The definition: the sum is rounded to the stream's dtype first, then normed in fp32 (arXiv 1910.07467)."""
    dtype = parts.dtype if residual is None else residual.dtype
    total = parts.float().sum(dim=0) + (0 if residual is None else residual.float())
    stream = total.to(dtype)
    wide = stream.float()
    normed = wide * torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + eps)
    return stream, (normed if gain is None else normed * gain.float()).to(dtype)


def add_rms_norm(parts: Tensor, residual: Tensor | None, gain: Tensor | None, eps: float) -> tuple[Tensor, Tensor]:
    """Sums `parts` [S, M, D] in order and adds `residual` [M, D]; returns the new stream and its normed states, times
    `gain` [D] if given. Both have the dtype of the residual, or of the parts without one.
    """
    assert parts.dim() == 3 and parts.is_contiguous() and (residual is None or residual.is_contiguous())
    num_parts, num_rows, dim = parts.shape
    like = parts[0] if residual is None else residual
    stream = torch.empty(like.shape, dtype=like.dtype, device=like.device)
    normed = torch.empty_like(stream)
    _add_rms_norm[(num_rows,)](
        parts,
        residual,
        gain,
        stream,
        normed,
        num_rows,
        dim,
        eps,
        NUM_PARTS=num_parts,
        HAS_RESIDUAL=residual is not None,
        HAS_GAIN=gain is not None,
        B_DIM=triton.next_power_of_2(dim),
        num_warps=8 if dim > 2048 else 4,
    )
    return stream, normed


@triton.jit(do_not_specialize=["num_rows"])
def _add_rms_norm(
    p_parts,
    p_residual,
    p_gain,
    p_stream,
    p_normed,
    num_rows,
    dim,
    eps,
    NUM_PARTS: tl.constexpr,
    HAS_RESIDUAL: tl.constexpr,
    HAS_GAIN: tl.constexpr,
    B_DIM: tl.constexpr,
):
    i_row = tl.program_id(0).to(tl.int64)
    o_dim = tl.arange(0, B_DIM)
    m_dim = o_dim < dim
    total = tl.zeros((B_DIM,), tl.float32)
    for part in tl.static_range(NUM_PARTS):
        total += tl.load(p_parts + (part * num_rows + i_row) * dim + o_dim, m_dim, 0.0).to(tl.float32)
    if HAS_RESIDUAL:
        total += tl.load(p_residual + i_row * dim + o_dim, m_dim, 0.0).to(tl.float32)
    rounded = total.to(p_stream.dtype.element_ty)
    tl.store(p_stream + i_row * dim + o_dim, rounded, m_dim)
    wide = rounded.to(tl.float32)
    normed = wide * tl.rsqrt(tl.sum(wide * wide, axis=0) / dim + eps)
    if HAS_GAIN:
        normed *= tl.load(p_gain + o_dim, m_dim, 0.0).to(tl.float32)
    tl.store(p_normed + i_row * dim + o_dim, normed.to(p_normed.dtype.element_ty), m_dim)
