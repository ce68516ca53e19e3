import pytest
import torch
from tests.kernels.compare import assert_close
from torch import Tensor

from midfill_kernels.cached_attention import (
    BranchedSequence,
    CachedSequence,
    StackPlace,
    branched_attention_reference,
    cached_attention,
    cached_attention_reference,
    pack_bits,
    schedule_branched,
    schedule_cached,
)

RAGGED = (
    CachedSequence(5, 3, 37),
    CachedSequence(1, 60, 16),
    CachedSequence(4, 41, 0),
    CachedSequence(5, 41, 0, num_before=4),
    CachedSequence(2, 0, 3),
)


def draw(
    num_rows: int, heads: tuple[int, int, int], dtype: torch.dtype, device: torch.device, num_slots: int = 80
) -> tuple[Tensor, tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Queries, fresh keys and values, cached keys and values, for (H, K, E)."""
    query, key_value, width = heads
    q = torch.randn(num_rows, query, width, device=device).to(dtype)
    own = torch.randn(2, num_rows, key_value, width, device=device).to(dtype)
    cache = torch.randn(2, num_slots, key_value, width, device=device).to(dtype)
    return q, (own[0], own[1]), (cache[0], cache[1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("heads", [(4, 2, 16), (3, 3, 16), (7, 1, 32)])
def test_cached_attention(heads: tuple[int, int, int], dtype: torch.dtype, device: torch.device) -> None:
    q, own, cache = draw(17, heads, dtype, device)
    schedule = schedule_cached(RAGGED, heads[:2], device, split_keys=16, pair_block=16)
    found = cached_attention(q, own, cache, schedule, pair_block=16, key_block=16)
    assert_close(found, cached_attention_reference(q, own, cache, RAGGED), dtype)


def test_rows_of_padding_come_out_as_zeros(device: torch.device) -> None:
    q, own, cache = draw(20, (4, 2, 16), torch.float32, device)
    schedule = schedule_cached(RAGGED, (4, 2), device, split_keys=16, pair_block=16, num_rows=20)
    found = cached_attention(q, own, cache, schedule, pair_block=16, key_block=16)
    assert_close(found[:17], cached_attention_reference(q[:17], own, cache, RAGGED), torch.float32)
    assert (found[17:] == 0).all()


def test_packing_changes_no_bit(device: torch.device) -> None:
    q, own, cache = draw(17, (4, 2, 16), torch.float32, device)
    together = cached_attention(
        q,
        own,
        cache,
        schedule_cached(RAGGED, (4, 2), device, split_keys=16, pair_block=16),
        pair_block=16,
        key_block=16,
    )
    first = 0
    for sequences in (RAGGED[:1], RAGGED[1:2], RAGGED[2:4], RAGGED[4:]):
        rows = slice(first, first + sum(sequence.num_rows for sequence in sequences))
        alone = cached_attention(
            q[rows].contiguous(),
            (own[0][rows].contiguous(), own[1][rows].contiguous()),
            cache,
            schedule_cached(sequences, (4, 2), device, split_keys=16, pair_block=16),
            pair_block=16,
            key_block=16,
        )
        assert torch.equal(together[rows], alone)
        first = rows.stop


def test_splits_agree_with_no_splits(device: torch.device) -> None:
    q, own, cache = draw(17, (4, 2, 16), torch.float32, device)
    results = [
        cached_attention(
            q, own, cache, schedule_cached(RAGGED, (4, 2), device, split_keys=split_keys, pair_block=16), pair_block=16
        )
        for split_keys in (8, 16, 64)
    ]
    assert_close(results[0], results[2], torch.float32)
    assert_close(results[1], results[2], torch.float32)


def test_large_scores_do_not_overflow(device: torch.device) -> None:
    q, own, cache = draw(5, (2, 2, 16), torch.float32, device)
    schedule = schedule_cached(RAGGED[:1], (2, 2), device, split_keys=16, pair_block=16)
    found = cached_attention(q * 1e3, own, cache, schedule, pair_block=16, key_block=16)
    assert_close(found, cached_attention_reference(q * 1e3, own, cache, RAGGED[:1]), torch.float16)


def test_a_schedule_is_refilled_in_place(device: torch.device) -> None:
    q, own, cache = draw(17, (4, 2, 16), torch.float32, device)
    schedule = schedule_cached(RAGGED, (4, 2), device, split_keys=16, pair_block=16)
    smaller = RAGGED[:2]
    schedule.refill(schedule_cached(smaller, (4, 2), device, split_keys=16, pair_block=16))
    found = cached_attention(q, own, cache, schedule, pair_block=16, key_block=16)
    assert_close(found[:6], cached_attention_reference(q[:6], own, cache, smaller), torch.float32)
    assert (found[6:] == 0).all()


BRANCHED = ((5, 37, 70), (1, 16, 0), (9, 0, 65), (65, 3, 20), (4, 1, 64))  # rows, keys of the past and of the tail
LAYERS = 3


class Branches:
    """Sequences with stacks of their own inside larger memory, which is not a number outside their keys."""

    def __init__(self, sizes: tuple[tuple[int, int, int], ...], heads: tuple[int, int, int], like: Tensor) -> None:
        self.heads, self.anchor = heads, torch.zeros(1, dtype=like.dtype, device=like.device)
        self.stacks = [(self._stack(past), self._stack(tail)) for _, past, tail in sizes]
        self.seen = []
        for rows, _, tail in sizes:
            seen = torch.rand(rows, tail + rows) > 0.6
            seen[:, tail:] |= torch.eye(rows, dtype=torch.bool)
            self.seen.append(seen)

    def _stack(self, length: int) -> Tensor:
        _, key_value, width = self.heads
        memory = torch.full((LAYERS, 2, key_value, length + 9, width), float("nan"), device=self.anchor.device)
        memory[:, :, :, 4 : 4 + length] = torch.randn(LAYERS, 2, key_value, length, width)
        return memory.to(self.anchor.dtype)[:, :, :, 4 : 4 + length]

    def sequence(self, number: int) -> BranchedSequence:
        past, tail = (StackPlace.of(stack, self.anchor) for stack in self.stacks[number])
        return BranchedSequence(len(self.seen[number]), past, tail, self.seen[number])

    def attend(
        self, numbers: list[int], q: Tensor, own: tuple[Tensor, Tensor], layer: int, num_rows: int | None = None
    ) -> Tensor:
        schedule = schedule_branched(
            [self.sequence(number) for number in numbers], self.heads[:2], q.device,
            split_keys=64, pair_block=32, num_rows=num_rows,
        )  # fmt: skip
        cache = (self.anchor, self.anchor)
        return cached_attention(q, own, cache, schedule, layer=layer, pair_block=32, key_block=32)

    def expect(self, q: Tensor, own: tuple[Tensor, Tensor], layer: int) -> Tensor:
        stacks = [(past[layer], tail[layer]) for past, tail in self.stacks]
        return branched_attention_reference(q, own, stacks, self.seen)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("heads", [(6, 2, 16), (2, 2, 16), (4, 1, 32)])
def test_attention_of_branches_agrees_with_torch(
    heads: tuple[int, int, int], dtype: torch.dtype, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("midfill_kernels.cached_attention.JOINED_PARTS", 2)  # some rows have three
    num_rows = sum(rows for rows, _, _ in BRANCHED)
    q, own, _ = draw(num_rows + 3, heads, dtype, device)
    branches = Branches(BRANCHED, heads, q)
    found = branches.attend([0, 1, 2, 3, 4], q, own, 1, num_rows + 3)
    assert_close(found[:num_rows], branches.expect(q[:num_rows], own, 1), dtype)
    assert (found[num_rows:] == 0).all()


def test_keys_that_no_row_sees_may_be_nan(device: torch.device) -> None:
    q, own, _ = draw(5, (3, 1, 16), torch.float32, device)
    branches = Branches(BRANCHED[:1], (3, 1, 16), q)
    unseen = ~branches.seen[0][:, :70].any(dim=0)
    unseen[20:70] = True  # more than a block of keys
    branches.seen[0][:, :70] &= ~unseen
    expected = branches.expect(q, own, 2)
    branches.stacks[0][1][:, :, :, unseen] = float("nan")
    assert unseen.sum() > 50 and not expected.isnan().any()
    assert_close(branches.attend([0], q, own, 2), expected, torch.float32)


def test_a_row_may_see_itself_alone(device: torch.device) -> None:
    q, own, _ = draw(4, (3, 1, 16), torch.float32, device)
    branches = Branches(((4, 0, 70),), (3, 1, 16), q)
    branches.seen[0].zero_()[:, 70:] = torch.eye(4, dtype=torch.bool)
    expected = own[1].expand(4, 3, 16).flatten(1)
    assert_close(branches.attend([0], q, own, 0), expected, torch.float32)


def test_packing_branches_changes_no_bit(device: torch.device) -> None:
    q, own, _ = draw(15, (6, 2, 16), torch.float32, device)
    branches, first = Branches(BRANCHED[:3], (6, 2, 16), q), 0
    together = branches.attend([0, 1, 2], q, own, 0)
    for number, (num_rows, _, _) in enumerate(BRANCHED[:3]):
        rows = slice(first, first + num_rows)
        alone = (own[0][rows].contiguous(), own[1][rows].contiguous())
        assert torch.equal(branches.attend([number], q[rows].contiguous(), alone, 0), together[rows])
        first += num_rows


def test_a_tail_that_every_row_sees_attends_as_a_past(device: torch.device) -> None:
    """Keys in the tail that every row sees, and the same keys in the past."""
    q, own, _ = draw(6, (9, 3, 16), torch.float32, device)
    branches = Branches(((6, 0, 90),), (9, 3, 16), q)
    branches.seen[0].fill_(True)
    behind = branches.attend([0], q, own, 1)
    branches.stacks[0], branches.seen[0] = branches.stacks[0][::-1], branches.seen[0][:, 90:]
    assert torch.equal(branches.attend([0], q, own, 1), behind)


def test_bits_of_seen_keys_are_packed_into_words() -> None:
    seen = torch.rand(3, 130) > 0.5
    words = pack_bits(seen)
    assert words.shape == (3, 3) and pack_bits(seen[:, :0]).shape == (3, 0)
    for row, key in ((0, 0), (1, 63), (2, 64), (0, 127), (1, 129)):
        assert (int(words[row, key // 64]) >> (key % 64)) & 1 == int(seen[row, key])
    assert int(words[0, 2]) >> 2 == 0
