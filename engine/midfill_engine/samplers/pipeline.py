"""Works on several blocks of the canvas at once, each begun when the one before is under way (D2F, arXiv 2508.09192).

A block joins when the one before has a tenth settled. Until that has 95 % settled it settles only what is sure, then at
least its surest position. For models fine-tuned to it; the weights stay LLaDA's or Dream's.
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
