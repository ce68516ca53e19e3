"""Samplers that settle in each step a number of positions that a schedule sets, however confident the model is."""

from typing import Final

import torch

from midfill_engine.models.sequence import Array
from midfill_engine.samplers.base import Decision, Sampler, StepState

LAST_TIME: Final = 1e-3  # Dream's


class TopK(Sampler):
    """Settles the same number of positions every step, the most confident first (LLaDA, arXiv 2502.09992, section 2.4).
    If the request names no number of steps, quality q takes q steps per masked position.
    """

    def count_steps(self, num_masked: int, quality: float) -> int:
        return max(1, round(num_masked * quality))

    def score(self, state: StepState) -> Array:
        """[T]: the score by which positions are ranked."""
        return state.predictions.confidence

    def decide(self, state: StepState) -> Decision:
        return Decision(state.best(state.quota, self.score(state)))


class Entropy(TopK):
    """TopK by lowest entropy, after temperature and top-p (Dream, arXiv 2508.15487: `alg="entropy"`)."""

    needs_entropy = True
    is_scaled = True

    def score(self, state: StepState) -> Array:
        assert state.predictions.entropy is not None
        return -state.predictions.entropy


class Dream(Entropy):
    """Dream's schedule (arXiv 2508.15487): time falls evenly from 1 to 0.001, and a step from time t to s settles the
    share 1 - s/t of the masked positions, rounded down as by the authors. Steps that so settle nothing are skipped,
    because the model would return the same again.
    """

    def __init__(self) -> None:
        self._clock = 0

    def decide(self, state: StepState) -> Decision:
        times = torch.linspace(1, LAST_TIME, state.num_steps + 1)  # fp32 like theirs: rounding matters at whole numbers
        count = state.remaining if self._clock >= state.num_steps else 0  # the step limit was lowered
        while not count and self._clock < state.num_steps:
            now, next_time = times[self._clock : self._clock + 2]
            self._clock += 1
            is_last = self._clock >= state.num_steps
            count = state.remaining if is_last else int(torch.tensor(float(state.remaining)) * (1 - next_time / now))
        return Decision(state.best(count, self.score(state)))
