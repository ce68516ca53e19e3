"""Settles equally many positions every step, the most confident first: low-confidence remasking.

LLaDA (arXiv 2502.09992, section 2.4). Without a number of steps, quality q takes q steps a masked position: all at once
near 0, one a step at 1.
"""

from torch import Tensor

from midfill_engine.samplers.base import Decision, Sampler, StepState


class TopK(Sampler):
    def count_steps(self, num_masked: int, quality: float) -> int:
        return max(1, round(num_masked * quality))

    def score(self, state: StepState) -> Tensor:
        """[B, T]: what the best positions have most of."""
        return state.proposals.confidence

    def decide(self, state: StepState) -> Decision:
        return Decision(state.best(state.quota, self.score(state)))
