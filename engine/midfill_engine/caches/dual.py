"""Keeps prefix and suffix between refreshes; a step computes the holes (Fast-dLLM's DualCache, arXiv 2505.22618)."""

from torch import Tensor

from midfill_engine.caches.base import StepView
from midfill_engine.caches.prefix import PrefixCache


class DualCache(PrefixCache):
    def inner(self, view: StepView) -> Tensor:
        return view.is_hole
