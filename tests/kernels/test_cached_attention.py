import pytest
import torch
from tests.kernels.compare import assert_close
from torch import Tensor

from midfill_kernels.cached_attention import (
    CachedSequence,
    cached_attention,
    cached_attention_reference,
    schedule_cached,
)

RAGGED = (CachedSequence(5, 3, 37), CachedSequence(1, 60, 16), CachedSequence(9, 41, 0), CachedSequence(2, 0, 3))


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
    for sequence in RAGGED:
        rows = slice(first, first + sequence.num_rows)
        alone = cached_attention(
            q[rows].contiguous(),
            (own[0][rows].contiguous(), own[1][rows].contiguous()),
            cache,
            schedule_cached([sequence], (4, 2), device, split_keys=16, pair_block=16),
            pair_block=16,
            key_block=16,
        )
        assert torch.equal(together[rows], alone)
        first += sequence.num_rows


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
