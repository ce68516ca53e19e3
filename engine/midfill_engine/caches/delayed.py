"""Keeps a token's keys from the step after it was settled: a step costs what is masked or just settled.

dKV-Cache (arXiv 2505.15781), with its refresh of everything at intervals.
"""

from torch import Tensor

from midfill_engine.caches.base import View
from midfill_engine.caches.prefix import Prefix


class Delayed(Prefix):
    def inner(self, view: View) -> Tensor:
        return view.masked | view.changed
