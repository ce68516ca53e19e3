"""Settles the same number of positions every step, lowest entropy first (Dream, arXiv 2508.15487: `alg="entropy"`),
with entropy taken after temperature and top-p.
"""

from torch import Tensor

from midfill_engine.samplers.base import StepState
from midfill_engine.samplers.topk import TopK


class Entropy(TopK):
    needs_entropy = True
    is_scaled = True

    def score(self, state: StepState) -> Tensor:
        assert state.proposals.entropy is not None
        return -state.proposals.entropy
