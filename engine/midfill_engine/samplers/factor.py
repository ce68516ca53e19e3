"""Settles the n surest positions while (n + 1) (1 - c_n) is below a factor (Fast-dLLM, arXiv 2505.22618, section 3.3).

How many tokens may be settled together depends on how sure the least sure of them is. The dial: the factor is
4 (1 - q), so 0 at quality 1, which settles one position a step. As in the authors' code, the last position of all goes
with the others where it alone is too unsure.
"""

import torch

from midfill_engine.samplers.base import Decision, Sampler, StepState


class Factor(Sampler):
    def decide(self, state: StepState) -> Decision:
        factor = 4 * (1 - state.quality)
        number = state.rank() + 1  # [B, T]
        is_within = ((number + 1) * (1 - state.proposals.confidence) < factor) | (number == 1)
        first_out = torch.where(state.masked & ~is_within, number, state.masked.shape[1] + 1).amin(dim=1)
        is_last = first_out == state.masked.sum(dim=1)
        return Decision(state.best(torch.maximum(first_out - 1 + is_last.long(), state.quota)))
