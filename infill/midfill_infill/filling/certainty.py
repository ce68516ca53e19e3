"""Rates how likely a model's fill is right, as `midfill measure` fitted it on the user's own code. Knows no document.

A logistic regression per model and kind of hole is stored in the user's data folder: numbers, no code.
"""

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Literal

from midfill_engine.wire import FittedWeights, ModelInfo
from midfill_infill.config import locked_for_change, replace_file

Kind = Literal["line", "body"]
KINDS: Final[tuple[Kind, ...]] = ("line", "body")

MIN_MEASURED: Final = 20  # fills of one kind that a fit needs: with fewer it says little
LEAST_LOG: Final = -12.0  # lower log-probabilities count as this one
DECAY: Final = 0.05  # penalty on the squared weights of standardized features, so that few fills give a cautious fit
_STEPS: Final = 600  # of the gradient descent
_LEAST_CHANCE: Final = 0.005  # and its complement bound a probability before it becomes odds


@dataclass(frozen=True)
class Evidence:
    """What is known of one text for a hole: the features of a fit.

    `mean` and `least` are the mean and the lowest log-probability of its tokens, 0 without tokens. `told` is the
    engine's own certainty as ln odds, 0 without one. `proposed` is the certainty of a proposal from the user's files
    with the same text, 0 without one. `length` is ln(1 + characters).
    """

    mean: float = 0.0
    least: float = 0.0
    told: float = 0.0
    proposed: float = 0.0
    length: float = 0.0

    @classmethod
    def of(
        cls, text: str, confidence: Sequence[float], engine_certainty: float | None, proposal_certainty: float
    ) -> "Evidence":
        """The evidence of a text whose tokens have the `confidence`. Both certainties are probabilities."""
        logs = [max(LEAST_LOG, math.log(max(value, 1e-9))) for value in confidence]
        told = 0.5 if engine_certainty is None else engine_certainty  # 0.5 has the ln odds 0
        told = min(max(told, _LEAST_CHANCE), 1 - _LEAST_CHANCE)
        return cls(
            mean=math.fsum(logs) / max(1, len(logs)),
            least=min(logs, default=0.0),
            told=math.log(told / (1 - told)),
            proposed=proposal_certainty,
            length=math.log1p(len(text.strip())),
        )


@dataclass(frozen=True)
class Fit:
    """A logistic regression: the constant term `one`, the weight of each field of Evidence that counts, and the number
    of fills on which it was fitted.
    """

    one: float
    weights: Mapping[str, float] = field(default_factory=dict)
    count: int = 0

    def rate(self, evidence: Evidence) -> float:
        """The probability that the fill is right."""
        terms = [weight * getattr(evidence, name) for name, weight in self.weights.items()]
        odds = self.one + math.fsum(terms)
        return 1 / (1 + math.exp(-max(-30.0, min(30.0, odds))))  # exp overflows far outside of these bounds


Fits = Mapping[Kind, Fit]
Seen = tuple[Evidence, bool]  # a measured fill, and whether it was right
_NAMES: Final = tuple(field.name for field in fields(Evidence))


def fit(seen: Sequence[Seen]) -> Fit:
    """Fits the ln odds that a fill is right, by gradient descent on standardized features; constant ones get no weight.

    Adds a right and a wrong fill with mean features, because otherwise the fills of a model that was never right in
    the measurement would get a certainty near 0.
    """
    means: dict[str, float] = {}
    spreads: dict[str, float] = {}
    scaled: list[tuple[float, ...]] = []
    for name in _NAMES:
        column = [float(getattr(evidence, name)) for evidence, _ in seen]
        mean = math.fsum(column) / len(column)
        variance = math.fsum((value - mean) ** 2 for value in column) / len(column)
        spread = math.sqrt(variance)
        if spread > 1e-6:
            means[name] = mean
            spreads[name] = spread
            standardized = [(value - mean) / spread for value in column]
            scaled.append((*standardized, 0.0, 0.0))
    rights = [*(float(is_right) for _, is_right in seen), 1.0, 0.0]
    scaled_constant, scaled_weights = _descend(scaled, rights)
    weights = {name: weight / spreads[name] for name, weight in zip(means, scaled_weights, strict=True)}
    constant = scaled_constant - math.fsum(weight * means[name] for name, weight in weights.items())
    rounded = {name: round(weight, 5) for name, weight in weights.items()}
    return Fit(round(constant, 5), rounded, len(seen))


