"""Settles equally many positions every step, those first whose best token leads most (arXiv 2502.06768, section 4)."""

from torch import Tensor

from midfill_engine.samplers.base import StepState
from midfill_engine.samplers.topk import TopK


class Margin(TopK):
    needs_margin = True

    def score(self, state: StepState) -> Tensor:
        assert state.proposals.margin is not None
        return state.proposals.margin
