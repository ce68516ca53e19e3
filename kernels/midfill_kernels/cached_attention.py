"""Attention of a few fresh rows to a long cached context and to each other, without joining the two in memory.

R fresh rows of all sequences, H query heads, K key/value heads, E head width. A sequence's keys are cut into splits of
fixed length, so a row's bits depend on its own sequence alone. Programs are persistent and take their work from a list
in device memory, so a captured graph serves every mixture of lengths. Splitting over keys: Flash-Decoding (Dao et al.
2023); packing the query heads of a group: GQA (arXiv 2305.13245).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch
import triton
import triton.language as tl
from torch import Tensor

from midfill_kernels.launch import count_processors, is_interpreted, multiply

SPLIT_KEYS: Final = 512  # a constant: it fixes the order of sums
PAIR_BLOCK: Final = 64  # (row, query head) pairs a program holds at once
KEY_BLOCK: Final = 64
ITEM_FIELDS: Final = 7
PROGRAMS_PER_PROCESSOR: Final = 2
LOG2_E: Final = 1.4426950408889634


@dataclass(frozen=True)
class CachedSequence:
    """`num_rows` fresh rows, and `context_length` cached keys from slot `context_start` on."""

    num_rows: int
    context_start: int
    context_length: int


@dataclass(frozen=True)
class CachedSchedule:
    """Work for a batch of sequences, in device memory. The first `count` [1] of `items` [W, 7] int64: first row, rows,
    pair block, the first key's slot, number of keys, whether they are fresh, first partial result. `row_parts` [R, 3]
    int64: a row's first partial result, the stride to its next, their number. `num_parts` partial results in all.
    """

    items: Tensor
    count: Tensor
    row_parts: Tensor
    num_parts: int

    def holds(self, other: "CachedSchedule") -> bool:
        """True if there is room for the work of `other`."""
        sizes = ((each.items.shape[0], each.num_parts, len(each.row_parts)) for each in (other, self))
        return all(theirs <= ours for theirs, ours in zip(*sizes, strict=True))

    def refill(self, other: "CachedSchedule") -> None:
        """Takes over the work of `other`, which it holds, in place: for graphs that were captured with this one."""
        held = other.items.shape[0]
        self.items[:held].copy_(other.items, non_blocking=True)
        self.count.copy_(other.count, non_blocking=True)
        self.row_parts[: len(other.row_parts)].copy_(other.row_parts, non_blocking=True)
        self.row_parts[len(other.row_parts) :, 2] = 0


def schedule_cached(
    sequences: Sequence[CachedSequence],
    heads: tuple[int, int],
    device: torch.device,
    *,
    split_keys: int = SPLIT_KEYS,
    pair_block: int = PAIR_BLOCK,
    num_rows: int | None = None,
    room: int = 1,
) -> CachedSchedule:
    """Cuts the work of `sequences` for `heads` (H, K); `num_rows` pads with rows at the end. `room` times as many items
    and partial results fit in later (see `CachedSchedule.refill`).
    """
    items: list[tuple[int, ...]] = []
    row_parts: list[tuple[int, int, int]] = []
    first_row = first_part = 0
    num_heads, num_keys = heads
    for sequence in sequences:
        segments = [(sequence.context_start, sequence.context_length, 0), (first_row, sequence.num_rows, 1)]
        runs = [
            (start + offset, min(split_keys, length - offset), own)
            for start, length, own in segments
            for offset in range(0, length, split_keys)
        ]
        for number, run in enumerate(runs):
            for block in range(triton.cdiv(sequence.num_rows * (num_heads // num_keys), pair_block)):
                items.append((first_row, sequence.num_rows, block, *run, first_part + number * sequence.num_rows))
        row_parts += [(first_part + row, sequence.num_rows, len(runs)) for row in range(sequence.num_rows)]
        first_row += sequence.num_rows
        first_part += len(runs) * sequence.num_rows
    row_parts += [(0, 0, 0)] * ((num_rows or first_row) - first_row)
    table = torch.zeros(max(1, len(items)) * room, ITEM_FIELDS, dtype=torch.int64)
    table[: len(items)] = torch.tensor(items, dtype=torch.int64).view(-1, ITEM_FIELDS)
    return CachedSchedule(
        table.to(device),
        torch.tensor([len(items)], dtype=torch.int64, device=device),
        torch.tensor(row_parts, dtype=torch.int64, device=device).view(-1, 3),
        max(1, first_part) * room,
    )


def cached_attention_reference(
    q: Tensor, own: tuple[Tensor, Tensor], cache: tuple[Tensor, Tensor], sequences: Sequence[CachedSequence]
) -> Tensor:
    """The definition in fp32: every fresh row attends to its sequence's context and fresh rows. [R, H * E]."""
    out = torch.zeros(q.shape, dtype=torch.float32, device=q.device)
    first = 0
    for sequence in sequences:
        rows = slice(first, first + sequence.num_rows)
        slots = slice(sequence.context_start, sequence.context_start + sequence.context_length)
        k, v = (torch.cat((old[slots], new[rows])).float().transpose(0, 1) for old, new in zip(cache, own, strict=True))
        mixed = torch.nn.functional.scaled_dot_product_attention(
            q[rows].float().transpose(0, 1)[None], k[None], v[None], enable_gqa=True
        )
        out[rows] = mixed[0].transpose(0, 1)
        first += sequence.num_rows
    return out.flatten(1)


