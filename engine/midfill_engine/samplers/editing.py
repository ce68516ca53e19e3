"""Settles confident positions, and replaces settled tokens of the block if another is more likely: LLaDA2.1 (arXiv
2602.08676, joint threshold decoding).

A token is replaced by one with probability above 0.9. A full block is read again until nothing changes, at most 16
times.
"""

from typing import Final

from midfill_engine.samplers.base import Decision, StepState
from midfill_engine.samplers.threshold import Threshold

SURE: Final = 0.9
MAX_ROUNDS: Final = 16
BLOCK_TOKENS: Final = 32


class Editing(Threshold):
    takes_back = True
    revises = True

    def __init__(self) -> None:
        self.goes_on = False
        self._rounds = 0

    def count_steps(self, num_masked: int, quality: float) -> int:
        return num_masked + (MAX_ROUNDS + 1) * (num_masked // BLOCK_TOKENS + 2)

    def decide(self, state: StepState) -> Decision:
        proposals, is_full = state.proposals, not bool(state.masked.any())
        other = (proposals.ids >= 0) & (proposals.ids != state.ids)
        edit = state.takeable & other & (proposals.confidence > SURE)
        self._rounds = self._rounds + 1 if is_full else 0
        self.goes_on = not is_full or (bool(edit.any()) and self._rounds < MAX_ROUNDS)
        return Decision(super().decide(state).settle, edit=edit)
