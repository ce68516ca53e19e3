"""Attention of whole sequences to themselves, packed in a row, under one rule: a row sees keys of its rank or lower.

All ranks equal: everything sees everything. Ranks that grow: causal; by the block: block-causal (SDAR, BD3-LM). Context
0 and holes 1: context sees context only, holes see all. N rows, H query heads, K key/value heads, E head width.

The loop is FlashAttention-2's (arXiv 2307.08691).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch
import triton
import triton.language as tl
from torch import Tensor

from midfill_kernels.launch import ceil_div, is_interpreted, multiply

ROW_BLOCK: Final = 128
KEY_BLOCK: Final = 64
ITEM_FIELDS: Final = 4
LOG2_E: Final = 1.4426950408889634


@dataclass(frozen=True)
class ContextSchedule:
    """`items` [W, 4] int64, one a block of rows: its sequence's first row and length, the block, how many keys it sees.

    `ranks` [N] int32, or None where all are equal.
    """

    items: Tensor
    ranks: Tensor | None
    row_block: int


def schedule_contexts(
    lengths: Sequence[int], ranks: Tensor | None, device: torch.device, *, row_block: int = ROW_BLOCK
) -> ContextSchedule:
    """Cuts sequences of `lengths` rows; `ranks` [sum of lengths] are integers. Longest blocks start first."""
    items: list[tuple[int, int, int, int]] = []
    first = 0
    for length in lengths:
        for block in range(ceil_div(length, row_block)):
            items.append((first, length, block, _count_keys(ranks, first, length, block, row_block)))
        first += length
    items.sort(key=lambda item: -item[3])
    table = torch.tensor(items, dtype=torch.int64).view(-1, ITEM_FIELDS).to(device)
    return ContextSchedule(table, None if ranks is None else ranks.to(device, torch.int32), row_block)


def _count_keys(ranks: Tensor | None, first: int, length: int, block: int, row_block: int) -> int:
    """One more than the last key that any row of the block sees."""
    if ranks is None:
        return length
    own = ranks[first : first + length]
    visible = own <= own[block * row_block : (block + 1) * row_block].max()
    return int(visible.nonzero().max()) + 1


def context_attention_reference(
    q: Tensor, k: Tensor, v: Tensor, lengths: Sequence[int], ranks: Tensor | None
) -> Tensor:
    """The definition in fp32: [N, H * E]."""
    pieces, first = [], 0
    for length in lengths:
        rows = slice(first, first + length)
        mask = None if ranks is None else ranks[rows][:, None] >= ranks[rows][None, :]
        query, key, value = (tensor[rows].float().transpose(0, 1)[None] for tensor in (q, k, v))
        mixed = torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, enable_gqa=True)
        pieces.append(mixed[0].transpose(0, 1).flatten(1))
        first += length
    return torch.cat(pieces)


def context_attention(
    q: Tensor, k: Tensor, v: Tensor, schedule: ContextSchedule, *, key_block: int = KEY_BLOCK
) -> Tensor:
    """[N, H * E] in the dtype of `q` [N, H, E]; `k` and `v` [N, K, E]. All contiguous, keys already rotated."""
    assert q.is_contiguous() and k.is_contiguous() and v.is_contiguous()
    num_rows, num_heads, width = q.shape
    out = torch.empty(num_rows, num_heads * width, dtype=q.dtype, device=q.device)
    _attend[(schedule.items.shape[0], num_heads)](
        q,
        k,
        v,
        schedule.items,
        schedule.ranks,
        out,
        LOG2_E * width**-0.5,
        QUERY=num_heads,
        KEY_VALUE=k.shape[1],
        WIDTH=width,
        RANKED=schedule.ranks is not None,
        B_ROWS=schedule.row_block,
        B_KEYS=key_block,
        UPCAST=is_interpreted(),
        num_warps=8 if schedule.row_block >= 128 else 4,
        num_stages=3,
    )
    return out


def library_serves(q: Tensor, ranks: Tensor | None) -> bool:
    """Whether the library's attention (cuDNN's or FlashAttention's) takes `q` [N, H, E] and sees keys of any rank."""
    return q.is_cuda and ranks is None and q.dtype != torch.float32 and q.shape[2] <= 128


def library_attention(q: Tensor, k: Tensor, v: Tensor, lengths: Sequence[int]) -> Tensor:
    """As `context_attention` without ranks. A call for each sequence, so packing changes no bit here either."""
    pieces = []
    for rows in zip(*(tensor.split(list(lengths)) for tensor in (q, k, v)), strict=True):
        query, key, value = (tensor.transpose(0, 1)[None] for tensor in rows)
        mixed = torch.nn.functional.scaled_dot_product_attention(query, key, value, enable_gqa=True)
        pieces.append(mixed[0].transpose(0, 1).flatten(1))
    return torch.cat(pieces)


