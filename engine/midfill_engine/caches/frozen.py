"""Encodes the context once and keeps it for all steps, rows and requests. Exact where context sees context only."""

from torch import Tensor

from midfill_engine.caches.base import View
from midfill_engine.models.family import Attention


class Frozen:
    attentions: frozenset[Attention] = frozenset({"context_frozen"})
    keeps_rows = False  # the context's keys are the fill's, not the row's

    def compute(self, view: View) -> Tensor:
        return view.is_hole
