"""Settles equally many positions every step, chosen by chance: ancestral sampling (MDLM, arXiv 2406.07524)."""

import torch
from torch import Tensor

from midfill_engine.samplers.base import StepState
from midfill_engine.samplers.topk import TopK


class Random(TopK):
    def score(self, state: StepState) -> Tensor:
        return torch.rand(state.masked.shape, generator=state.generator)
