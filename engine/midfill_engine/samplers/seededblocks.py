"""Settles the first token of a block by itself, as the causal prediction from the text before, then confident
positions: Nemotron-Labs-Diffusion's `generate`.
"""

from midfill_engine.samplers.base import Decision, StepState
from midfill_engine.samplers.threshold import Threshold


class SeededBlocks(Threshold):
    def decide(self, state: StepState) -> Decision:
        if state.places is None:
            return super().decide(state)
        opens = state.masked & ((state.places - state.places[0]) % state.block_size == 0)
        return Decision(opens) if bool(opens.any()) else super().decide(state)
