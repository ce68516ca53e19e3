"""Dream's schedule: time runs evenly from 1 to 0.001 and a step settles what its share of time has (arXiv 2508.15487).

The authors round down and so may settle nothing; here a step settles one at least.
"""

from typing import Final

from midfill_engine.samplers.base import Decision, StepState
from midfill_engine.samplers.entropy import Entropy

END: Final = 1e-3


class Dream(Entropy):
    def decide(self, state: StepState) -> Decision:
        a_step = (1 - END) / state.num_steps
        now = 1 - a_step * (state.step - 1)
        total = state.masked.sum(dim=1) if state.remaining is None else state.remaining
        return Decision(state.best((total * (a_step / now)).long().clamp(min=1), self.score(state)))
