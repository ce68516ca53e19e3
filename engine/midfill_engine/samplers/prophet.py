"""Settles all that is left as soon as the model has made up its mind (Prophet, arXiv 2508.19982).

The gap between the two best scores, on average over masked positions, must reach 7.5 in the first third of the steps,
5 in the second, 2.5 in the last. Until then steps settle equally many, the surest first.
"""

from typing import Final

import torch

from midfill_engine.samplers.base import Decision, StepState
from midfill_engine.samplers.topk import TopK

GAPS: Final = (7.5, 5.0, 2.5)


class Prophet(TopK):
    needs_margin = True

    def decide(self, state: StepState) -> Decision:
        assert state.proposals.margin is not None
        first = state.proposals.confidence.clamp(min=1e-12)
        second = (first - state.proposals.margin).clamp(min=1e-12)
        gaps = ((first / second).log() * state.masked).sum(dim=1) / state.masked.sum(dim=1).clamp(min=1)
        third = min(2, 3 * (state.step - 1) // state.num_steps)
        is_certain = gaps >= GAPS[third]
        return Decision(torch.where(is_certain[:, None], state.masked, super().decide(state).settle))
