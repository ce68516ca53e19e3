"""Keeps the least confident positions masked, settled ones included (path planning, P2, arXiv 2502.03540; Open-dCoder).

After step i of n, a share 1 - i/n of the positions is masked. As in Open-dCoder's code, the confidence of settled
positions is recomputed at every step, while their tokens stand in the canvas.
"""

import numpy as np

from midfill_engine.samplers.base import Decision, Sampler, StepState, rank


class P2(Sampler):
    takes_back = True
    revises = True
    is_scaled = True

    def decide(self, state: StepState) -> Decision:
        movable = state.masked | (state.takeable & (state.predictions.ids >= 0))
        share = 1 - state.step / state.num_steps
        num_masked = int(np.float32(movable.sum()) * np.float32(share))
        becomes_masked = movable & (rank(state.predictions.confidence, movable) < num_masked)
        return Decision(state.masked & ~becomes_masked, state.takeable & becomes_masked)
