"""Dream's schedule: time falls evenly from 1 to 0.001, and each step settles its share (arXiv 2508.15487). Steps that
settle nothing, because the authors round down, are skipped: the model would return the same.
"""

from typing import Final

import torch

from midfill_engine.samplers.base import Decision, StepState
from midfill_engine.samplers.entropy import Entropy

END: Final = 1e-3


class Dream(Entropy):
    def __init__(self) -> None:
        self._clock = 0

    def decide(self, state: StepState) -> Decision:
        times = torch.linspace(1, END, state.num_steps + 1)  # in fp32 like theirs: rounding matters at whole numbers
        count = state.remaining if self._clock >= state.num_steps else 0  # the step limit was lowered
        while not count and self._clock < state.num_steps:
            now, then = times[self._clock : self._clock + 2]
            self._clock += 1
            is_last = self._clock >= state.num_steps
            count = state.remaining if is_last else int(torch.tensor(float(state.remaining)) * (1 - then / now))
        return Decision(state.best(count, self.score(state)))