def _descend(columns: Sequence[Sequence[float]], rights: Sequence[float]) -> tuple[float, list[float]]:
    """The constant and the weights with the least cross entropy plus penalty. `columns` holds the values of each
    feature, `rights` 1 for each right fill and 0 for each wrong one.
    """
    count = len(rights)
    rows = list(zip(*columns, strict=True)) or [()] * count
    constant = 0.0
    weights = [0.0] * len(columns)
    step_size = 4 / (1 + len(columns) + 8 * DECAY)  # no step overshoots: the loss bends no more than the inverse of it
    for _ in range(_STEPS):
        errors: list[float] = []
        for row, right in zip(rows, rights, strict=True):
            odds = constant + _multiply(weights, row)
            errors.append(1 / (1 + math.exp(-odds)) - right)
        constant -= step_size * math.fsum(errors) / count
        for index, column in enumerate(columns):
            slope = _multiply(errors, column) / count
            weights[index] -= step_size * (slope + 2 * DECAY * weights[index])
    return constant, weights


def _multiply(numbers: Sequence[float], others: Sequence[float]) -> float:
    """The scalar product."""
    return math.fsum(map(float.__mul__, numbers, others))


def rate_unseen(seen: Sequence[Seen], groups: Sequence[str], folds: int = 5) -> list[float]:
    """The certainty of each fill by a fit on fills of other groups, such as files; 0 if there is no other group."""
    chances = [0.0] * len(seen)
    for in_fold, others in split_folds(groups, folds):
        if not in_fold or not others:
            continue
        fitted = fit([seen[index] for index in others])
        for index in in_fold:
            evidence, _ = seen[index]
            chances[index] = fitted.rate(evidence)
    return chances


def split_folds(groups: Sequence[str], folds: int = 5) -> Iterator[tuple[list[int], list[int]]]:
    """Yields for each fold the indices of the fills in it, and of all other fills. `groups` holds the group of each
    fill; all fills of a group are in the same fold.
    """
    fold_of = {group: number % folds for number, group in enumerate(dict.fromkeys(groups))}
    for fold in range(folds):
        in_fold = [index for index, group in enumerate(groups) if fold_of[group] == fold]
        others = [index for index, group in enumerate(groups) if fold_of[group] != fold]
        yield in_fold, others


def lose(chances: Sequence[float], rights: Sequence[bool]) -> float:
    """The mean cross entropy of certainties with what was right, in nats; smaller is better."""
    likelihoods = [chance if is_right else 1 - chance for chance, is_right in zip(chances, rights, strict=True)]
    return -math.fsum(math.log(max(1e-6, likelihood)) for likelihood in likelihoods) / max(1, len(rights))


def key_of(model: ModelInfo) -> str:
    """The model's key in the file: its name, and the digest or the address of its weights."""
    return f"{model.id} {model.weights}"


def folder() -> Path:
    """The folder of everything that was measured."""
    from platformdirs import user_data_path

    return user_data_path("midfill") / "measured"


def load(model: ModelInfo, answered: str) -> Fits:
    """The fits of a model whose answers name it `answered`; empty if that name was not measured. Never raises."""
    try:
        record = _load(model)
        if record["model"] != answered:
            return {}
        return {kind: Fit(**values) for kind, values in record["fits"].items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return {}


def load_judge(model: ModelInfo) -> FittedWeights | None:
    """The weights that decide among this model's lines; None if those that ship with the engine do. Never raises."""
    try:
        return FittedWeights(**_load(model)["judge"])
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def _load(model: ModelInfo) -> Any:
    """The stored record of a model. Raises OSError, ValueError, TypeError or KeyError if there is none."""
    status = os.stat(_path())
    return _read(_path(), (status.st_mtime_ns, status.st_ino))[key_of(model)]


def _path() -> Path:
    return folder() / "certainty.json"


@lru_cache(maxsize=2)
def _read(path: Path, _: tuple[int, int]) -> Any:
    """The file's JSON. The second argument, its time and inode, makes a changed file miss the cache."""
    return json.loads(path.read_text(encoding="utf-8"))


def save(model: ModelInfo, answered: str, fits: Fits, judge: FittedWeights | None = None) -> None:
    """Stores the fits of a model, and the weights that decide among its lines, in place of its earlier ones. `answered`
    is the name by which its answers call it. Raises OSError.
    """
    path = _path()
    record: dict[str, Any] = {"model": answered, "fits": {kind: asdict(fitted) for kind, fitted in fits.items()}}
    if judge is not None:
        record["judge"] = dict(judge)
    with locked_for_change(path):
        records: dict[str, Any] = {}
        with suppress(OSError, ValueError, TypeError):
            records = dict(json.loads(path.read_text(encoding="utf-8")))
        records[key_of(model)] = record
        replace_file(path, json.dumps(records, indent=1).encode())
