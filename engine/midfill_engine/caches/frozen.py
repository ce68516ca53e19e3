"""Encodes the context once for all steps, rows and requests. Exact if the context attends only to itself."""

from torch import Tensor

from midfill_engine.caches.base import StepView
from midfill_engine.models.family import Attention


class FrozenCache:
    attentions: frozenset[Attention] = frozenset({"context_frozen"})
    keeps_rows = False  # the context's keys belong to the fill, not to a row

    def compute(self, view: StepView) -> Tensor:
        return view.is_hole
