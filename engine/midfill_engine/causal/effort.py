"""How widely and how long a causal search goes on: by what the model's passes cost, at last by a clock. Knows no model.

A request names the seconds of a fill; a small model is allowed up to `MAX_EXTENSION` times as many, so that a busy
machine does not change its fills. The widest effort is chosen whose estimate is within `MAX_LATENESS` times the allowed
seconds. The estimate takes a pace that is measured once in a process, so other fills do not change the choice. A clock
ends a search only `CLOCK_FACTOR` times the allowed seconds after its context is read.
"""

from dataclasses import dataclass
from typing import Final

from midfill_engine.loading.pace import Pace

MAX_LATENESS: Final = 2.0
SMALL: Final = 400e6  # parameters; the widths were chosen for a model with a third of them
MAX_EXTENSION: Final = 3.0
CLOCK_FACTOR: Final = 5.0
WORTHWHILE: Final = 1.25  # a search may always be so wide that it costs so many times as much as the narrowest one
LINE_TOKENS: Final = 12  # of a usual line
BODY_TOKENS: Final = 60  # of a usual body
PASSES_A_TOKEN: Final = 0.5  # of a body, because half of its tokens are guessed
FOLLOWING_TOKENS: Final = 30
HEAD_TOKENS: Final = 24  # of a given body: by their likelihood the whole body is read or dropped
NUM_LIKELY: Final = 1  # bodies that are read whole, of usually three given ones


@dataclass(frozen=True)
class Effort:
    """How widely a hole is searched. A request for more alternatives raises some of these numbers.

    `width`: paths at once. `enough`: the complete lines of a hole of one whole line that end the search once they are
    likelier than all open ones. Bodies are drafted from `first_lines` likely first lines and from the first lines of
    `given_first_lines` given texts; holes that are neither a body nor a line from `first_tokens` first tokens. If texts
    are sampled, `samples` are. `given_judged` given texts are judged by their likelihood, bodies at first by that of
    their first tokens. `compared` candidates are compared by the likelihood of the text after them.
    """

    width: int = 5
    enough: int = 4
    first_lines: int = 2
    given_first_lines: int = 1
    first_tokens: int = 3
    samples: int = 4
    given_judged: int = 8
    compared: int = 5

    def estimate_s(self, pace: Pace, *, is_body: bool) -> float:
        """Seconds for a text of usual length, once its context is read."""
        line_s = pace.cost_s(LINE_TOKENS, LINE_TOKENS * self.width)
        if not is_body:
            judged_rows = LINE_TOKENS * self.given_judged
            compared_rows = (LINE_TOKENS + FOLLOWING_TOKENS) * self.compared
            return line_s + pace.cost_s(2, judged_rows + compared_rows)  # a pass judges, another compares
        num_whole = self.first_lines + self.given_first_lines + NUM_LIKELY
        num_passes = BODY_TOKENS * PASSES_A_TOKEN + 2  # these two judge given bodies and compare
        rows = (BODY_TOKENS + FOLLOWING_TOKENS) * num_whole + HEAD_TOKENS * self.given_judged
        return line_s + pace.cost_s(num_passes, rows)


WHOLE: Final = Effort()
EFFORTS: Final = (
    WHOLE,
    Effort(
        width=4, enough=3, first_lines=2, given_first_lines=1, first_tokens=2, samples=3, given_judged=5, compared=4
    ),
    Effort(
        width=3, enough=2, first_lines=2, given_first_lines=1, first_tokens=1, samples=2, given_judged=3, compared=3
    ),
    Effort(
        width=2, enough=1, first_lines=1, given_first_lines=1, first_tokens=1, samples=2, given_judged=2, compared=2
    ),
    Effort(
        width=1, enough=1, first_lines=1, given_first_lines=0, first_tokens=1, samples=1, given_judged=1, compared=2
    ),
)


def allow_small(requested_s: float, num_parameters: float) -> float:
    """The seconds that a model of this size may take: the requested ones, or more of them for a small model."""
    return requested_s * min(max(1.0, SMALL / num_parameters), MAX_EXTENSION)


def choose_effort(pace: Pace, allowed_s: float, *, is_body: bool) -> Effort:
    """The widest search that by its estimate is not much too late, or takes hardly longer than the narrowest one. Where
    passes cost much more than rows, as in large models, a narrow search of a line would save nothing.
    """
    narrowest_s = EFFORTS[-1].estimate_s(pace, is_body=is_body)
    limit_s = max(MAX_LATENESS * allowed_s, WORTHWHILE * narrowest_s)  # so the narrowest one always fits
    return next(effort for effort in EFFORTS if effort.estimate_s(pace, is_body=is_body) <= limit_s)
