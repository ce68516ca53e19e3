"""Settles much at once and takes back what the rest does not bear out: Wide-In, Narrow-Out (WINO, arXiv 2507.18578).

Every settled token is scored anew as if it were masked, by a shadow row that does not see it. Tokens below 0.9 are
masked again, fewer than were just settled, so that every step gains. At quality 0.8 the threshold is the authors' 0.6.
"""

from typing import Final

import torch

from midfill_engine.samplers.base import Decision, Sampler, StepState

BORNE_OUT: Final = 0.9


class Wino(Sampler):
    needs_support = True
    takes_back = True

    def decide(self, state: StepState) -> Decision:
        threshold = 0.2 + 0.5 * state.quality
        sure = (state.masked & (state.proposals.confidence > threshold)).sum(dim=1)
        most = (0.7 * state.masked.sum(dim=1)).long().clamp(min=5, max=20)
        settle = state.best(torch.maximum(torch.minimum(sure, most), state.quota))
        if state.proposals.support is None:
            return Decision(settle)
        doubtful = state.takeable & (state.proposals.support < BORNE_OUT) & (state.proposals.support > 0)
        order = state.proposals.support.masked_fill(~doubtful, torch.inf).argsort(dim=1, stable=True).argsort(dim=1)
        fewer = settle.sum(dim=1, keepdim=True) - 1
        return Decision(settle, doubtful & (order < fewer))
