"""Decodes several blocks at once (D2F, arXiv 2508.09192), for models fine-tuned this way.

A block joins when a tenth of the one before is settled. Until 95 % of that is settled it settles only confident
positions, then at least its best one.
"""

from typing import Final

import torch
from torch import Tensor

from midfill_engine.samplers.base import Decision, Sampler, StepState

BLOCK_TOKENS: Final = 16
JOIN_SHARE: Final = 0.1
ACT_SHARE: Final = 0.95


class Pipeline(Sampler):
    def reach(self, masked: Tensor) -> int:
        width, end, share_before = masked.shape[1], 0, 1.0
        while end < width and share_before >= JOIN_SHARE:
            here = masked[:, end : end + BLOCK_TOKENS]
            end, share_before = end + here.shape[1], 1 - float(here.float().mean())
        return end

    def decide(self, state: StepState) -> Decision:
        settle = torch.zeros_like(state.masked)
        share_before = 1.0
        is_sure = state.proposals.confidence >= state.threshold
        for start in range(0, state.masked.shape[1], BLOCK_TOKENS):
            if share_before < JOIN_SHARE:
                break
            here = torch.zeros_like(state.masked)
            here[:, start : start + BLOCK_TOKENS] = state.masked[:, start : start + BLOCK_TOKENS]
            settle |= here & is_sure
            if share_before >= ACT_SHARE and bool(here.any()):
                confidence = state.proposals.confidence.masked_fill(~here, -1.0)
                settle |= here & torch.zeros_like(here).scatter(1, confidence.argmax(dim=1, keepdim=True), True)
            num_here = min(BLOCK_TOKENS, state.masked.shape[1] - start)
            share_before = 1 - float(here.sum()) / num_here
        return Decision(settle if bool(settle.any()) else state.best(state.quota.clamp(max=1)))
