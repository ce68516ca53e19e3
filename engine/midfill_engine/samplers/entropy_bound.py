"""Settles positions by ascending entropy while the sum of their entropies, without the largest, stays within a bound of
0.75 (1 - q) nats, which limits the error of settling them as if independent (EB-Sampler, arXiv 2505.24857, section 4).
"""

import numpy as np

from midfill_engine.samplers.base import Decision, Sampler, StepState


class EntropyBound(Sampler):
    needs_entropy = True

    def decide(self, state: StepState) -> Decision:
        assert state.predictions.entropy is not None
        bound = 0.75 * (1 - state.quality)
        ascending = np.sort(state.predictions.entropy[state.masked])
        sums_before = ascending.cumsum(dtype=np.float64).astype(np.float32) - ascending  # without the last, the largest
        count = int((sums_before <= bound).sum())
        return Decision(state.best(max(count, state.quota), -state.predictions.entropy))
