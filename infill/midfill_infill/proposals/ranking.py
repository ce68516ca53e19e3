"""Scores from columns: a conditional logit (McFadden 1974) with a layer of hidden units beside it. Knows no texts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from midfill_infill.proposals.levels import Floats


@dataclass(frozen=True)
class Ranker:
    """Of F columns `linear` [F], and through `inner` [F, H] and `bias` [H] tanh units that count `outer` [H]."""

    linear: Floats
    inner: Floats
    bias: Floats
    outer: Floats

    @classmethod
    def plain(cls, linear: Sequence[float]) -> "Ranker":
        return cls(np.array(linear, float), np.zeros((len(linear), 0)), np.zeros(0), np.zeros(0))

    @classmethod
    def of(cls, values: dict[str, Any], names: Sequence[str]) -> "Ranker":
        rows = np.array([values["columns"][name] for name in names], float)
        return cls(rows[:, 0], rows[:, 1:], np.array(values["bias"]), np.array(values["outer"]))

    def to_json(self, names: Sequence[str]) -> dict[str, Any]:
        rows = np.column_stack((self.linear, self.inner)).round(4).tolist()
        columns = dict(zip(names, rows, strict=True))
        return {"columns": columns, "bias": self.bias.round(4).tolist(), "outer": self.outer.round(4).tolist()}

    def scores(self, table: Floats) -> Floats:
        """[C] of a table [C, F]."""
        found: Floats = table @ self.linear + np.tanh(table @ self.inner + self.bias) @ self.outer
        return found
