"""Keeps the context between requests too, and of the holes what is settled: a step costs what is masked or was just
settled, the first one the holes and what of the text is new.

Approximate: a bidirectional model's keys all change whenever a hole does.
"""

from torch import Tensor

from midfill_engine.caches.base import View
from midfill_engine.caches.prefix import BIDIRECTIONAL
from midfill_engine.models.family import Attention


class Kept:
    attentions = BIDIRECTIONAL
    exact_for: frozenset[Attention] = frozenset()
    keeps_rows = True

    def compute(self, view: View) -> Tensor:
        return view.masked | view.changed | ~view.kept
