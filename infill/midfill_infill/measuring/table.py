"""Sums up outcomes: shares with intervals, medians, how sure is how often right, and which model to choose."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, Final

from midfill_infill.filling.candidates import LIKELY, SURE
from midfill_infill.filling.certainty import KINDS, MIN_MEASURED, Kind
from midfill_infill.measuring.judging import JudgeFit
from midfill_infill.measuring.outcomes import GapOutcome, rate_better

Z: Final = 1.96  # of a 95 % interval
_WORDS: Final = (("sure", SURE, 1.01), ("likely", LIKELY, SURE), ("a suggestion", 0.0, LIKELY))


@dataclass(frozen=True)
class Measured:
    """A model as the user named it, and its outcomes so far. `is_floor`: no model, the proposals from the files alone.
    `error` is the sentence that ended its measurement early. `judge` is what decides among its lines from now on, None
    for what ships.
    """

    name: str
    outcomes: Sequence[GapOutcome] = ()
    error: str = ""
    is_floor: bool = False
    judge: JudgeFit | None = None

    @property
    def num_bytes(self) -> int | None:
        """The most memory that its engine took; None if unknown."""
        return max((each.num_bytes for each in self.outcomes if each.num_bytes is not None), default=None)

    def of(self, kind: Kind) -> list[GapOutcome]:
        return [each for each in self.outcomes if each.kind == kind]


def wilson(successes: int, trials: int) -> tuple[float, float]:
    """The 95 % score interval of a share (Wilson 1927)."""
    share = successes / trials
    middle = (share + Z * Z / (2 * trials)) / (1 + Z * Z / trials)
    half = Z * math.sqrt(share * (1 - share) / trials + Z * Z / (4 * trials * trials)) / (1 + Z * Z / trials)
    return max(0.0, middle - half), min(1.0, middle + half)


@dataclass(frozen=True)
class Share:
    """A share in percent with its 95 % interval (Wilson 1927), of so many."""

    percent: float
    low: float
    high: float
    of: int

    def __str__(self) -> str:
        return f"{self.percent:.0f} % ({self.low:.0f}-{self.high:.0f})"

    @classmethod
    def count(cls, rights: Sequence[bool]) -> "Share | None":
        if not rights:
            return None
        low, high = wilson(sum(rights), len(rights))
        percent, low, high = (round(100 * each, 1) for each in (sum(rights) / len(rights), low, high))
        return cls(percent, low, high, len(rights))


@dataclass(frozen=True)
class Summary:
    """What a model's fills of one kind of gap are worth. Times are medians in seconds, `similar` a mean in percent."""

    exact: Share
    similar: float
    parses: float
    preview_s: float
    end_s: float
    passes: Share | None = None

    @classmethod
    def of(cls, outcomes: Sequence[GapOutcome]) -> "Summary | None":
        exact = Share.count([each.is_right for each in outcomes])
        if exact is None:
            return None
        done = [each for each in outcomes if not each.error] or outcomes
        return cls(
            exact,
            round(100 * math.fsum(each.similar for each in outcomes) / len(outcomes), 1),
            round(100 * sum(each.parses for each in outcomes) / len(outcomes), 1),
            median(each.end_s if each.preview_s is None else each.preview_s for each in done),
            median(each.end_s for each in done),
            Share.count([each.passes for each in outcomes if each.passes is not None]),
        )


def list_certainties(outcomes: Sequence[GapOutcome]) -> list[tuple[float, bool]]:
    """How sure each fill of one kind is, by a fit that has not seen its file, and whether it was right; none if the
    model says nothing of it.
    """
    seen = [each for each in outcomes if not each.error]
    if len(seen) >= MIN_MEASURED and (rated := rate_better(seen)) is not None:
        return list(zip(rated, (each.is_right for each in seen), strict=True))
    return [(each.told, each.is_right) for each in seen if each.told is not None]


