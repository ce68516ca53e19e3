"""How widely and how long a causal search goes on: by what the model's passes cost, at last by a clock. Knows no model.

The cost is measured once, as a process loads the model: so the same request gets the same text however long a fill has
taken. Searches are narrower only where one of usual length would take `LATE` times as long as it may. The clock ends
them after `LAST` times as long. A model as small as the default one has up to `MOST_SMALLER` times as long as it may: a
busy machine must not change its fills.
"""

from dataclasses import dataclass
from typing import Final

from midfill_engine.loading.pace import Pace

LATE: Final = 2.0
SMALL: Final = 400e6  # parameters; the widths were chosen for a model of a third
MOST_SMALLER: Final = 3.0
LAST: Final = 5.0
WORTH: Final = 1.25  # a search is no narrower than one that costs so many times as much as the narrowest
LINE_TOKENS: Final = 12  # of a usual line
BODY_TOKENS: Final = 60  # of a usual body
PASSES_A_TOKEN: Final = 0.5  # of a body: the others are guessed
FOLLOWING_TOKENS: Final = 30
HEAD_TOKENS: Final = 24  # of a given body, by which it is likely or not
NUM_LIKELY: Final = 1  # of usually three given bodies


@dataclass(frozen=True)
class Effort:
    """How widely a hole is searched. `width`: paths at once. `enough`: complete lines that are likelier than all open
    ones end the search. Bodies are drafted from so many likely first lines (`blocks`) and first lines of given texts
    (`begun`), texts of several lines from so many first tokens (`through`); so many are `drawn`, if texts are. So many
    given texts are `judged` by their likelihood, bodies at first by that of their first tokens, and so many candidates
    `compared` by that of the text after them.
    """

    width: int = 5
    enough: int = 4
    blocks: int = 2
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
        num_whole = self.blocks + self.begun + NUM_LIKELY
        num_passes = BODY_TOKENS * PASSES_A_TOKEN + 2
        rows = (BODY_TOKENS + FOLLOWING_TOKENS) * num_whole + HEAD_TOKENS * self.judged
        return line_s + pace.cost_s(num_passes, rows)


WHOLE: Final = Effort()
EFFORTS: Final = (
    WHOLE,
    Effort(width=4, enough=3, blocks=2, begun=1, through=2, drawn=3, judged=5, compared=4),
    Effort(width=3, enough=2, blocks=2, begun=1, through=1, drawn=2, judged=3, compared=3),
    Effort(width=2, enough=1, blocks=1, begun=1, through=1, drawn=2, judged=2, compared=2),
    Effort(width=1, enough=1, blocks=1, begun=0, through=1, drawn=1, judged=1, compared=2),
)


def allow_small(most_s: float, num_parameters: float) -> float:
    """The seconds that a model of this size may take."""
    return most_s * min(max(1.0, SMALL / num_parameters), MOST_SMALLER)


def choose_effort(pace: Pace, most_s: float, *, is_body: bool) -> Effort:
    """The widest search that is not much too late by its estimate, or hardly later than the narrowest: where passes
    cost much more than rows, as in large models, a narrow search of a line saves nothing.
    """
    narrowest_s = EFFORTS[-1].estimate_s(pace, is_body=is_body)
    limit_s = max(LATE * most_s, WORTH * narrowest_s)
    return next(effort for effort in EFFORTS if effort.estimate_s(pace, is_body=is_body) <= limit_s)
