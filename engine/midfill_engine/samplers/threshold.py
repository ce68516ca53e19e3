"""Samplers that settle every position that is confident enough."""

import math
from dataclasses import replace
from typing import Final

import numpy as np

from midfill_engine.samplers.base import Decision, Sampler, StepState

PARTS: Final = 4  # of a block of 32 tokens, because Fast-dLLM v2's small_block_size is 8
SURE: Final = 0.9  # the probability above which a prediction replaces a settled token
MAX_ROUNDS: Final = 16  # in which a full block is read again
BLOCK_TOKENS: Final = 32


class Threshold(Sampler):
    """Settles every confident position, at least one a step (Fast-dLLM, arXiv 2505.22618, section 3.3)."""

    def decide(self, state: StepState) -> Decision:
        if not math.isinf(state.threshold):
            sure = state.masked & (state.predictions.confidence >= state.threshold)
            if np.count_nonzero(sure) >= state.quota:
                return Decision(sure)
        return Decision(state.best(state.quota))  # has all that are sure


class SubBlocks(Threshold):
    """Fills a block by quarters, its first token by itself: Fast-dLLM v2 (arXiv 2509.26328, its generate code).

    The first token comes from the autoregressive head once the block before is complete. In a quarter all confident
    positions are settled, at least one; the next quarter begins when this one has no masks left.
    """

    def decide(self, state: StepState) -> Decision:
        if state.sequence_positions is None:
            return super().decide(state)
        is_first = state.masked & (state.sequence_positions % state.block_size == 0)
        if is_first.any():
            return Decision(is_first)
        part = state.sequence_positions // max(1, state.block_size // PARTS)
        in_first_part = state.masked & (part == part[state.masked].min())
        return super().decide(replace(state, masked=in_first_part))


class SeededBlocks(Threshold):
    """Settles a block's first token by itself, then confident ones: Nemotron-Labs-Diffusion's `generate`."""

    def decide(self, state: StepState) -> Decision:
        if state.sequence_positions is None:
            return super().decide(state)
        is_first = state.masked & ((state.sequence_positions - state.sequence_positions[0]) % state.block_size == 0)
        return Decision(is_first) if is_first.any() else super().decide(state)


class Editing(Threshold):
    """Also replaces settled tokens of the block if another token has a probability above 0.9: LLaDA2.1 (arXiv
    2602.08676, joint threshold decoding). A full block is read again until nothing changes, at most 16 times.
    """

    takes_back = True
    revises = True

    def __init__(self) -> None:
        self.block_may_change = False
        self._rounds = 0

    def count_steps(self, num_masked: int, quality: float) -> int:
        return num_masked + (MAX_ROUNDS + 1) * (num_masked // BLOCK_TOKENS + 2)

    def decide(self, state: StepState) -> Decision:
        predictions, is_full = state.predictions, not state.masked.any()
        is_other = (predictions.ids >= 0) & (predictions.ids != state.ids)
        edit = state.takeable & is_other & (predictions.confidence > SURE)
        self._rounds = self._rounds + 1 if is_full else 0
        self.block_may_change = not is_full or (bool(edit.any()) and self._rounds < MAX_ROUNDS)
        return Decision(super().decide(state).settle, edit=edit)
