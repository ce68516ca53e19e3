"""Samplers that settle a number of positions that the step decides, whatever the confidence."""

from typing import Final

import torch

from midfill_engine.models.sequence import Array
from midfill_engine.samplers.base import Decision, Sampler, StepState

LAST_TIME: Final = 1e-3


class TopK(Sampler):
    """Settles the same number of positions every step, the most confident first (LLaDA, arXiv 2502.09992, section 2.4).
    Without a number of steps, quality q takes q steps per masked position.
    """

    def count_steps(self, num_masked: int, quality: float) -> int:
        return max(1, round(num_masked * quality))

    def score(self, state: StepState) -> Array:
        """[T]: the score by which positions are ranked."""
        return state.proposals.confidence

    def decide(self, state: StepState) -> Decision:
        return Decision(state.best(state.quota, self.score(state)))


class Entropy(TopK):
    """TopK by lowest entropy, after temperature and top-p (Dream, arXiv 2508.15487: `alg="entropy"`)."""

    needs_entropy = True
    is_scaled = True

    def score(self, state: StepState) -> Array:
        assert state.proposals.entropy is not None
        return -state.proposals.entropy


class Dream(Entropy):
    """Dream's schedule: time falls evenly from 1 to 0.001, and each step settles its share (arXiv 2508.15487). Steps
    that settle nothing, because the authors round down, are skipped: the model would return the same.
    """

    def __init__(self) -> None:
        self._clock = 0

    def decide(self, state: StepState) -> Decision:
        times = torch.linspace(1, LAST_TIME, state.num_steps + 1)  # fp32 like theirs: rounding matters at whole numbers
        count = state.remaining if self._clock >= state.num_steps else 0  # the step limit was lowered
        while not count and self._clock < state.num_steps:
            now, then = times[self._clock : self._clock + 2]
            self._clock += 1
            is_last = self._clock >= state.num_steps
            count = state.remaining if is_last else int(torch.tensor(float(state.remaining)) * (1 - then / now))
        return Decision(state.best(count, self.score(state)))
