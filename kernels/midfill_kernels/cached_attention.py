"""Attention of a few fresh rows to a long cached context and to each other, without joining the two in memory.

R fresh rows of all sequences, H query heads, K key/value heads, E head width. A sequence's keys are cut into splits of
fixed length, so a row's bits depend on its own sequence alone. Each split gives a partial result for its rows; a second
kernel joins these. Programs are persistent and take their work from a list in device memory, so a captured graph serves
every mixture of lengths. Splitting over keys: Flash-Decoding (Dao et al. 2023); packing the query heads of a group: GQA
(arXiv 2305.13245).

Branched sequences are trees and beams: their rows see all of a past, and of the keys behind it those whose bit is set
for the row. Each text's keys stay in memory of its own, and a work list tells how far that is from an anchor.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import torch
import triton
import triton.language as tl
from torch import Tensor

from midfill_kernels.launch import count_processors, is_interpreted, multiply

SPLIT_KEYS: Final = 512  # a constant: it fixes the order of sums
BRANCHED_SPLIT_KEYS: Final = 128  # smaller: few rows behind a short past need more programs with fewer iterations
PAIR_BLOCK: Final = 64  # (row, query head) pairs that a program computes at once
KEY_BLOCK: Final = 64  # keys that a program reads in one iteration
ITEM_FIELDS: Final = 7  # of a work item: see `CachedSchedule`
BRANCHED_FIELDS: Final = 13  # likewise, for branched sequences
JOINED_PARTS: Final = 16  # partial results that are joined in one iteration: those of a past of 2,000 keys
WORD_BITS: Final = 64
UNIT_BYTES: Final = 16  # places and strides of keys are multiples of it, so that loads stay wide
PROGRAMS_PER_PROCESSOR: Final = 2
LOG2_E: Final = 1.4426950408889634


@dataclass(frozen=True)
class CachedSequence:
    """`num_rows` fresh rows that see each other, `context_length` cached keys from slot `context_start` on, and the
    `num_before` fresh rows right before them in the batch.
    """

    num_rows: int
    context_start: int
    context_length: int
    num_before: int = 0


@dataclass(frozen=True)
class StackPlace:
    """Where `length` keys and values outside the cache are: the distance `place` from the anchor to the first key, and
    the strides from a layer to the next, from a head to the next, and from the keys to the values. Counts UNIT_BYTES.
    """

    length: int = 0
    place: int = 0
    layer_stride: int = 0
    head_stride: int = 0
    value_stride: int = 0

    @classmethod
    def of(cls, stack: Tensor | None, anchor: Tensor) -> "StackPlace":
        """The place of `stack` [L, 2, K, length, E], in which the keys of a head are contiguous; None has no keys. The
        caller must keep the stack alive while the place is used.
        """
        if stack is None or not stack.shape[3]:
            return cls()
        layer, value, head, key, element = (stride * stack.itemsize for stride in stack.stride())
        distance = stack.data_ptr() - anchor.data_ptr()
        assert (key, element) == (stack.shape[4] * stack.itemsize, stack.itemsize) and stack.dtype == anchor.dtype
        assert not any(size % UNIT_BYTES for size in (distance, layer, value, head))
        return cls(stack.shape[3], *(size // UNIT_BYTES for size in (distance, layer, head, value)))


@dataclass(frozen=True)
class BranchedSequence:
    """`num_rows` fresh rows T that see all of `past`. Row i sees key j where `seen` [T, tail + T] (bool, on the CPU) is
    true; the keys j are those of the `tail`, then those of the fresh rows. A row must see itself.
    """

    num_rows: int
    past: StackPlace
    tail: StackPlace
    seen: Tensor


@dataclass(frozen=True)
class CachedSchedule:
    """The attention work of a batch of sequences, in device memory. The first `count` [1] of `items` [W, 7] int64 are
    its work items; an item is a block of pairs and a split of keys. Fields of an item: 0 first row of its sequence,
    1 number of these rows, 2 pair block, 3 slot of the first key, 4 number of keys, 5 whether the keys are those of
    fresh rows, 6 first partial result. `row_parts` [R, 3] int64: a row's first partial result, the stride to its next
    one, their number. The batch has `num_parts` partial results.

    For branched sequences `bits` [B] int64 has the bits of `seen`, and behind each sequence's rows a row of what any of
    them sees. Their `items` [W, 13] have more fields: 7 index in `bits` of the first row's first word for these keys,
    -1 if all keys are seen, 8 words of a row, 9 index of the split's first key in the past, tail or fresh rows, 10 to
    12 strides of layers, heads and values. Field 3 is the place of the first key of all these, not of the split.
    """

    items: Tensor
    count: Tensor
    row_parts: Tensor
    num_parts: int
    bits: Tensor | None = None

    def holds(self, other: "CachedSchedule") -> bool:
        """True if there is room for the work of `other`."""
        return all(needed <= size for needed, size in zip(other._sizes, self._sizes, strict=True))

    @property
    def _sizes(self) -> tuple[int, int, int, int]:
        return len(self.items), self.num_parts, len(self.row_parts), -1 if self.bits is None else len(self.bits)

    def refill(self, other: "CachedSchedule") -> None:
        """Takes over the work of `other`, for which there must be room, in place: captured graphs read this memory."""
        num_items = other.items.shape[0]
        self.items[:num_items].copy_(other.items, non_blocking=True)
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
    """The work of `sequences` for `heads` (H, K), padded with rows that have no work up to `num_rows`. It has `room`
    times as many items and partial results as it needs, for `CachedSchedule.refill`.
    """
    segments: list[tuple[int, list[_Segment]]] = []
    for sequence in sequences:
        context = _Segment(sequence.context_length, sequence.context_start)
        own = _Segment(sequence.num_before + sequence.num_rows, None, num_before=sequence.num_before)
        segments.append((sequence.num_rows, [context, own]))
    return _schedule(segments, heads, device, split_keys, pair_block, num_rows, room)


def schedule_branched(
    sequences: Sequence[BranchedSequence],
    heads: tuple[int, int],
    device: torch.device,
    *,
    split_keys: int = BRANCHED_SPLIT_KEYS,
    pair_block: int = PAIR_BLOCK,
    num_rows: int | None = None,
) -> CachedSchedule:
    """The work of `sequences` for `heads` (H, K), padded with rows that have no work up to `num_rows`."""
    segments: list[tuple[int, list[_Segment]]] = []
    words: list[Tensor] = []
    num_words = 0
    for sequence in sequences:
        past, tail, rows = sequence.past, sequence.tail, sequence.num_rows
        seen = torch.cat((sequence.seen, sequence.seen.any(dim=0, keepdim=True)))
        bits = torch.cat((pack_bits(seen[:, : tail.length]), pack_bits(seen[:, tail.length :])), dim=1)
        row_words = bits.shape[1]
        first_own_word = num_words + -(-tail.length // WORD_BITS)
        listed = [
            _Segment(past.length, past.place, (-1, 0), past),
            _Segment(tail.length, tail.place, (num_words, row_words), tail),
            _Segment(rows, None, (first_own_word, row_words), StackPlace()),
        ]
        segments.append((rows, listed))
        words.append(bits.flatten())
        num_words += bits.numel()
    schedule = _schedule(segments, heads, device, split_keys, pair_block, num_rows, room=1)
    return replace(schedule, bits=torch.cat(words).to(device))


def pack_bits(seen: Tensor) -> Tensor:
    """`seen` [T, N] bool -> [T, ceil(N / 64)] int64: key j of a row is bit j % 64 of its word j // 64."""
    padded = torch.nn.functional.pad(seen, (0, -seen.shape[1] % WORD_BITS)).view(len(seen), -1, WORD_BITS)
    return (padded.long() << torch.arange(WORD_BITS)).sum(dim=2)


