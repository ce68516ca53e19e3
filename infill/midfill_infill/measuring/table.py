"""Sums up outcomes: shares with intervals, medians, how often sure fills are right, and which model to choose."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, Final

from midfill_infill.filling.candidates import SUGGESTION, certainty_word
from midfill_infill.filling.certainty import KINDS, Kind
from midfill_infill.measuring.judging import JudgeFit
from midfill_infill.measuring.outcomes import GapOutcome, rate_if_better

Z: Final = 1.96  # the half width of a 95 % interval, in standard deviations


@dataclass(frozen=True)
class Measured:
    """A model as the user named it, and its outcomes so far. `is_floor`: no model, but what the files alone propose.
    `stopped_by` is the sentence that ended its measurement early. `judge` decides among the texts of its lines from now
    on; None for the weights that ship.
    """

    name: str
    outcomes: Sequence[GapOutcome] = ()
    stopped_by: str = ""
    is_floor: bool = False
    judge: JudgeFit | None = None

    @property
    def num_bytes(self) -> int | None:
        """The most memory that its engine took; None if unknown."""
        return max((outcome.num_bytes for outcome in self.outcomes if outcome.num_bytes is not None), default=None)

    def outcomes_of(self, kind: Kind) -> list[GapOutcome]:
        return [outcome for outcome in self.outcomes if outcome.kind == kind]


def wilson(successes: int, trials: int) -> tuple[float, float]:
    """The 95 % score interval of a share (Wilson 1927)."""
    share = successes / trials
    middle = (share + Z * Z / (2 * trials)) / (1 + Z * Z / trials)
    half = Z * math.sqrt(share * (1 - share) / trials + Z * Z / (4 * trials * trials)) / (1 + Z * Z / trials)
    return max(0.0, middle - half), min(1.0, middle + half)


@dataclass(frozen=True)
class Share:
    """A share of the number `of`, in percent, with its 95 % interval from `low` to `high` (Wilson 1927)."""

    percent: float
    low: float
    high: float
    of: int

    def __str__(self) -> str:
        return f"{self.percent:.0f} % ({self.low:.0f}-{self.high:.0f})"

    @classmethod
    def count(cls, rights: Sequence[bool]) -> "Share | None":
        """The share of True; None if there are no values."""
        if not rights:
            return None
        shares = (sum(rights) / len(rights), *wilson(sum(rights), len(rights)))
        percent, low, high = (round(100 * share, 1) for share in shares)
        return cls(percent, low, high, len(rights))


@dataclass(frozen=True)
class Summary:
    """How good a model's fills of one kind are: mean `similar`, share `parses`, both in percent; median times in
    seconds.
    """

    exact: Share
    similar: float
    parses: float
    preview_s: float
    end_s: float
    passes: Share | None = None

    @classmethod
    def build(cls, outcomes: Sequence[GapOutcome]) -> "Summary | None":
        """None if there are no outcomes."""
        exact = Share.count([outcome.is_right for outcome in outcomes])
        if exact is None:
            return None
        done = [outcome for outcome in outcomes if not outcome.error] or outcomes  # a failure's time is no fill's
        return cls(
            exact=exact,
            similar=round(100 * math.fsum(outcome.similar for outcome in outcomes) / len(outcomes), 1),
            parses=round(100 * sum(outcome.parses for outcome in outcomes) / len(outcomes), 1),
            preview_s=median(outcome.end_s if outcome.preview_s is None else outcome.preview_s for outcome in done),
            end_s=median(outcome.end_s for outcome in done),
            passes=Share.count([outcome.passes for outcome in outcomes if outcome.passes is not None]),
        )


def list_certainties(outcomes: Sequence[GapOutcome]) -> list[tuple[float, bool]]:
    """The certainty of each fill of one kind, and whether it is right. The certainty is by a fit on other files or, if
    that is no better or not possible, the engine's own; fills without one are left out.
    """
    fills = [outcome for outcome in outcomes if not outcome.error]
    rated = rate_if_better(fills)
    if rated is not None:
        return list(zip(rated, (outcome.is_right for outcome in fills), strict=True))
    return [(outcome.told, outcome.is_right) for outcome in fills if outcome.told is not None]


def describe_sureness(outcomes: Sequence[GapOutcome]) -> str:
    """`sure 12 of 14 right, likely 8 of 13 right; on average 61% sure, 74% right`; empty if nothing is known."""
    pairs = list_certainties(outcomes)
    if not pairs:
        return ""
    parts = []
    for word in ("sure", "likely", SUGGESTION):
        rights = [is_right for chance, is_right in pairs if certainty_word(chance) == word]
        if rights:
            parts.append(f"{word} {sum(rights)} of {len(rights)} right")
    mean_certainty = math.fsum(chance for chance, _ in pairs) / len(pairs)
    share_right = sum(is_right for _, is_right in pairs) / len(pairs)
    return f"{', '.join(parts)}; on average {mean_certainty:.0%} sure, {share_right:.0%} right"


def describe_judge(judge: JudgeFit) -> str:
    """The sentence that says what fitted weights gain."""
    rights = f"{judge.num_right} of {judge.count} right in files not seen, {judge.num_right_shipped} by those that ship"
    return f"the texts of its lines are judged by weights fitted here from now on ({rights})"


def describe_choice(measured: Sequence[Measured]) -> str:
    """The sentence that says which model to choose on this machine, and why; empty if no model has outcomes, or if
    several have none of the same gap.
    """
    models = [model for model in measured if not model.is_floor and model.outcomes]
    if not models:
        return ""
    if len(models) == 1:
        return f"{models[0].name} is the only one measured"
    shared = set.intersection(*({outcome.gap for outcome in model.outcomes} for model in models))
    if not shared:
        return ""
    worths = {model.name: _rate_fills(model, shared) for model in models}
    best = max(models, key=lambda model: math.fsum(worths[model.name].values()))
    nearly_best = [model for model in models if not _is_worse(worths[model.name], worths[best.name])]
    fastest = min(nearly_best, key=lambda model: _mean_seconds(model, shared))
    others = [model for model in models if model is not fastest]
    worse = [model.name for model in others if _is_worse(worths[model.name], worths[fastest.name])]
    alike = [model for model in others if model.name not in worse]
    reasons = []
    if worse:
        has_tests = any(outcome.passes is not None for model in models for outcome in model.outcomes)
        gain = "better" if has_tests else "closer to what you wrote"
        reasons.append(f"its fills are {gain} than those of {' and '.join(worse)}")
    if alike:
        mean_s = _mean_seconds(fastest, shared)
        times_of_alike = ", ".join(f"{_mean_seconds(model, shared):.1f} s with {model.name}" for model in alike)
        times = f"a fill takes {mean_s:.1f} s on average, {times_of_alike}"
        reasons.append(f"{times}, and no difference in quality is certain")
    return f"choose {fastest.name} here: {'; '.join(reasons)}"


def _rate_fills(model: Measured, shared: set[str]) -> dict[str, float]:
    """The worth of each fill in [0, 1]: half for how similar it is, half for being right or passing."""
    outcomes = (outcome for outcome in model.outcomes if outcome.gap in shared)
    return {
        outcome.gap: (outcome.similar + float(outcome.is_right or bool(outcome.passes))) / 2 for outcome in outcomes
    }


def _is_worse(one: Mapping[str, float], other: Mapping[str, float]) -> bool:
    """True if fills are certainly worth less than others: the 95 % interval of the paired differences is below zero."""
    gains = [one[gap] - other[gap] for gap in one]
    mean = math.fsum(gains) / len(gains)
    squares = math.fsum((gain - mean) ** 2 for gain in gains)
    standard_error = math.sqrt(squares / max(1, len(gains) - 1) / len(gains))
    return mean + Z * standard_error < 0


def _mean_seconds(model: Measured, shared: set[str]) -> float:
    times = [outcome.end_s for outcome in model.outcomes if outcome.gap in shared]
    return math.fsum(times) / len(times)


def describe(measured: Measured) -> dict[str, Any]:
    """The summary of a model, as values for JSON, whose keys the fields of Summary and Share are."""
    summaries = {kind: Summary.build(measured.outcomes_of(kind)) for kind in KINDS}
    return {
        "name": measured.name,
        "is_floor": measured.is_floor,
        "error": measured.stopped_by,
        "bytes": measured.num_bytes,
        "lines": asdict(summaries["line"]) if summaries["line"] else None,
        "bodies": asdict(summaries["body"]) if summaries["body"] else None,
        "certainty": {kind: describe_sureness(measured.outcomes_of(kind)) for kind in KINDS},
        "judge": measured.judge.as_json() if measured.judge else None,
    }
