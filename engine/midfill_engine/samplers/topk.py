"""Settles the same number of positions every step, the most confident first (LLaDA, arXiv 2502.09992, section 2.4).
Without a number of steps, quality q takes q steps per masked position.
"""

from torch import Tensor

from midfill_engine.samplers.base import Decision, Sampler, StepState


class TopK(Sampler):
    def count_steps(self, num_masked: int, quality: float) -> int:
        return max(1, round(num_masked * quality))

    def score(self, state: StepState) -> Tensor:
        """[T]: the score by which positions are ranked."""
        return state.proposals.confidence

    def decide(self, state: StepState) -> Decision:
        return Decision(state.best(state.quota, self.score(state)))
