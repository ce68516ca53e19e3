"""Settles what is sure, and the surest position of every run of masks, so that runs fall apart (dInfer's hierarchy).

Tokens far from each other depend less on each other, so more can be settled in a step (dInfer, arXiv 2510.08666).
"""

from typing import Final

import torch

from midfill_engine.samplers.base import Decision, StepState
from midfill_engine.samplers.threshold import Threshold

SURE_ENOUGH: Final = 0.4


class Hierarchy(Threshold):
    def decide(self, state: StepState) -> Decision:
        settle = super().decide(state).settle
        starts = state.masked.clone()
        starts[:, 1:] &= ~state.masked[:, :-1]
        run = starts.cumsum(dim=1) * state.masked  # [B, T]: 0 outside, else the run's number
        confidence = state.proposals.confidence.masked_fill(~state.masked, -1.0)
        best = torch.full((len(run), int(run.max()) + 1), -1.0).scatter_reduce(1, run, confidence, "amax")
        is_best = state.masked & (confidence == best.gather(1, run)) & (confidence > SURE_ENOUGH)
        return Decision(settle | is_best)
