"""How likely a model's fill is right, fitted on the user's own code by `midfill measure`. Knows numbers; no document.

One logistic regression per model and kind of hole, in the user's data folder; no code is stored.
"""

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Literal

from midfill_engine.wire import FittedWeights, ModelInfo

Kind = Literal["line", "body"]
KINDS: Final[tuple[Kind, ...]] = ("line", "body")

MIN_MEASURED: Final = 20  # fills of one kind; of fewer a fit says little
LEAST_LOG: Final = -12.0  # a log-probability below this one says no more
DECAY: Final = 0.05  # penalty on the squared weights of standardized features, so that few fills give a cautious fit
_STEPS: Final = 600
_LEAST_CHANCE: Final = 0.005


@dataclass(frozen=True)
class Evidence:
    """What is known of one text for a hole. `mean` and `least` are log-probabilities of its tokens, 0 without any;
    `told` is the engine's own certainty as ln odds, 0 without one; `proposed` is the certainty of a proposal from the
    files with the same text; `length` is ln(1 + characters).
    """

    mean: float = 0.0
    least: float = 0.0
    told: float = 0.0
    proposed: float = 0.0
    length: float = 0.0

    @classmethod
    def of(cls, text: str, confidence: Sequence[float], told: float | None, proposed: float) -> "Evidence":
        logs = [max(LEAST_LOG, math.log(max(value, 1e-9))) for value in confidence]
        return cls(
            mean=math.fsum(logs) / max(1, len(logs)),
            least=min(logs, default=0.0),
            told=0.0 if told is None else to_odds(told),
            proposed=proposed,
            length=math.log1p(len(text.strip())),
        )


def to_odds(chance: float) -> float:
    """ln(chance / (1 - chance)), bounded."""
    bounded = min(max(chance, _LEAST_CHANCE), 1 - _LEAST_CHANCE)
    return math.log(bounded / (1 - bounded))


@dataclass(frozen=True)
class Fit:
    """Weights of the evidence, and the number of fills that they were fitted on."""

    one: float
    weights: Mapping[str, float] = field(default_factory=dict)
    count: int = 0

    def rate(self, evidence: Evidence) -> float:
        """The probability that the fill is right."""
        terms = [weight * getattr(evidence, name) for name, weight in self.weights.items()]
        odds = self.one + math.fsum(terms)
        return 1 / (1 + math.exp(-max(-30.0, min(30.0, odds))))


Fits = Mapping[Kind, Fit]
Seen = tuple[Evidence, bool]
_NAMES: Final = tuple(field.name for field in fields(Evidence))


def fit(seen: Sequence[Seen]) -> Fit:
    """Fits the ln odds that a fill is right, by gradient descent on standardized features.

    One more right and one more wrong fill at the middle of the features keep a model that was never right from being
    called impossible.
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
    one, weights = _descend(scaled, rights)
    raw = {name: weight / spreads[name] for name, weight in zip(means, weights, strict=True)}
    one -= math.fsum(weight * means[name] for name, weight in raw.items())
    rounded = {name: round(weight, 5) for name, weight in raw.items()}
    return Fit(round(one, 5), rounded, len(seen))


def _descend(columns: Sequence[Sequence[float]], rights: Sequence[float]) -> tuple[float, list[float]]:
    """The constant and the weights of least cross entropy, with the penalty on the weights."""
    count = len(rights)
    rows = list(zip(*columns, strict=True)) or [()] * count
    one = 0.0
    weights = [0.0] * len(columns)
    rate = 4 / (1 + len(columns) + 8 * DECAY)  # the loss is this smooth at least
    for _ in range(_STEPS):
        lost: list[float] = []
        for row, right in zip(rows, rights, strict=True):
            odds = one + _multiply(weights, row)
            lost.append(1 / (1 + math.exp(-odds)) - right)
        one -= rate * math.fsum(lost) / count
        for index, column in enumerate(columns):
            slope = _multiply(lost, column) / count
            weights[index] -= rate * (slope + 2 * DECAY * weights[index])
    return one, weights


def _multiply(numbers: Sequence[float], others: Sequence[float]) -> float:
    """The scalar product."""
    return math.fsum(map(float.__mul__, numbers, others))


def rate_unseen(seen: Sequence[Seen], groups: Sequence[str], folds: int = 5) -> list[float]:
    """The certainty of each fill by a fit on fills of other groups, such as files."""
    chances = [0.0] * len(seen)
    for held, others in split_folds(groups, folds):
        if not held or not others:
            continue
        fitted = fit([seen[index] for index in others])
        for index in held:
            evidence, _ = seen[index]
            chances[index] = fitted.rate(evidence)
    return chances


def split_folds(groups: Sequence[str], folds: int = 5) -> Iterator[tuple[list[int], list[int]]]:
    """For each fold the indices of the fills in its groups, and of all others; a group is in one fold only."""
    fold_of = {group: number % folds for number, group in enumerate(dict.fromkeys(groups))}
    for fold in range(folds):
        held = [index for index, group in enumerate(groups) if fold_of[group] == fold]
        others = [index for index, group in enumerate(groups) if fold_of[group] != fold]
        yield held, others


def lose(chances: Sequence[float], rights: Sequence[bool]) -> float:
    """The mean cross entropy of certainties, in nats."""
    losses: list[float] = []
    for chance, is_right in zip(chances, rights, strict=True):
        told = chance if is_right else 1 - chance
        losses.append(math.log(max(1e-6, told)))
    return -math.fsum(losses) / max(1, len(rights))


def key_of(model: ModelInfo) -> str:
    """What tells a model from others: its name, and the digest or the address of its weights."""
    return f"{model.id} {model.weights}"


def folder() -> Path:
    from platformdirs import user_data_path

    return user_data_path("midfill") / "measured"


def load(model: ModelInfo, answered: str) -> Fits:
    """The fits of a model that names itself `answered`; none if it was not measured. Never raises."""
    try:
        known = _load(model)
        if known["model"] != answered:
            return {}
        return {kind: Fit(**values) for kind, values in known["fits"].items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return {}


def load_judge(model: ModelInfo) -> FittedWeights | None:
    """What decides among this model's lines; None for what ships. Never raises."""
    try:
        return FittedWeights(**_load(model)["judge"])
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def _load(model: ModelInfo) -> Any:
    facts = os.stat(_path())
    return _read(_path(), (facts.st_mtime_ns, facts.st_ino))[key_of(model)]


def _path() -> Path:
    return folder() / "certainty.json"


@lru_cache(maxsize=2)
def _read(path: Path, _: tuple[int, int]) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def save(model: ModelInfo, answered: str, fits: Fits, judge: FittedWeights | None = None) -> None:
    """Keeps the fits of a model, and the weights of its judge, in place of its earlier ones. Raises OSError."""
    path = _path()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        known = dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        known = {}
    record: dict[str, Any] = {"model": answered, "fits": {kind: asdict(fitted) for kind, fitted in fits.items()}}
    if judge is not None:
        record["judge"] = dict(judge)
    known[key_of(model)] = record
    part = path.with_suffix(f".{os.getpid()}")
    part.write_text(json.dumps(known, indent=1), encoding="utf-8")
    part.replace(path)
