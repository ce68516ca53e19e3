"""How candidates for a stretch compare, and how likely each is right. Knows likelihoods; no model.

The numbers stand in `judging.json`, which `python -m bench quality.judging` fits for the pretrained base.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Final

PATH: Final = Path(__file__).with_name("judging.json")
MOST_AHEAD: Final = 12.0
MOST_UNLIKELY: Final = -30.0

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
class Weights:
    """What likelihood and a proposal's certainty weigh, for lines or for bodies.

    A score is (nats + following) over the number of tokens to the power of `length`, and `own` times
    ln(1 + certainty / `doubt`). The ln odds that a candidate is right are the sum of `one`, `ahead` for each point that
    its score has more than the next best, `likely` for each of its nats, and `proposed` times its certainty.
    """

    length: float
    own: float
    doubt: float
    ahead: float
    likely: float
    proposed: float
    one: float

    def score(self, one: Candidate, best_following: float = 0.0) -> float:
        """`following` counts from the best one's, where the length matters."""
        likely = one.nats + one.following - (best_following if self.length else 0.0)
        return likely / math.pow(max(1, len(one.logs)), self.length) + self.own * math.log1p(one.certainty / self.doubt)

    def rank(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """The best first."""
        best = max((each.following for each in candidates), default=0.0)
        return sorted(candidates, key=lambda each: -self.score(each, best))

    def measure_lead(self, ranked: Sequence[Candidate], index: int = 0) -> float:
        """How much higher the score of one is than the best of the others."""
        best = max((each.following for each in ranked), default=0.0)
        scores = [self.score(each, best) for each in ranked]
        return scores[index] - max((other for place, other in enumerate(scores) if place != index), default=-math.inf)

    def weigh(self, ranked: Sequence[Candidate]) -> list[Candidate]:
        """Each with its chance to be right among all: calibrated for the first."""
        found = []
        for index, each in enumerate(ranked):
            columns = features(self.measure_lead(ranked, index), each)
            odds = sum(getattr(self, name) * value for name, value in columns.items())
            found.append(replace(each, chance=1 / (1 + math.exp(-max(odds, MOST_UNLIKELY)))))
        return found


def features(ahead: float, one: Candidate) -> Mapping[str, float]:
    """The columns of the odds that a candidate is right, by the names of their weights."""
    return {
        "ahead": min(max(ahead, -MOST_AHEAD), MOST_AHEAD),
        "likely": max(one.nats, MOST_UNLIKELY),
        "proposed": one.certainty,
        "one": 1.0,
    }


@cache
def shipped_weights(kind: str) -> Weights:
    """Those of a `line` or a `body`."""
    values = json.loads(PATH.read_text(encoding="utf-8"))[kind]
    return Weights(**{each.name: values[each.name] for each in fields(Weights)})