@dataclass(frozen=True)
class _Segment:
    """`length` keys of a sequence from the slot or place `start` on; None means the keys of its fresh rows, after those
    of the `num_before` rows before these. `words` are fields 7 and 8 of the items of branched sequences, which also
    have a `stack`.
    """

    length: int
    start: int | None
    words: tuple[int, int] = (0, 0)
    stack: StackPlace | None = None
    num_before: int = 0

    def cut(self, first_row: int, split_keys: int) -> Iterator[tuple[tuple[int, int, int], tuple[int, ...]]]:
        """The fields 3 to 5 of each split's items, and 7 to 12 if the sequence is branched."""
        is_own = int(self.start is None)
        start = first_row - self.num_before if self.start is None else self.start
        for offset in range(0, self.length, split_keys):
            size = min(split_keys, self.length - offset)
            if self.stack is None:
                yield (start + offset, size, is_own), ()
            else:
                strides = (self.stack.layer_stride, self.stack.head_stride, self.stack.value_stride)
                yield (start, size, is_own), (*self.words, offset, *strides)


def _schedule(
    sequences: Sequence[tuple[int, list[_Segment]]],
    heads: tuple[int, int],
    device: torch.device,
    split_keys: int,
    pair_block: int,
    num_rows: int | None,
    room: int,
) -> CachedSchedule:
    """The schedule of `sequences`, each given by its number of fresh rows and its segments of keys."""
    items, row_parts = list[int](), list[int]()  # flat: torch reads nested lists slowly
    first_row = first_part = num_fields = 0
    num_heads, num_key_heads = heads
    for rows, segments in sequences:
        splits = [split for segment in segments for split in segment.cut(first_row, split_keys)]
        num_blocks = -(-rows * (num_heads // num_key_heads) // pair_block)  # `triton.cdiv` took most of the time
        for index, (key_fields, branch_fields) in enumerate(splits):
            for block in range(num_blocks):
                items += (first_row, rows, block, *key_fields, first_part + index * rows, *branch_fields)
            num_fields = ITEM_FIELDS + len(branch_fields)
        row_parts += [value for row in range(rows) for value in (first_part + row, rows, len(splits))]
        first_row += rows
        first_part += len(splits) * rows
    row_parts += [0, 0, 0] * ((num_rows or first_row) - first_row)
    num_fields = num_fields or ITEM_FIELDS
    count = len(items) // num_fields
    items += [0] * (num_fields * max(1, count) * room - len(items))
    return CachedSchedule(
        torch.tensor(items, dtype=torch.int64, device=device).view(-1, num_fields),
        torch.tensor([count], dtype=torch.int64, device=device),
        torch.tensor(row_parts, dtype=torch.int64, device=device).view(-1, 3),
        max(1, first_part) * room,
    )


def cached_attention_reference(
    q: Tensor, own: tuple[Tensor, Tensor], cache: tuple[Tensor, Tensor], sequences: Sequence[CachedSequence]
) -> Tensor:
    """The definition in fp32, [R, H * E]: every fresh row attends to its sequence's context and fresh rows, and to the
    rows before these that it sees.
    """
    out = torch.zeros(q.shape, dtype=torch.float32, device=q.device)
    first = 0
    for sequence in sequences:
        rows = slice(first, first + sequence.num_rows)
        slots = slice(sequence.context_start, sequence.context_start + sequence.context_length)
        seen = slice(first - sequence.num_before, rows.stop)
        k, v = (torch.cat((old[slots], new[seen])).float().transpose(0, 1) for old, new in zip(cache, own, strict=True))
        mixed = torch.nn.functional.scaled_dot_product_attention(
            q[rows].float().transpose(0, 1)[None], k[None], v[None], enable_gqa=True
        )
        out[rows] = mixed[0].transpose(0, 1)
        first += sequence.num_rows
    return out.flatten(1)


def branched_attention_reference(
    q: Tensor, own: tuple[Tensor, Tensor], stacks: Sequence[tuple[Tensor, Tensor]], seen: Sequence[Tensor]
) -> Tensor:
    """The definition in fp32, [R, H * E]: row i of a sequence sees all of its past, and where `seen` [T, tail + T] is
    true its tail and its fresh rows. `stacks` are each sequence's past and tail, one layer of each, [2, K, length, E].
    """
    out, first = torch.zeros(q.shape, dtype=torch.float32, device=q.device), 0
    for (past, tail), mask in zip(stacks, seen, strict=True):
        rows = slice(first, first + len(mask))
        fresh = torch.stack([new[rows].transpose(0, 1) for new in own])
        k, v = torch.cat((past, tail, fresh), dim=2).float()
        whole = torch.nn.functional.pad(mask, (past.shape[2], 0), value=True).to(q.device)
        mixed = torch.nn.functional.scaled_dot_product_attention(
            q[rows].float().transpose(0, 1)[None], k[None], v[None], attn_mask=whole, enable_gqa=True
        )
        out[rows] = mixed[0].transpose(0, 1)
        first += len(mask)
    return out.flatten(1)


def cached_attention(
    q: Tensor,
    own: tuple[Tensor, Tensor],
    cache: tuple[Tensor, Tensor],
    schedule: CachedSchedule,
    *,
    layer: int = 0,
    pair_block: int = PAIR_BLOCK,
    key_block: int = KEY_BLOCK,
) -> Tensor:
    """The attention [R, H * E] of the fresh rows `q` [R, H, E], in their dtype; rows that pad the schedule are zeros.

    `own` and `cache` are keys and values of the fresh rows [R, K, E] and of earlier ones [slots, K, E], rotated and
    contiguous. `pair_block` must be that of the schedule. With a branched schedule `cache` is the anchor, twice, keys
    of `layer` are read where they lie, and the schedule's `split_keys` must be a multiple of `key_block`.
    """
    assert all(tensor.is_contiguous() for tensor in (q, *own, *cache)) and WORD_BITS % key_block == 0
    num_rows, num_heads, width = q.shape
    num_key_heads = own[0].shape[1]
    # Partial results [P, H, E] in fp32 and their log-sum-exps to base 2 [P, H].
    parts = torch.empty(schedule.num_parts, num_heads, width, dtype=torch.float32, device=q.device)
    weights = torch.empty(schedule.num_parts, num_heads, dtype=torch.float32, device=q.device)
    max_programs = schedule.items.shape[0] * num_key_heads
    _attend_split[(min(max_programs, PROGRAMS_PER_PROCESSOR * count_processors(q.device)),)](
        q,
        own[0],
        own[1],
        cache[0],
        cache[1],
        schedule.items,
        schedule.count,
        schedule.bits,
        parts,
        weights,
        LOG2_E * width**-0.5,
        layer,
        BRANCHED=schedule.bits is not None,
        UNIT=UNIT_BYTES // q.itemsize,
        FIELDS=schedule.items.shape[1],
        QUERY=num_heads,
        KEY_VALUE=num_key_heads,
        WIDTH=width,
        B_PAIRS=pair_block,
        B_KEYS=key_block,
        UPCAST=is_interpreted(),
        num_warps=4,
        num_stages=3,
    )
    out = torch.empty(num_rows, num_heads * width, dtype=q.dtype, device=q.device)
    if schedule.bits is not None:
        _join_branches[(num_rows, num_heads)](
            parts, weights, schedule.row_parts, out, QUERY=num_heads, WIDTH=width, B_PARTS=JOINED_PARTS, num_warps=1
        )
        return out
    b_heads = max(1, min(triton.next_power_of_2(num_heads), 512 // width))
    _join_splits[(num_rows, triton.cdiv(num_heads, b_heads))](
        parts, weights, schedule.row_parts, out, QUERY=num_heads, WIDTH=width, B_HEADS=b_heads, num_warps=2
    )
    return out


@triton.jit(do_not_specialize=["layer"])
def _attend_split(
    p_q,
    p_own_k,
    p_own_v,
    p_cache_k,
    p_cache_v,
    p_items,
    p_count,
    p_bits,
    p_parts,
    p_weights,
    scale,
    layer,
    BRANCHED: tl.constexpr,
    UNIT: tl.constexpr,
    FIELDS: tl.constexpr,
    QUERY: tl.constexpr,
    KEY_VALUE: tl.constexpr,
    WIDTH: tl.constexpr,
    B_PAIRS: tl.constexpr,
    B_KEYS: tl.constexpr,
    UPCAST: tl.constexpr,
):
    # Writes for each work item its partial results, and their weights: log-sum-exps to base 2 of the scores.
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
        is_own = tl.load(p_item + 5)
        if is_own > 0:
            p_k = p_own_k
            p_v = p_own_v
        else:
            p_k = p_cache_k
            p_v = p_cache_v
        if BRANCHED:
            first_key = tl.load(p_item + 9)
            key_step = 1 + is_own * (KEY_VALUE - 1)  # a stack has the keys of a head side by side
            if is_own > 0:
                base = (tl.load(p_item + 3) * KEY_VALUE + i_key_head) * WIDTH
            else:
                base = (tl.load(p_item + 3) + layer * tl.load(p_item + 10) + i_key_head * tl.load(p_item + 11)) * UNIT
            base += first_key * key_step * WIDTH
            p_k += base
            p_v += base + tl.load(p_item + 12) * UNIT
        else:
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
        if BRANCHED:
            first_word = tl.load(p_item + 7)
            m_word = o_row < tl.where(first_word < 0, 0, num_rows)
            all_seen = tl.where(first_word < 0, -1, 0)  # every bit, or none
            p_word = p_bits + first_word + o_row * tl.load(p_item + 8)
            p_any = p_bits + first_word + num_rows * tl.load(p_item + 8)
        # Online softmax: the highest score so far, the sum of shares, the values times their shares.
        highest = tl.full((B_PAIRS,), float("-inf"), tl.float32)
        total = tl.zeros((B_PAIRS,), tl.float32)
        mixed = tl.zeros((B_PAIRS, WIDTH), tl.float32)
        for start in range(0, num_keys, B_KEYS):
            o_key = start + tl.arange(0, B_KEYS)
            m_key = o_key < num_keys
            if BRANCHED:
                o_slot = o_key.to(tl.int64) * key_step * WIDTH
                bit = first_key + start
                o_bit = bit % 64 + tl.arange(0, B_KEYS)
                seen = tl.load(p_word + bit // 64, m_word, 0) | all_seen
                m_key = m_key & ((((tl.load(p_any + bit // 64, first_word >= 0, 0) | all_seen) >> o_bit) & 1) > 0)
            else:
                o_slot = o_key.to(tl.int64) * (KEY_VALUE * WIDTH)
            k = tl.load(p_k + o_slot[None, :] + o_width[:, None], m_key[None, :], 0.0)
            scores = multiply(q, k, tl.zeros((B_PAIRS, B_KEYS), tl.float32), UPCAST) * scale
            scores = tl.where(m_key[None, :], scores, float("-inf"))
            if BRANCHED:
                scores = tl.where(((seen[:, None] >> o_bit[None, :]) & 1) > 0, scores, float("-inf"))
            higher = tl.maximum(highest, tl.max(scores, axis=1))
            if BRANCHED:
                level = tl.where(higher == float("-inf"), 0.0, higher)
            else:
                level = higher
            shrink = tl.exp2(highest - level)
            share = tl.exp2(scores - level[:, None])
            total = total * shrink + tl.sum(share, axis=1)
            v = tl.load(p_v + o_slot[:, None] + o_width[None, :], m_key[:, None], 0.0)
            mixed = multiply(share.to(v.dtype), v, mixed * shrink[:, None], UPCAST)
            highest = higher
        o_part = (first_part + o_row) * QUERY + o_head
        if BRANCHED:
            total = tl.where(total > 0, total, 1.0)  # a row that sees none of these keys has the weight 2^-inf
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


@triton.jit
def _join_branches(
    p_parts, p_weights, p_row_parts, p_out, QUERY: tl.constexpr, WIDTH: tl.constexpr, B_PARTS: tl.constexpr
):
    """Like `_join_splits` for one head, with many parts of few keys each: loads them side by side."""
    i_row = tl.program_id(0).to(tl.int64)
    i_head = tl.program_id(1)
    o_width = tl.arange(0, WIDTH)
    first = tl.load(p_row_parts + i_row * 3)
    stride = tl.load(p_row_parts + i_row * 3 + 1)
    count = tl.load(p_row_parts + i_row * 3 + 2).to(tl.int32)
    highest = tl.full((1,), -1e30, tl.float32)
    total = tl.zeros((1,), tl.float32)
    mixed = tl.zeros((WIDTH,), tl.float32)
    for start in range(0, count, B_PARTS):
        part = start + tl.arange(0, B_PARTS)
        m_part = part < count
        o_part = (first + part * stride) * QUERY + i_head
        weight = tl.load(p_weights + o_part, m_part, float("-inf"))
        value = tl.load(p_parts + o_part[:, None] * WIDTH + o_width[None, :], m_part[:, None], 0.0)
        higher = tl.maximum(highest, tl.max(weight, axis=0, keep_dims=True))
        shrink = tl.exp2(highest - higher)
        share = tl.exp2(weight - higher)
        mixed = mixed * shrink + tl.sum(value * share[:, None], axis=0)
        total = total * shrink + tl.sum(share, axis=0, keep_dims=True)
        highest = higher
    mixed = mixed / tl.where(total > 0, total, 1.0)
    tl.store(p_out + (i_row * QUERY + i_head) * WIDTH + o_width, mixed.to(p_out.dtype.element_ty))
