"""Weights of proposals, from a JSON file that `python -m bench.quality.fitting` fits. Knows no texts."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

PATH: Final = Path(__file__).with_name("weights.json")


@dataclass(frozen=True)
class ProposalWeights:
    """`line` and `none` weigh the features of a line, and of the case that none is right. `body_odds` is a factor on
    the odds of a line proposed as a whole body. `siblings`: minimum likeness and probability that such a body is right.
    """

    line: Mapping[str, float]
    none: Mapping[str, float]
    body_odds: float
    siblings: Sequence[tuple[float, float]]

    @classmethod
    def of(cls, values: dict[str, Any]) -> "ProposalWeights":
        """The weights as the file has them."""
        siblings = [tuple(pair) for pair in values["siblings"]]
        return cls(**(values | {"siblings": siblings}))

    def as_body(self, certainty: float) -> float:
        """The certainty of a line proposed as a whole body."""
        odds = self.body_odds * certainty / (1 - certainty + 1e-9)
        return odds / (1 + odds)

    def of_sibling(self, likeness: float) -> float:
        """The probability that a body with this likeness is right."""
        for least, certainty in self.siblings:
            if likeness >= least:
                return certainty
        return 0.0


@cache
def shipped_weights() -> ProposalWeights:
    return ProposalWeights.of(json.loads(PATH.read_text(encoding="utf-8")))
