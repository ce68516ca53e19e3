"""Ranks the candidates for a stretch of a hole, and computes the chance that each is right. Knows likelihoods, no
model.

`python -m bench quality.judging` fits the weights in `judging.json` for the pretrained base.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from difflib import SequenceMatcher
from functools import cache, lru_cache
from itertools import combinations
from pathlib import Path
from typing import Final, Literal

from midfill_engine.wire import FittedWeights

PATH: Final = Path(__file__).with_name("judging.json")
MOST_AHEAD: Final = 12.0  # bound of the feature `ahead`
MOST_UNLIKELY: Final = -30.0  # the least ln odds, and the least feature `likely`
_WORD: Final = re.compile(r"\w+|[^\w\s]")

Logs = tuple[tuple[str, float], ...]  # the texts of tokens with their log-probabilities
Kind = Literal["line", "inside", "body"]


@dataclass(frozen=True)
class Candidate:
    """A text for a stretch. `nats` is ln P(text | text before), `following` is ln P(text behind | text before, text).
    Either may include the probability that the text ends there.
    """

    text: str
    nats: float = -math.inf
    following: float = 0.0
    certainty: float = 0.0  # of the text's proposer that it is right
    logs: Logs = ()
    names: int = 0  # how many names it has that the text behind needs
    used: int = 0  # how many names it has that the text before binds and nothing else uses
    near: float = 0.0  # ln P(text | the last lines before it alone), up to a constant for the stretch
    chance: float | None = None  # the probability that the text is right, once it is ranked
    kept: tuple[tuple[int, int], ...] = ()  # ranges of the text that come from the draft


@dataclass(frozen=True)
class JudgeWeights:
    """The weights that rank candidates of one kind of text and give the chance that the first is right.

    `nats` and `following` are divided by the number of tokens to the power of `length`. The model and the proposers are
    a mixture, in which a text has the log-probability ln(exp(nats) + `share` * certainty). A score is the sum of this;
    `follows` times `following`; `agree` times the mean similarity to the other candidates (minimum Bayes risk); `named`
    for each name that the text behind needs; and `used` for each name that only the text before has. It is less by
    `common` times `near`, because a text that is likely anywhere says little about this place (as in context-aware
    decoding, Shi 2023). The ln odds that a candidate is right are the sum of `one`; `ahead` times its score less the
    logsumexp of the other scores; `likely` times its log-probability in the mixture, to which needed names add half of
    `named` each; and `proposed` times its certainty.
    """

    length: float
    share: float
    follows: float
    agree: float
    named: float
    used: float
    common: float
    ahead: float
    likely: float
    proposed: float
    one: float

    def rank(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Ranks candidates, best first, each with the chance that it is right, which is calibrated for the first."""
        scores = self.score(candidates)
        ranked = []
        for index in sorted(range(len(candidates)), key=lambda index: -scores[index]):
            features = self.describe(candidates, scores, index)
            log_odds = sum(getattr(self, name) * value for name, value in features.items())
            chance = 1 / (1 + math.exp(-max(log_odds, MOST_UNLIKELY)))
            ranked.append(replace(candidates[index], chance=chance))
        return ranked

    def describe(self, candidates: Sequence[Candidate], scores: Sequence[float], index: int) -> Mapping[str, float]:
        """The features of candidate `index` for the odds that it is right, by the names of their weights."""
        candidate = candidates[index]
        ahead = scores[index] - add_logs([*scores[:index], *scores[index + 1 :]])
        likely = self.mix(candidate)
        if candidate.names:  # on 96 lines with such names the mean chance became 0.39, not 0.24; 0.37 were right
            likely = min(0.0, likely + self.named * candidate.names / 2)
        return {
            "ahead": min(max(ahead, -MOST_AHEAD), MOST_AHEAD),
            "likely": max(likely, MOST_UNLIKELY),
            "proposed": candidate.certainty,
            "one": 1.0,
        }

    def score(self, candidates: Sequence[Candidate]) -> list[float]:
        """The score of each candidate; the best has the highest."""
        best_following = 0.0
        if self.length:
            best_following = max((candidate.following for candidate in candidates), default=0.0)
        scores = [self._score_alone(candidate, best_following) for candidate in candidates]
        if not self.agree:
            return scores
        for first, second in combinations(range(len(scores)), 2):
            likeness = measure_likeness(candidates[first].text, candidates[second].text) / (len(scores) - 1)
            scores[first] += self.agree * likeness
            scores[second] += self.agree * likeness
        return scores

    def _score_alone(self, candidate: Candidate, best_following: float) -> float:
        """The score without the agreement. `best_following` is the highest of all candidates, 0 without `length`."""
        return (
            self.mix(candidate)
            + self.follows * (candidate.following - best_following) / self._length_divisor(candidate)
            + self.named * candidate.names
            + self.used * candidate.used
            - self.common * candidate.near
        )

    def mix(self, candidate: Candidate) -> float:
        """The log-probability of a text in the mixture of the model and the text's proposer."""
        nats = candidate.nats / self._length_divisor(candidate)
        share = self.share * candidate.certainty
        if share <= 0:
            return nats
        return add_logs([nats, math.log(share)])

    def _length_divisor(self, candidate: Candidate) -> float:
        """The number of tokens to the power of `length`."""
        return math.pow(max(1, len(candidate.logs)), self.length)


def add_logs(values: Sequence[float]) -> float:
    """ln of the sum of the exponentials of `values`, -inf for none."""
    highest = max(values, default=-math.inf)
    if math.isinf(highest):
        return highest
    return highest + math.log(sum(math.exp(value - highest) for value in values))


@lru_cache(maxsize=4096)
def measure_likeness(first: str, second: str) -> float:
    """The share of words that two texts have in common in the same order, in [0, 1]."""
    return SequenceMatcher(None, _WORD.findall(first), _WORD.findall(second), autojunk=False).ratio()


@dataclass(frozen=True)
class Judge:
    """Ranks candidates by the weights that ship, but lines by the `fitted` weights, if there are any."""

    fitted: FittedWeights | None = None

    def rank(self, candidates: Sequence[Candidate], kind: Kind) -> list[Candidate]:
        """Ranks candidates, best first, each with the chance that it is right."""
        return self.choose_weights(candidates, kind).rank(candidates)

    def choose_weights(self, candidates: Sequence[Candidate], kind: Kind) -> JudgeWeights:
        """The weights that rank these candidates. Bodies are ranked by `short` if these weights put a single line
        first, otherwise by `body`. Because of this choice 15 instead of 11 of 43 short bodies were exact, and 73 longer
        ones were 41 instead of 37 % similar.
        """
        if kind == "line" and self.fitted is not None:
            return replace(shipped_weights("line"), **dict(self.fitted))
        if kind != "body":
            return shipped_weights(kind)
        short = shipped_weights("short")
        if not candidates:
            return short
        scores = short.score(candidates)
        first = candidates[scores.index(max(scores))]
        return shipped_weights("body") if "\n" in first.text.strip() else short


SHIPPED: Final = Judge()


@cache
def shipped_weights(kind: Kind | Literal["short"]) -> JudgeWeights:
    """The shipped weights for a `line`, for text `inside` a line, for a `short` body, or for another `body`."""
    values = json.loads(PATH.read_text(encoding="utf-8"))[kind]
    return JudgeWeights(**{weight.name: values[weight.name] for weight in fields(JudgeWeights)})
