"""Measures a model and the floors on a suite under every length condition, side by side. Prints and draws nothing."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bench.quality.calibration import Calibration, calibrate, settled_tokens, whole_fills
from bench.quality.complete import FIXED_LENGTHS, Completer, Completion, Condition
from bench.quality.floors import Fill
from bench.quality.kept import Kept
from bench.quality.sandbox import Limits, Wall
from bench.quality.score import Score, Share, difference, failures, score, share
from bench.quality.suite import Suite, Task

Note = Callable[[str], None]


@dataclass(frozen=True)
class Row:
    """One line of the table. `pass_at_1` is None without tests, `parses` is None if the language is not Python.

    `num_refused` gaps were larger than the model fills and count as failures. `token_calibration` is over the visible
    tokens of all fills, `fill_calibration` over whole fills: right is passing the tests, or else being exact.
    """

    name: str
    length: str
    sees_suffix: bool
    is_floor: bool
    pass_at_1: Share | None
    exact_match: Share
    edit_similarity: Share
    parses: Share | None
    num_refused: int = 0
    median_ms: float | None = None
    failures: dict[str, int] = field(default_factory=dict)
    token_calibration: Calibration | None = None
    fill_calibration: Calibration | None = None


@dataclass(frozen=True)
class Difference:
    """`first` minus `second` in points, of pass@1, or of exact match where there are no tests; paired over problems."""

    first: str
    second: str
    metric: str
    points: Share


@dataclass(frozen=True)
class Measured:
    """A row with the single scores that it sums up: `success` is pass@1, or exact match where there are no tests."""

    row: Row
    success: tuple[float, ...]
    completions: tuple[Completion, ...] = ()


def conditions(lengths: Sequence[str], *, ablate_suffix: bool = True) -> list[Condition]:
    """`own`, `oracle` and `fixed` (five lengths); own and oracle also without the suffix. Raises ValueError."""
    chosen: list[Condition] = []
    for name in lengths:
        match name:
            case "own" | "oracle":
                chosen.append(Condition(name))
                if ablate_suffix:
                    chosen.append(Condition(name, sees_suffix=False))
            case "fixed":
                chosen += map(Condition, FIXED_LENGTHS)
            case _:
                raise ValueError(f"There is no length condition named {name!r}; known: fixed, oracle, own.")
    return chosen


def measure_model(
    completer: Completer,
    suite: Suite,
    wanted: Sequence[Condition],
    *,
    kept: Kept | None = None,
    num_threads: int = 4,
    limits: Limits | None = None,
    wall: Wall | None = None,
    note: Note = lambda _: None,
) -> list[Measured]:
    """A row per condition, and the mean of the fixed lengths if all of them are wanted. Raises MidfillError."""
    measured: list[Measured] = []
    fixed: list[list[Score]] = []
    for condition in wanted:
        started_s = time.perf_counter()
        completions = complete(completer, suite.tasks, condition, kept, num_threads)
        scores = _score(suite.tasks, [completion.text for completion in completions], limits, wall)
        row = row_of(condition.name, scores, condition.shown_length, condition.sees_suffix, completions)
        measured.append(Measured(row, success_of(scores), completions))
        note(f"{condition.name}: {len(completions)} gaps in {time.perf_counter() - started_s:.0f} s")
        if isinstance(condition.length, int):
            fixed.append(scores)
    if len(fixed) == len(FIXED_LENGTHS):
        measured.append(_mean_of_fixed(fixed))
    return measured


def complete(
    completer: Completer, tasks: Sequence[Task], condition: Condition, kept: Kept | None, num_threads: int
) -> tuple[Completion, ...]:
    """One completion per task, in order; kept ones are not requested again. Raises MidfillError."""

    def one(task: Task) -> Completion:
        known = kept.get(condition.name, task.id) if kept else None
        if known is not None:
            return known
        completion = completer.fill(task, condition)
        if kept is not None:
            kept.put(condition.name, task.id, completion)
        return completion

    pool = ThreadPoolExecutor(num_threads)
    try:
        return tuple(pool.map(one, tasks))
    finally:
        pool.shutdown(cancel_futures=True)


def measure_floors(
    floors: Mapping[str, Fill], suite: Suite, limits: Limits | None = None, wall: Wall | None = None
) -> list[Measured]:
    """A row for every floor. None of them knows the length."""
    measured = []
    for name, fill in floors.items():
        scores = _score(suite.tasks, [fill(task) for task in suite.tasks], limits, wall)
        measured.append(Measured(row_of(name, scores, "own", True, is_floor=True), success_of(scores)))
    return measured


def compare(measured: Sequence[Measured], suite: Suite) -> list[Difference]:
    """The gain of the true length, the gain of the suffix, and the lead of each length over the best floor."""
    rows = {result.row.name: result for result in measured}
    floors = [result for result in measured if result.row.is_floor]
    pairs = [("oracle", "own"), ("own", "own, no suffix"), ("oracle", "oracle, no suffix")]
    if floors:
        best = max(floors, key=lambda result: sum(result.success)).row.name
        pairs += [("own", best), ("oracle", best)]
    groups = [task.group for task in suite.tasks]
    metric = "exact match" if any(task.tests is None for task in suite.tasks) else "pass@1"
    return [
        Difference(first, second, metric, difference(rows[first].success, rows[second].success, groups))
        for first, second in pairs
        if first in rows and second in rows
    ]


def _score(tasks: Sequence[Task], texts: Sequence[str], limits: Limits | None, wall: Wall | None) -> list[Score]:
    return score(tasks, {task.id: text for task, text in zip(tasks, texts, strict=True)}, limits, wall)


def success_of(scores: Sequence[Score]) -> tuple[float, ...]:
    columns = _columns(scores)
    return tuple(columns["pass_at_1"] or columns["exact_match"])


def row_of(
    name: str,
    scores: Sequence[Score],
    length: str,
    sees_suffix: bool,
    completions: Sequence[Completion] = (),
    is_floor: bool = False,
) -> Row:
    groups = [row.group for row in scores]
    success = success_of(scores)
    fill_calibration, median_ms = None, None
    if completions:
        fill_calibration = calibrate(whole_fills(completions, [value == 1.0 for value in success]))
        median_ms = round(statistics.median(completion.ms for completion in completions), 1)
    return Row(
        name=name,
        length=length,
        sees_suffix=sees_suffix,
        is_floor=is_floor,
        **_shares(_columns(scores), groups),
        num_refused=sum(completion.refusal is not None for completion in completions),
        median_ms=median_ms,
        failures=failures(scores),
        token_calibration=calibrate(settled_tokens(completions)),
        fill_calibration=fill_calibration,
    )


def _columns(scores: Sequence[Score]) -> dict[str, list[float]]:
    """The values of every task by the name of their share in a row; none where they are not known of all tasks."""
    passed = [row.passed for row in scores]
    parses = [row.parses for row in scores]
    return {
        "pass_at_1": [] if None in passed else [float(bool(value)) for value in passed],
        "exact_match": [float(row.exact) for row in scores],
        "edit_similarity": [row.similarity for row in scores],
        "parses": [] if None in parses else [float(bool(value)) for value in parses],
    }


def _shares(columns: Mapping[str, Sequence[float]], groups: Sequence[str]) -> dict[str, Any]:
    return {name: share(values, groups) if values else None for name, values in columns.items()}


def _mean_of_fixed(fixed: Sequence[Sequence[Score]]) -> Measured:
    """Each task counts with its mean over the lengths, so the interval is over problems still."""
    columns = [_columns(scores) for scores in fixed]
    means = {name: np.mean([of_length[name] for of_length in columns], axis=0).tolist() for name in columns[0]}
    groups = [row.group for row in fixed[0]]
    length = f"fixed, mean of {', '.join(map(str, FIXED_LENGTHS))}"
    row = Row(name="fixed", length=length, sees_suffix=True, is_floor=False, **_shares(means, groups))
    return Measured(row, tuple(means["pass_at_1"] or means["exact_match"]))
