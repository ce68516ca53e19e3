"""Keeps prefix and suffix between refreshes: a step computes the holes (Fast-dLLM's DualCache, arXiv
2505.22618, 3.2).
"""

from torch import Tensor

from midfill_engine.caches.base import View
from midfill_engine.caches.prefix import Prefix


class Dual(Prefix):
    def inner(self, view: View) -> Tensor:
        return view.is_hole