def cached_attention(
    q: Tensor,
    own: tuple[Tensor, Tensor],
    cache: tuple[Tensor, Tensor],
    schedule: CachedSchedule,
    *,
    pair_block: int = PAIR_BLOCK,
    key_block: int = KEY_BLOCK,
) -> Tensor:
    """[R, H * E] in the dtype of `q` [R, H, E]. `own` and `cache` are keys and values, [R, K, E] and [slots, K, E],
    rotated and contiguous. Padding rows are zeros. `pair_block` is the schedule's.
    """
    assert all(tensor.is_contiguous() for tensor in (q, *own, *cache))
    num_rows, num_heads, width = q.shape
    num_keys = own[0].shape[1]
    # Partial results [P, H, E] in fp32 and their log-sum-exps to base 2 [P, H].
    parts = torch.empty(schedule.num_parts, num_heads, width, dtype=torch.float32, device=q.device)
    weights = torch.empty(schedule.num_parts, num_heads, dtype=torch.float32, device=q.device)
    most = schedule.items.shape[0] * num_keys
    _attend_split[(min(most, PROGRAMS_PER_PROCESSOR * count_processors(q.device)),)](
        q,
        own[0],
        own[1],
        cache[0],
        cache[1],
        schedule.items,
        schedule.count,
        parts,
        weights,
        LOG2_E * width**-0.5,
        FIELDS=ITEM_FIELDS,
        QUERY=num_heads,
        KEY_VALUE=num_keys,
        WIDTH=width,
        B_PAIRS=pair_block,
        B_KEYS=key_block,
        UPCAST=is_interpreted(),
        num_warps=4,
        num_stages=3,
    )
    out = torch.empty(num_rows, num_heads * width, dtype=q.dtype, device=q.device)
    b_heads = max(1, min(triton.next_power_of_2(num_heads), 512 // width))
    _join_splits[(num_rows, triton.cdiv(num_heads, b_heads))](
        parts, weights, schedule.row_parts, out, QUERY=num_heads, WIDTH=width, B_HEADS=b_heads, num_warps=2
    )
    return out


@triton.jit
def _attend_split(
    p_q,
    p_own_k,
    p_own_v,
    p_cache_k,
    p_cache_v,
    p_items,
    p_count,
    p_parts,
    p_weights,
    scale,
    FIELDS: tl.constexpr,
    QUERY: tl.constexpr,
    KEY_VALUE: tl.constexpr,
    WIDTH: tl.constexpr,
    B_PAIRS: tl.constexpr,
    B_KEYS: tl.constexpr,
    UPCAST: tl.constexpr,
):
    heads_per_key: tl.constexpr = QUERY // KEY_VALUE
    count = tl.load(p_count).to(tl.int32) * KEY_VALUE
    o_width = tl.arange(0, WIDTH)
    for work in range(tl.program_id(0), count, tl.num_programs(0)):
        p_item = p_items + (work // KEY_VALUE) * FIELDS
        i_key_head = work % KEY_VALUE
        first_row = tl.load(p_item)
        num_rows = tl.load(p_item + 1)
        num_keys = tl.load(p_item + 4).to(tl.int32)
        first_part = tl.load(p_item + 6)
        if tl.load(p_item + 5) > 0:
            p_k = p_own_k
            p_v = p_own_v
        else:
            p_k = p_cache_k
            p_v = p_cache_v
        base = (tl.load(p_item + 3) * KEY_VALUE + i_key_head) * WIDTH
        p_k += base
        p_v += base
        o_pair = tl.load(p_item + 2) * B_PAIRS + tl.arange(0, B_PAIRS)
        o_row = o_pair // heads_per_key
        o_head = i_key_head * heads_per_key + o_pair % heads_per_key
        m_pair = o_row < num_rows
        q = tl.load(
            p_q + ((first_row + o_row) * QUERY + o_head)[:, None] * WIDTH + o_width[None, :], m_pair[:, None], 0.0
        )
        highest = tl.full((B_PAIRS,), float("-inf"), tl.float32)
        total = tl.zeros((B_PAIRS,), tl.float32)
        mixed = tl.zeros((B_PAIRS, WIDTH), tl.float32)
        for start in range(0, num_keys, B_KEYS):
            o_key = start + tl.arange(0, B_KEYS)
            m_key = o_key < num_keys
            o_slot = o_key.to(tl.int64) * (KEY_VALUE * WIDTH)
            k = tl.load(p_k + o_slot[None, :] + o_width[:, None], m_key[None, :], 0.0)
            scores = multiply(q, k, tl.zeros((B_PAIRS, B_KEYS), tl.float32), UPCAST) * scale
            scores = tl.where(m_key[None, :], scores, float("-inf"))
            higher = tl.maximum(highest, tl.max(scores, axis=1))
            shrink = tl.exp2(highest - higher)
            share = tl.exp2(scores - higher[:, None])
            total = total * shrink + tl.sum(share, axis=1)
            v = tl.load(p_v + o_slot[:, None] + o_width[None, :], m_key[:, None], 0.0)
            mixed = multiply(share.to(v.dtype), v, mixed * shrink[:, None], UPCAST)
            highest = higher
        o_part = (first_part + o_row) * QUERY + o_head
        tl.store(p_parts + o_part[:, None] * WIDTH + o_width[None, :], mixed / total[:, None], m_pair[:, None])
        tl.store(p_weights + o_part, highest + tl.log2(total), m_pair)


@triton.jit
def _join_splits(
    p_parts, p_weights, p_row_parts, p_out, QUERY: tl.constexpr, WIDTH: tl.constexpr, B_HEADS: tl.constexpr
):
    i_row = tl.program_id(0).to(tl.int64)
    o_head = tl.program_id(1) * B_HEADS + tl.arange(0, B_HEADS)
    o_width = tl.arange(0, WIDTH)
    m_head = o_head < QUERY
    first = tl.load(p_row_parts + i_row * 3)
    stride = tl.load(p_row_parts + i_row * 3 + 1)
    count = tl.load(p_row_parts + i_row * 3 + 2).to(tl.int32)
    highest = tl.full((B_HEADS,), -1e30, tl.float32)
    total = tl.zeros((B_HEADS,), tl.float32)
    mixed = tl.zeros((B_HEADS, WIDTH), tl.float32)
    for part in range(count):
        o_part = (first + part * stride) * QUERY + o_head
        weight = tl.load(p_weights + o_part, m_head, -1e30)
        higher = tl.maximum(highest, weight)
        shrink = tl.exp2(highest - higher)
        share = tl.exp2(weight - higher)
        value = tl.load(p_parts + o_part[:, None] * WIDTH + o_width[None, :], m_head[:, None], 0.0)
        mixed = mixed * shrink[:, None] + value * share[:, None]
        total = total * shrink + share
        highest = higher
    mixed = mixed / tl.where(total > 0, total, 1.0)[:, None]
    o_out = i_row * (QUERY * WIDTH) + o_head[:, None] * WIDTH + o_width[None, :]
    tl.store(p_out + o_out, mixed.to(p_out.dtype.element_ty), m_head[:, None])
