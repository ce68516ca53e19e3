"""Settles positions of lowest entropy while the sum of their entropies, without the largest, stays within a bound of
0.75 (1 - q) nats, which limits the error of settling them as if independent (EB-Sampler, arXiv 2505.24857, section 4).
"""

import torch

from midfill_engine.samplers.base import Decision, Sampler, StepState


class EntropyBound(Sampler):
    needs_entropy = True

    def decide(self, state: StepState) -> Decision:
        assert state.proposals.entropy is not None
        bound = 0.75 * (1 - state.quality)
        entropy = state.proposals.entropy.masked_fill(~state.masked, torch.inf)
        ordered = entropy.sort(stable=True).values  # ascending, so the largest of a prefix is its last
        before = ordered.cumsum(dim=0) - ordered
        count = int(((before <= bound) & ordered.isfinite()).sum())
        return Decision(state.best(max(count, state.quota), -entropy))
