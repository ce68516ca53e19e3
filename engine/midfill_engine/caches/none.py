"""No cache: every step computes context and holes. The reference for all other caches."""

from typing import Final

import torch
from torch import Tensor

from midfill_engine.caches.base import StepView
from midfill_engine.models.family import Attention

ALL: Final[frozenset[Attention]] = frozenset({"context_frozen", "bidirectional", "block_causal", "causal", "canvas"})


class Uncached:
    attentions = ALL
    keeps_rows = False

    def compute(self, view: StepView) -> Tensor:
        return torch.ones_like(view.masked)
