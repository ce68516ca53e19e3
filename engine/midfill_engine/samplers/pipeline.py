"""Decodes several blocks at once (D2F, arXiv 2508.09192), for models fine-tuned this way.

A block joins when a tenth of the block before it is settled. It settles only confident positions until 95 % of the
block before it is settled; from then on at least its most confident one in each step.
"""

from dataclasses import replace
from typing import Final

import numpy as np

from midfill_engine.models.sequence import Array
from midfill_engine.samplers.base import Decision, Sampler, StepState

BLOCK_TOKENS: Final = 16
JOIN_SHARE: Final = 0.1
ACT_SHARE: Final = 0.95


class Pipeline(Sampler):
    def reach(self, masked: Array) -> int:
        end, share_before = 0, 1.0
        while end < len(masked) and share_before >= JOIN_SHARE:
            here = masked[end : end + BLOCK_TOKENS]
            end, share_before = end + len(here), 1 - float(here.mean(dtype=np.float32))
        return end

    def decide(self, state: StepState) -> Decision:
        settle, share_before = np.zeros_like(state.masked), 1.0
        is_sure = state.predictions.confidence >= state.threshold
        for start in range(0, self.reach(state.masked), BLOCK_TOKENS):
            block = slice(start, start + BLOCK_TOKENS)
            here = np.zeros_like(state.masked)
            here[block] = state.masked[block]
            settle |= here & is_sure
            if share_before >= ACT_SHARE:
                settle |= replace(state, masked=here).best(1)
            share_before = 1 - float(here[block].mean(dtype=np.float32))
        return Decision(settle if settle.any() else state.best(min(state.quota, 1)))
