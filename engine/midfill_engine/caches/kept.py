"""Keeps the context between requests too: a step costs the holes, the first one what of the text is new besides.

Approximate: a bidirectional model's context would be computed anew whenever a hole changes.
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
        return view.is_hole | ~view.kept