def describe_sureness(outcomes: Sequence[GapOutcome]) -> str:
    """`sure 12 of 14 right, likely 8 of 13, a suggestion 3 of 33; said 38 %, were 38 %`; empty if nothing is known."""
    pairs = list_certainties(outcomes)
    if not pairs:
        return ""
    parts = []
    for word, low, high in _WORDS:
        inside = [is_right for chance, is_right in pairs if low <= chance < high]
        if inside:
            parts.append(f"{word} {sum(inside)} of {len(inside)} right")
    said = math.fsum(chance for chance, _ in pairs) / len(pairs)
    was = sum(is_right for _, is_right in pairs) / len(pairs)
    return f"{', '.join(parts)}; on average {said:.0%} sure, {was:.0%} right"


def describe_judge(judge: JudgeFit) -> str:
    """What fitted weights gain."""
    rights = f"{judge.num_right} of {judge.count} right in files not seen, {judge.num_right_shipped} by those that ship"
    return f"the texts of its lines are judged by weights fitted here from now on ({rights})"


def choose(measured: Sequence[Measured]) -> str:
    """The sentence that says which model to choose on this machine, and why; empty without a model to choose."""
    models = [each for each in measured if not each.is_floor and each.outcomes]
    if not models:
        return ""
    if len(models) == 1:
        return f"{models[0].name} is the only one measured"
    shared = set.intersection(*({each.gap for each in model.outcomes} for model in models))
    if not shared:
        return ""
    worths = {model.name: _weigh(model, shared) for model in models}
    best = max(models, key=lambda model: math.fsum(worths[model.name].values()))
    close = [model for model in models if not _is_worse(worths[model.name], worths[best.name])]
    fastest = min(close, key=lambda model: _seconds(model, shared))
    others = [model for model in models if model is not fastest]
    worse = [model.name for model in others if _is_worse(worths[model.name], worths[fastest.name])]
    alike = [model.name for model in others if model.name not in worse]
    why = []
    if worse:
        why.append(f"its fills are closer to what you wrote than those of {' and '.join(worse)}")
    if alike:
        took = _seconds(fastest, shared)
        than = ", ".join(
            f"{_seconds(model, shared):.1f} s with {model.name}" for model in others if model.name in alike
        )
        why.append(f"a fill takes {took:.1f} s on average, {than}, and no difference in quality is certain")
    return f"choose {fastest.name} here: {'; '.join(why)}"


def _weigh(model: Measured, shared: set[str]) -> dict[str, float]:
    """What each fill is worth in [0, 1]: half for how similar it is, half for being right or passing."""
    outcomes = (each for each in model.outcomes if each.gap in shared)
    return {each.gap: (each.similar + float(each.is_right or bool(each.passes))) / 2 for each in outcomes}


def _is_worse(one: Mapping[str, float], other: Mapping[str, float]) -> bool:
    """True if the 95 % interval of the paired difference is below zero."""
    gains = [one[gap] - other[gap] for gap in one]
    mean = math.fsum(gains) / len(gains)
    spread = math.sqrt(math.fsum((each - mean) ** 2 for each in gains) / max(1, len(gains) - 1) / len(gains))
    return mean + Z * spread < 0


def _seconds(model: Measured, shared: set[str]) -> float:
    times = [each.end_s for each in model.outcomes if each.gap in shared]
    return math.fsum(times) / len(times)


def describe(measured: Measured) -> dict[str, Any]:
    """The summary of a model as JSON."""
    summaries = {kind: Summary.of(measured.of(kind)) for kind in KINDS}
    return {
        "name": measured.name,
        "is_floor": measured.is_floor,
        "error": measured.error,
        "bytes": measured.num_bytes,
        "lines": asdict(summaries["line"]) if summaries["line"] else None,
        "bodies": asdict(summaries["body"]) if summaries["body"] else None,
        "certainty": {kind: describe_sureness(measured.of(kind)) for kind in KINDS},
        "judge": measured.judge.as_json() if measured.judge else None,
    }
