"""How widely and how long a causal search goes on: by what the model's passes cost, at last by a clock. Knows no model.

The cost is measured once in a process, so the same request gets the same text however long other fills have taken. A
search is narrower only if one of usual length would take more than `LATE` times the allowed seconds. The clock ends it
after `LAST` times the allowed seconds. A model as small as the default one gets up to `MOST_SMALLER` times as many of
them, so that a busy machine does not change its fills.
"""

from dataclasses import dataclass
from typing import Final

from midfill_engine.loading.pace import Pace

LATE: Final = 2.0
SMALL: Final = 400e6  # parameters; the widths were chosen for a model with a third of them
MOST_SMALLER: Final = 3.0
LAST: Final = 5.0
WORTH: Final = 1.25  # a search may always be so wide that it costs so many times as much as the narrowest one
LINE_TOKENS: Final = 12  # of a usual line
BODY_TOKENS: Final = 60  # of a usual body
PASSES_A_TOKEN: Final = 0.5  # of a body, because half of its tokens are guessed
FOLLOWING_TOKENS: Final = 30
HEAD_TOKENS: Final = 24  # of a given body: by their likelihood the whole body is read or dropped
NUM_LIKELY: Final = 1  # bodies that are read whole, of usually three given ones


@dataclass(frozen=True)
class Effort:
    """How widely a hole is searched; each field is a number.

    `width`: paths at once. `enough`: the complete lines that end the search once they are likelier than all open ones.
    Bodies are drafted from `first_lines` likely first lines and from the first lines of `begun` given texts, texts of
    several lines from `through` first tokens. If texts are sampled, `drawn` are. `judged` given texts are judged by
    their likelihood, bodies at first by that of their first tokens. `compared` candidates are compared by the
    likelihood of the text after them.
    """

    width: int = 5
    enough: int = 4
    first_lines: int = 2
    begun: int = 1
    through: int = 3
    drawn: int = 4
    judged: int = 8
    compared: int = 5

    def estimate_s(self, pace: Pace, *, is_body: bool) -> float:
        """Seconds for a text of usual length, once its context is read."""
        line_s = pace.cost_s(LINE_TOKENS, LINE_TOKENS * self.width)
        if not is_body:
            judged_rows = LINE_TOKENS * self.judged
            compared_rows = (LINE_TOKENS + FOLLOWING_TOKENS) * self.compared
            return line_s + pace.cost_s(2, judged_rows + compared_rows)
        num_whole = self.first_lines + self.begun + NUM_LIKELY
        num_passes = BODY_TOKENS * PASSES_A_TOKEN + 2
        rows = (BODY_TOKENS + FOLLOWING_TOKENS) * num_whole + HEAD_TOKENS * self.judged
        return line_s + pace.cost_s(num_passes, rows)


WHOLE: Final = Effort()
EFFORTS: Final = (
    WHOLE,
    Effort(width=4, enough=3, first_lines=2, begun=1, through=2, drawn=3, judged=5, compared=4),
    Effort(width=3, enough=2, first_lines=2, begun=1, through=1, drawn=2, judged=3, compared=3),
    Effort(width=2, enough=1, first_lines=1, begun=1, through=1, drawn=2, judged=2, compared=2),
    Effort(width=1, enough=1, first_lines=1, begun=0, through=1, drawn=1, judged=1, compared=2),
)


def allow_small(requested_s: float, num_parameters: float) -> float:
    """The seconds that a model of this size may take: the requested ones, or more of them for a small model."""
    return requested_s * min(max(1.0, SMALL / num_parameters), MOST_SMALLER)


def choose_effort(pace: Pace, allowed_s: float, *, is_body: bool) -> Effort:
    """The widest search that by its estimate is not much too late, or takes hardly longer than the narrowest one. Where
    passes cost much more than rows, as in large models, a narrow search of a line would save nothing.
    """
    narrowest_s = EFFORTS[-1].estimate_s(pace, is_body=is_body)
    limit_s = max(LATE * allowed_s, WORTH * narrowest_s)
    return next(effort for effort in EFFORTS if effort.estimate_s(pace, is_body=is_body) <= limit_s)
