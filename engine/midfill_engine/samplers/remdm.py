"""Masks settled tokens again by chance, the least sure ones likeliest (ReMDM, arXiv 2503.00307, sections 4.1 and 4.2).

The share of tokens that go back is the smaller of a cap and what the schedule bears; how it is spread over tokens is
the paper's confidence rule. It trades steps for quality, not for speed.
"""

from typing import Final

import torch

from midfill_engine.samplers.base import Decision, Sampler, StepState

CAP: Final = 0.2


class ReMDM(Sampler):
    takes_back = True

    def count_steps(self, num_masked: int, quality: float) -> int:
        return max(1, round(num_masked * (0.5 + quality)))

    def decide(self, state: StepState) -> Decision:
        assert state.settled is not None
        now, then = (state.step - 1) / state.num_steps, state.step / state.num_steps  # share that is settled
        share = min(CAP, (1 - then) / now) if now > 0 else 0.0
        free = state.takeable
        odds = (-state.settled).masked_fill(~free, -torch.inf).softmax(dim=1).nan_to_num()
        chance = share * odds * free.sum(dim=1, keepdim=True)
        remask = free & (torch.rand(free.shape, generator=state.generator) < chance)
        return Decision(state.best(state.quota), remask)
