"""Fills a block a quarter at a time, its first token by itself: Fast-dLLM v2 (arXiv 2509.26328, its generate code).

The first token comes from the autoregressive head once the block before is complete. In a quarter all confident
positions are settled, at least one; the next quarter starts when it has no masks left.
"""

from dataclasses import replace
from typing import Final

from midfill_engine.samplers.base import Decision, StepState
from midfill_engine.samplers.threshold import Threshold

PARTS: Final = 4  # of 32 tokens: the authors' small_block_size is 8


class SubBlocks(Threshold):
    def decide(self, state: StepState) -> Decision:
        if state.places is None:
            return super().decide(state)
        opens = state.masked & (state.places % state.block_size == 0)
        if bool(opens.any()):
            return Decision(opens)
        part = state.places // max(1, state.block_size // PARTS)
        here = state.masked & (part == part[state.masked].min())
        return super().decide(replace(state, masked=here))
