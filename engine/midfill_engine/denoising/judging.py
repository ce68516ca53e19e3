"""How candidates for a stretch compare, and how likely each is right. Knows likelihoods; no model.

The numbers stand in `judging.json`, which `python -m bench quality.judging` fits for the pretrained base.
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
from typing import Final

PATH: Final = Path(__file__).with_name("judging.json")
MOST_AHEAD: Final = 12.0
MOST_UNLIKELY: Final = -30.0
_WORD: Final = re.compile(r"\w+|[^\w\s]")

Logs = tuple[tuple[str, float], ...]  # tokens' texts with their ln probabilities


@dataclass(frozen=True)
class Candidate:
    """A text for a stretch; `nats`: ln P(text | before), `following`: ln P(what follows | before, text). The end of
    the text counts as a part of either.
    """

    text: str
    nats: float = -math.inf
    following: float = 0.0
    certainty: float = 0.0  # of whoever proposed it
    logs: Logs = ()
    chance: float | None = None  # that it is right


@dataclass(frozen=True)
class JudgeWeights:
    """What likelihood, a proposal's certainty and agreement weigh, for a kind of text.

    A score is the sum of (nats + following) over the number of tokens to the power of `length`, of `own` times
    ln(1 + certainty / `doubt`), and of `agree` times how similar the others are on average (minimum Bayes risk). The ln
    odds that a candidate is right are the sum of `one`, `ahead` times how much more its score is than the next best,
    `likely` times its nats, and `proposed` times its certainty.
    """

    length: float
    own: float
    doubt: float
    agree: float
    ahead: float
    likely: float
    proposed: float
    one: float

    def rank(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """The best first, each with its chance to be right, which is calibrated for the first."""
        scores = self.score(candidates)
        order = sorted(range(len(candidates)), key=lambda index: -scores[index])
        found = []
        for place, index in enumerate(order):
            others = scores[order[0 if place else 1]] if len(order) > 1 else -math.inf
            columns = features(scores[index] - others, candidates[index])
            odds = sum(getattr(self, name) * value for name, value in columns.items())
            found.append(replace(candidates[index], chance=1 / (1 + math.exp(-max(odds, MOST_UNLIKELY)))))
        return found

    def score(self, candidates: Sequence[Candidate]) -> list[float]:
        """The score of each among all."""
        best = max((each.following for each in candidates), default=0.0) if self.length else 0.0
        scores = [
            (each.nats + each.following - best) / math.pow(max(1, len(each.logs)), self.length)
            + self.own * math.log1p(each.certainty / self.doubt)
            for each in candidates
        ]
        if self.agree:
            for first, second in combinations(range(len(scores)), 2):
                shared = measure_likeness(candidates[first].text, candidates[second].text) / (len(scores) - 1)
                scores[first] += self.agree * shared
                scores[second] += self.agree * shared
        return scores


@lru_cache(maxsize=4096)
def measure_likeness(first: str, second: str) -> float:
    """How many of their words two texts share in the same order, in [0, 1]."""
    return SequenceMatcher(None, _WORD.findall(first), _WORD.findall(second), autojunk=False).ratio()


def features(ahead: float, one: Candidate) -> Mapping[str, float]:
    """The columns of the odds that a candidate is right, by the names of their weights."""
    return {
        "ahead": min(max(ahead, -MOST_AHEAD), MOST_AHEAD),
        "likely": max(one.nats, MOST_UNLIKELY),
        "proposed": one.certainty,
        "one": 1.0,
    }


def rank(candidates: Sequence[Candidate], *, is_body: bool) -> list[Candidate]:
    """The best first. Of bodies one of a single line is chosen as such, else the one that the others agree with: of 43
    short bodies 15 were exact for 11, of 73 longer ones 41 % similar for 37.
    """
    if not is_body:
        return shipped_weights("line").rank(candidates)
    ranked = shipped_weights("short").rank(candidates)
    return shipped_weights("body").rank(candidates) if ranked and "\n" in ranked[0].text.strip() else ranked


@cache
def shipped_weights(kind: str) -> JudgeWeights:
    """Those of a `line`, of a `short` body or of a `body`."""
    values = json.loads(PATH.read_text(encoding="utf-8"))[kind]
    return JudgeWeights(**{each.name: values[each.name] for each in fields(JudgeWeights)})
