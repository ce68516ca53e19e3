"""Keeps the least sure positions masked, settled ones among them (path planning, P2, arXiv 2502.03540; Open-dCoder).

After step i of n a share 1 - i/n of all positions is masked, whichever they are.
"""

import torch

from midfill_engine.samplers.base import Decision, Sampler, StepState


class P2(Sampler):
    takes_back = True

    def decide(self, state: StepState) -> Decision:
        assert state.settled is not None
        movable = state.masked | state.takeable
        sureness = torch.where(state.masked, state.proposals.confidence, state.settled)
        order = sureness.masked_fill(~movable, torch.inf).argsort(dim=1, stable=True).argsort(dim=1)
        share = 1 - state.step / state.num_steps
        count = (movable.sum(dim=1, keepdim=True) * share).long()
        stays = movable & (order < count)
        settle = state.masked & ~stays | state.best(torch.ones_like(state.quota))
        return Decision(settle, state.takeable & stays)