@triton.jit
def _attend_keys(
    q, highest, total, mixed, p_k, p_v, p_ranks, rank, start, num_keys, scale,
    KEY_VALUE: tl.constexpr, WIDTH: tl.constexpr, RANKED: tl.constexpr, BOUNDED: tl.constexpr, B_KEYS: tl.constexpr,
    UPCAST: tl.constexpr,
):  # fmt: skip
    """One block of keys into the running softmax."""
    o_width = tl.arange(0, WIDTH)
    o_key = start + tl.arange(0, B_KEYS)
    m_key = o_key < num_keys
    o_slot = o_key.to(tl.int64) * (KEY_VALUE * WIDTH)
    if BOUNDED:
        k = tl.load(p_k + o_slot[None, :] + o_width[:, None], m_key[None, :], 0.0)
        v = tl.load(p_v + o_slot[:, None] + o_width[None, :], m_key[:, None], 0.0)
    else:
        k = tl.load(p_k + o_slot[None, :] + o_width[:, None])
        v = tl.load(p_v + o_slot[:, None] + o_width[None, :])
    scores = multiply(q, k, tl.zeros((q.shape[0], B_KEYS), tl.float32), UPCAST) * scale
    if BOUNDED:
        scores = tl.where(m_key[None, :], scores, float("-inf"))
    if RANKED:
        key_rank = tl.load(p_ranks + o_key, m_key, 2147483647)
        scores = tl.where(key_rank[None, :] <= rank[:, None], scores, float("-inf"))
    # A finite floor: a row that has seen nothing yet must not take minus infinity from itself.
    higher = tl.maximum(tl.maximum(highest, tl.max(scores, axis=1)), -1e30)
    shrink = tl.exp2(highest - higher)
    share = tl.exp2(scores - higher[:, None])
    total = total * shrink + tl.sum(share, axis=1)
    mixed = multiply(share.to(v.dtype), v, mixed * shrink[:, None], UPCAST)
    return higher, total, mixed


@triton.jit
def _attend(
    p_q,
    p_k,
    p_v,
    p_items,
    p_ranks,
    p_out,
    scale,
    QUERY: tl.constexpr,
    KEY_VALUE: tl.constexpr,
    WIDTH: tl.constexpr,
    RANKED: tl.constexpr,
    B_ROWS: tl.constexpr,
    B_KEYS: tl.constexpr,
    UPCAST: tl.constexpr,
):
    p_item = p_items + tl.program_id(0).to(tl.int64) * 4
    i_head = tl.program_id(1)
    first = tl.load(p_item)
    num_keys = tl.load(p_item + 3).to(tl.int32)
    o_row = tl.load(p_item + 2) * B_ROWS + tl.arange(0, B_ROWS)
    m_row = o_row < tl.load(p_item + 1)
    o_width = tl.arange(0, WIDTH)
    o_element = ((first + o_row) * QUERY + i_head)[:, None] * WIDTH + o_width[None, :]
    q = tl.load(p_q + o_element, m_row[:, None], 0.0)
    i_key_head = i_head // (QUERY // KEY_VALUE)
    p_k += (first * KEY_VALUE + i_key_head) * WIDTH
    p_v += (first * KEY_VALUE + i_key_head) * WIDTH
    rank = o_row
    if RANKED:
        p_ranks += first
        rank = tl.load(p_ranks + o_row, m_row, 2147483646)
    highest = tl.full((B_ROWS,), -1e30, tl.float32)
    total = tl.zeros((B_ROWS,), tl.float32)
    mixed = tl.zeros((B_ROWS, WIDTH), tl.float32)
    whole = num_keys // B_KEYS * B_KEYS
    for start in range(0, whole, B_KEYS):
        highest, total, mixed = _attend_keys(
            q, highest, total, mixed, p_k, p_v, p_ranks, rank, start, num_keys, scale,
            KEY_VALUE, WIDTH, RANKED, False, B_KEYS, UPCAST,
        )  # fmt: skip
    if whole < num_keys:
        highest, total, mixed = _attend_keys(
            q, highest, total, mixed, p_k, p_v, p_ranks, rank, whole, num_keys, scale,
            KEY_VALUE, WIDTH, RANKED, True, B_KEYS, UPCAST,
        )  # fmt: skip
    tl.store(p_out + o_element, (mixed / total[:, None]).to(p_out.dtype.element_ty), m_row[:, None])
