"""Keeps the text before the first hole between refreshes (Fast-dLLM's prefix cache, arXiv 2505.22618). Approximate: in
a bidirectional model the prefix's keys change as holes are filled.
"""

from typing import Final

import torch
from torch import Tensor

from midfill_engine.caches.base import StepView
from midfill_engine.models.family import Attention

BIDIRECTIONAL: Final[frozenset[Attention]] = frozenset({"bidirectional"})
REFRESH_STEPS: Final = 8  # dKV-Cache's interval for LLaDA; Fast-dLLM refreshes once per block of 32 tokens


class PrefixCache:
    attentions = BIDIRECTIONAL
    keeps_rows = True

    def compute(self, view: StepView) -> Tensor:
        return self.inner(view) | ~view.kept if view.age < REFRESH_STEPS else torch.ones_like(view.masked)

    def inner(self, view: StepView) -> Tensor:
        """The positions that a step between two refreshes computes."""
        return ~view.is_before_holes
