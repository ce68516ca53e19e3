"""Settles much at once and takes back what the rest does not bear out: Wide-In, Narrow-Out (WINO, arXiv 2507.18578).

Every settled token is scored anew as if it were masked, by a shadow row that does not see it. Where a step settles two
tokens or more, those below 0.9 are masked again, fewer than the step before settled. At quality 0.8 the threshold is
the authors' 0.6.
"""

from typing import Final

import torch

from midfill_engine.samplers.base import Decision, Sampler, StepState

BORNE_OUT: Final = 0.9
FIRST: Final = 30  # what the step before the first is said to have settled


class Wino(Sampler):
    needs_support = True
    takes_back = True

    def __init__(self) -> None:
        self._before = FIRST

    def count_steps(self, num_masked: int, quality: float) -> int:
        return 2 * num_masked

    def decide(self, state: StepState) -> Decision:
        threshold = 0.2 + 0.5 * state.quality
        sure = (state.masked & (state.proposals.confidence > threshold)).sum(dim=1)
        most = (0.7 * state.masked.sum(dim=1)).long().clamp(min=5, max=20)
        settle = state.best(torch.maximum(torch.minimum(sure, most), state.quota))
        before, self._before = self._before, int(settle.sum())
        if state.proposals.support is None or self._before < 2:
            return Decision(settle)
        doubtful = state.takeable & (state.proposals.support < BORNE_OUT)
        order = state.proposals.support.masked_fill(~doubtful, torch.inf).argsort(dim=1, stable=True).argsort(dim=1)
        return Decision(settle, doubtful & (order < before - 1))
