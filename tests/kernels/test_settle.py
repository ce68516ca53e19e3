from dataclasses import fields

import pytest
import torch
from torch import Tensor

from midfill_engine.samplers.base import Proposals as SamplerProposals
from midfill_engine.samplers.base import StepState
from midfill_engine.samplers.threshold import Threshold
from midfill_engine.samplers.topk import TopK
from midfill_kernels.head import Proposals
from midfill_kernels.settle import Fills, open_fills, settle, settle_reference

LENGTHS = (1, 7, 20, 3)


def draw(device: torch.device, thresholds: list[float], num_steps: list[int]) -> Fills:
    masked = [torch.rand(length) < 0.8 for length in LENGTHS]
    masked[3][:] = False
    for sequence in masked[:3]:
        sequence[0] = True
    ids = [torch.randint(0, 50, (length,)) for length in LENGTHS]
    return open_fills(ids, masked, num_steps, thresholds, [1, 2, 3, 4], device)


def draw_proposals(device: torch.device, num_values: int = 6) -> Proposals:
    """Few different confidences, so that there are ties."""
    rows = sum(LENGTHS)
    confidence = torch.randint(1, num_values + 1, (rows,), device=device) / num_values
    ids = torch.randint(50, 99, (rows,), device=device)
    return Proposals(ids, confidence, confidence, confidence)


def assert_equal(found: Fills, expected: Fills) -> None:
    for entry in fields(Fills):
        value = getattr(found, entry.name)
        if isinstance(value, Tensor):
            assert torch.equal(value.cpu(), getattr(expected, entry.name)), entry.name


@pytest.mark.parametrize("thresholds", [[0.8] * 4, [2.0] * 4, [0.1, 0.5, 2.0, 0.5]])
def test_settle_until_done(thresholds: list[float], device: torch.device) -> None:
    fills = draw(device, thresholds, [1, 3, 5, 4])
    for _ in range(6):
        proposals = draw_proposals(device)
        expected = settle_reference(fills, proposals)
        settle(fills, proposals)
        assert_equal(fills, expected)
    assert not fills.masked.any() and fills.done.all()
    assert (fills.steps.cpu() <= torch.tensor([1, 3, 5, 0])).all()


@pytest.mark.parametrize(("sampler", "threshold"), [(Threshold(), 0.9), (TopK(), 2.0)])
def test_decides_like_the_sampler(sampler: Threshold | TopK, threshold: float, device: torch.device) -> None:
    """At quality 0.8 the threshold sampler's threshold is 0.9."""
    fills = draw(device, [threshold] * 4, [1, 3, 5, 4])
    proposals = draw_proposals(device, num_values=20)
    before = fills.masked.clone()
    settle(fills, proposals)
    for index, length in enumerate(LENGTHS):
        rows = slice(int(fills.first_rows[index]), int(fills.first_rows[index]) + length)
        shown = SamplerProposals(proposals.ids[rows][None], proposals.probability[rows][None])
        state = StepState(shown, before[rows][None], 1, int(fills.num_steps[index]), 0.8)
        decision = sampler.decide(state)
        assert torch.equal(before[rows] & ~fills.masked[rows], decision.settle[0])


def test_a_finished_sequence_stays_as_it_is(device: torch.device) -> None:
    fills = draw(device, [0.5] * 4, [1] * 4)
    settle(fills, draw_proposals(device))
    assert fills.done.all()
    frozen = settle_reference(fills, draw_proposals(device))
    settle(fills, draw_proposals(device))
    assert_equal(fills, frozen)
    assert fills.steps.tolist()[:3] == [1, 1, 1]
