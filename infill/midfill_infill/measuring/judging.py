"""Fits what decides among the texts that a causal model compares for a line. Knows numbers; no code, no engine.

The weights that ship were fitted for the default model; how much a proposer or the next lines should count differs
from model to model. Weights fitted here are used only if they choose better in files that they were not fitted on.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from difflib import SequenceMatcher
from itertools import product
from typing import Any, Final

from midfill_engine.judging import Candidate, JudgeWeights, shipped_weights
from midfill_engine.wire import FilledHole, FittedWeights
from midfill_infill.filling.certainty import split_folds
from midfill_infill.measuring.gaps import Gap

MIN_LINES: Final = 40  # a fit on fewer lines says little
EXACT: Final = 2.0  # the worth of the right text; that of any other text is its similarity, at most 1
# The values that the grid has of each weight.
SHARES: Final = (0.0, 0.01, 0.05, 0.2, 1.0, 5.0)
FOLLOWS: Final = (0.0, 0.5, 0.85, 1.0)
NAMED: Final = (0.0, 4.0, 8.0)
USED: Final = (0.0, 3.0, 7.0)


@dataclass(frozen=True)
class ComparedText:
    """What an engine said of one text for a line, as in `wire.FilledHole`, and its worth, in [0, 1] or `EXACT`."""

    nats: float
    following: float
    proposed: float
    names: int
    unused: int
    worth: float

    @property
    def candidate(self) -> Candidate:
        return Candidate("", self.nats, self.following, self.proposed, names=self.names, used=self.unused)


@dataclass(frozen=True)
class JudgeFit:
    """Fitted weights, and the numbers that tell whether they help: of `count` lines, in files that they were not fitted
    on, they chose `num_right` right texts; the shipped weights chose `num_right_shipped`.
    """

    weights: FittedWeights
    num_right: int
    num_right_shipped: int
    count: int

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "weights": dict(self.weights)}


def list_compared(gap: Gap, judged: Sequence[FilledHole]) -> Iterator[ComparedText]:
    """The texts for a gap of which the engine gives a likelihood, each with its worth."""
    truth = gap.truth.strip()
    for text in judged:
        if text.log_likelihood is None:
            continue
        worth = EXACT
        if not gap.is_right(text.text):
            worth = round(SequenceMatcher(None, text.text.strip(), truth, autojunk=False).ratio(), 4)
        nats, following = round(text.log_likelihood, 3), round(text.following or 0.0, 3)
        yield ComparedText(nats, following, text.proposed, text.names, text.unused, worth)


def fit_judge(lines: Sequence[Sequence[ComparedText]], groups: Sequence[str]) -> JudgeFit | None:
    """Finds on a grid the weights that choose the best texts for `lines`; None if there are too few lines, or if
    weights fitted on other files choose no better than the shipped ones. `groups` names the file of each line.
    """
    if len(lines) < MIN_LINES:
        return None
    shipped = FittedWeights.model_validate(shipped_weights("line"), from_attributes=True)
    grid = (FittedWeights(share=a, follows=b, named=c, used=d) for a, b, c, d in product(SHARES, FOLLOWS, NAMED, USED))
    worths = {weights: _choose(weights, lines) for weights in (shipped, *grid)}
    unseen_worths = [0.0] * len(lines)  # by weights that are fitted on other files
    for held_out, others in split_folds(groups):
        best = worths[_find_best(worths, others)]
        for index in held_out:
            unseen_worths[index] = best[index]
    num_right, num_right_shipped = unseen_worths.count(EXACT), worths[shipped].count(EXACT)
    if num_right <= num_right_shipped or math.fsum(unseen_worths) <= math.fsum(worths[shipped]):
        return None
    return JudgeFit(_find_best(worths, range(len(lines))), num_right, num_right_shipped, len(lines))


def _choose(weights: FittedWeights, lines: Sequence[Sequence[ComparedText]]) -> list[float]:
    """The worth of the text that the weights choose for each line."""
    judge: JudgeWeights = replace(shipped_weights("line"), **dict(weights))
    worths = []
    for texts in lines:
        scores = judge.score([text.candidate for text in texts])
        worths.append(texts[scores.index(max(scores))].worth)
    return worths


def _find_best(worths: Mapping[FittedWeights, Sequence[float]], indices: Sequence[int]) -> FittedWeights:
    """The weights whose choices for the lines `indices` are worth most together; the first of equally good ones."""
    return max(worths, key=lambda weights: math.fsum(worths[weights][index] for index in indices))
