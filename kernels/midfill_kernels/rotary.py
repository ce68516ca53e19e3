"""Turns the joint q, k, v product into attention's inputs, in one kernel: adds partial products and bias, norms and
rotates q and k, writes k and v. S partial products, R rows, H query heads, K key/value heads, E head width.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor


@dataclass(frozen=True)
class Heads:
    """`query` heads share `key_value` heads evenly; `width`, that of a head, is a power of two. With `norm` q and k are
    RMS-normed.
    """

    query: int
    key_value: int
    width: int
    norm: bool = False
    eps: float = 1e-6

    @property
    def columns(self) -> int:
        """Width of the joint product: of all query heads, then all key heads, then all value heads."""
        return (self.query + 2 * self.key_value) * self.width


def rotary_tables(positions: Tensor, width: int, base: float) -> tuple[Tensor, Tensor]:
    """Cosines and sines [R, width / 2] in fp32 for `positions` [R], where the first `width` dimensions of a head rotate
    (RoFormer, arXiv 2104.09864).
    """
    exponents = torch.arange(0, width, 2, device=positions.device, dtype=torch.float32) / width
    angles = positions.float()[..., None] * (base**-exponents)
    return angles.cos(), angles.sin()


def norm_rotate_store_reference(
    parts: Tensor,
    heads: Heads,
    tables: tuple[Tensor, Tensor],
    *,
    bias: Tensor | None = None,
    gains: tuple[Tensor, Tensor] | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The definition, in fp32: q [R, H, E], k and v [R, K, E]. Halves rotate against each other (GPT-NeoX's layout)."""
    total = parts.float().sum(dim=0) + (0 if bias is None else bias.float())
    sizes = [heads.query * heads.width, heads.key_value * heads.width, heads.key_value * heads.width]
    q, k, v = (piece.unflatten(1, (-1, heads.width)) for piece in total.split(sizes, dim=1))
    if heads.norm:
        q_gain, k_gain = gains or (None, None)
        q = torch.nn.functional.rms_norm(q, (heads.width,), None if q_gain is None else q_gain.float(), heads.eps)
        k = torch.nn.functional.rms_norm(k, (heads.width,), None if k_gain is None else k_gain.float(), heads.eps)
    return _rotate(q, tables), _rotate(k, tables), v


def _rotate(x: Tensor, tables: tuple[Tensor, Tensor]) -> Tensor:
    cos, sin = (table[:, None] for table in tables)
    half = cos.shape[-1]
    left, right, unrotated = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    return torch.cat((left * cos - right * sin, right * cos + left * sin, unrotated), dim=-1)


def norm_rotate_store(
    parts: Tensor,
    heads: Heads,
    tables: tuple[Tensor, Tensor],
    keys: Tensor,
    values: Tensor,
    *,
    bias: Tensor | None = None,
    gains: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """Returns q [R, H, E] in the dtype of `keys`; row r's key and value go to `keys[r]` and `values[r]`.

    `parts` [S, R, (H + 2K)E] fp32, `tables` as `rotary_tables` makes them, `keys` and `values` [R, K, E] contiguous.
    `bias` [(H + 2K)E], `gains` one [E] each for q and k. Dimensions beyond the tables do not rotate.
    """
    num_parts, num_rows, columns = parts.shape
    assert parts.is_contiguous() and columns == heads.columns
    assert keys.is_contiguous() and values.is_contiguous() and len(keys) == len(values) == num_rows
    q = torch.empty(num_rows, heads.query, heads.width, dtype=keys.dtype, device=parts.device)
    cos, sin = tables
    _norm_rotate_store[(num_rows, heads.query + 2 * heads.key_value)](
        parts,
        bias,
        gains[0] if gains else None,
        gains[1] if gains else None,
        cos,
        sin,
        q,
        keys,
        values,
        num_rows,
        heads.eps,
        NUM_PARTS=num_parts,
        QUERY=heads.query,
        KEY_VALUE=heads.key_value,
        WIDTH=heads.width,
        HALF=cos.shape[1],
        NORM=heads.norm,
        HAS_GAIN=gains is not None,
        HAS_BIAS=bias is not None,
        num_warps=1,
    )
    return q


@triton.jit(do_not_specialize=["num_rows"])
def _norm_rotate_store(
    p_parts,
    p_bias,
    p_q_gain,
    p_k_gain,
    p_cos,
    p_sin,
    p_q,
    p_k,
    p_v,
    num_rows,
    eps,
    NUM_PARTS: tl.constexpr,
    QUERY: tl.constexpr,
    KEY_VALUE: tl.constexpr,
    WIDTH: tl.constexpr,
    HALF: tl.constexpr,
    NORM: tl.constexpr,
    HAS_GAIN: tl.constexpr,
    HAS_BIAS: tl.constexpr,
):
    i_row = tl.program_id(0).to(tl.int64)
    i_head = tl.program_id(1).to(tl.int64)
    o_dim = tl.arange(0, WIDTH)
    # Of the dimensions that rotate, each rotates against its partner in the other half.
    o_partner = tl.where(o_dim < HALF, o_dim + HALF, tl.where(o_dim < 2 * HALF, o_dim - HALF, o_dim))
    columns: tl.constexpr = (QUERY + 2 * KEY_VALUE) * WIDTH
    head = tl.zeros((WIDTH,), tl.float32)
    partner = tl.zeros((WIDTH,), tl.float32)
    for part in tl.static_range(NUM_PARTS):
        p_head = p_parts + (part * num_rows + i_row) * columns + i_head * WIDTH
        head += tl.load(p_head + o_dim)
        partner += tl.load(p_head + o_partner)
    if HAS_BIAS:
        head += tl.load(p_bias + i_head * WIDTH + o_dim).to(tl.float32)
        partner += tl.load(p_bias + i_head * WIDTH + o_partner).to(tl.float32)
    if i_head < QUERY + KEY_VALUE:
        if NORM:
            scale = tl.rsqrt(tl.sum(head * head, axis=0) / WIDTH + eps)
            head *= scale
            partner *= scale
            if HAS_GAIN:
                if i_head < QUERY:
                    p_gain = p_q_gain
                else:
                    p_gain = p_k_gain
                head *= tl.load(p_gain + o_dim).to(tl.float32)
                partner *= tl.load(p_gain + o_partner).to(tl.float32)
        o_table = i_row * HALF + o_dim % HALF
        cos = tl.load(p_cos + o_table, o_dim < 2 * HALF, 1.0)
        sin = tl.load(p_sin + o_table, o_dim < 2 * HALF, 0.0)
        head = head * cos + partner * tl.where(o_dim < HALF, -sin, sin)
    if i_head < QUERY:
        tl.store(p_q + (i_row * QUERY + i_head) * WIDTH + o_dim, head.to(p_q.dtype.element_ty))
    else:
        i_key = (i_head - QUERY) % KEY_VALUE
        if i_head < QUERY + KEY_VALUE:
            p_cache = p_k
        else:
            p_cache = p_v
        tl.store(p_cache + (i_row * KEY_VALUE + i_key) * WIDTH + o_dim, head.to(p_k.dtype.element_ty))
