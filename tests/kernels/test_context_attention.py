import pytest
import torch
from tests.kernels.compare import assert_close
from torch import Tensor

from midfill_kernels.context_attention import (
    context_attention,
    context_attention_reference,
    library_attention,
    library_serves,
    schedule_contexts,
)

LENGTHS = (1, 37, 16, 21)


def ranks_of(kind: str) -> Tensor | None:
    if kind == "full":
        return None
    positions = torch.cat([torch.arange(length) for length in LENGTHS])
    if kind == "causal":
        return positions
    if kind == "block_causal":
        return positions // 8
    return (torch.rand(len(positions)) < 0.3).long()  # frozen context: holes anywhere


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("heads", [(4, 2, 16), (2, 2, 32)])
@pytest.mark.parametrize("kind", ["full", "causal", "block_causal", "frozen_context"])
def test_context_attention(kind: str, heads: tuple[int, int, int], dtype: torch.dtype, device: torch.device) -> None:
    query, key_value, width = heads
    ranks = ranks_of(kind)
    q = torch.randn(sum(LENGTHS), query, width, device=device).to(dtype)
    k, v = torch.randn(2, sum(LENGTHS), key_value, width, device=device).to(dtype)
    schedule = schedule_contexts(LENGTHS, ranks, device, row_block=16)
    found = context_attention(q, k, v, schedule, key_block=16)
    on_device = None if ranks is None else ranks.to(device)
    assert_close(found, context_attention_reference(q, k, v, LENGTHS, on_device), dtype)


def test_rows_visit_no_keys_they_cannot_see() -> None:
    schedule = schedule_contexts([64], torch.arange(64), torch.device("cpu"), row_block=16)
    assert sorted(schedule.items[:, 3].tolist()) == [16, 32, 48, 64]


def test_packing_changes_no_bit(device: torch.device) -> None:
    q, k, v = torch.randn(3, sum(LENGTHS), 2, 16, device=device)
    ranks = ranks_of("frozen_context")
    assert ranks is not None
    together = context_attention(q, k, v, schedule_contexts(LENGTHS, ranks, device, row_block=16), key_block=16)
    first = 0
    for length in LENGTHS:
        rows = slice(first, first + length)
        schedule = schedule_contexts([length], ranks[rows], device, row_block=16)
        alone = context_attention(
            q[rows].contiguous(), k[rows].contiguous(), v[rows].contiguous(), schedule, key_block=16
        )
        assert torch.equal(together[rows], alone)
        first += length


def test_the_library_computes_the_same_and_packing_changes_no_bit(device: torch.device) -> None:
    q = torch.randn(sum(LENGTHS), 4, 16, device=device)
    k, v = torch.randn(2, sum(LENGTHS), 2, 16, device=device)
    found = library_attention(q, k, v, LENGTHS)
    assert_close(found, context_attention_reference(q, k, v, LENGTHS, None), torch.float32)
    last = slice(sum(LENGTHS[:-1]), None)
    assert torch.equal(found[last], library_attention(q[last], k[last], v[last], LENGTHS[-1:]))
    assert not library_serves(q, None), "fp32, or no GPU"
