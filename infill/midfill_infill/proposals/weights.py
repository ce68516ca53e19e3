"""Loads the weights of features of proposals, which `python -m bench.quality.fitting` fits. Knows no texts."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

PATH: Final = Path(__file__).with_name("weights.json")


@dataclass(frozen=True)
class ProposalWeights:
    """`line` has the weights of a line's features, `none` those of the case that no line is right. `body_odds` is a
    factor on the odds of a line that is proposed as a whole body. `siblings` pairs a minimum likeness of two functions
    with the probability that a body from one is right for the other, the highest likeness first.
    """

    line: Mapping[str, float]
    none: Mapping[str, float]
    body_odds: float
    siblings: Sequence[tuple[float, float]]

    def as_body(self, certainty: float) -> float:
        """Turns the certainty that a line is right into the certainty that it is right as a whole body."""
        odds = self.body_odds * certainty / (1 - certainty + 1e-9)
        return odds / (1 + odds)

    def of_sibling(self, likeness: float) -> float:
        """The probability that a body from a function with this likeness is right."""
        for min_likeness, certainty in self.siblings:
            if likeness >= min_likeness:
                return certainty
        return 0.0


@cache
def shipped_weights() -> ProposalWeights:
    return ProposalWeights(**json.loads(PATH.read_text(encoding="utf-8")))
