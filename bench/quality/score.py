"""Scores completions by tests, exact match, similarity and parsing, with intervals over problems. Knows no engine."""

import ast
import difflib
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bench.quality.sandbox import Limits, Verdict, Wall, run_programs
from bench.quality.suite import Task
from midfill_infill.measuring.table import wilson

NUM_DRAWS = 2000


@dataclass(frozen=True)
class Score:
    """One task. `passed` is None without tests, `parses` is None if the language is not Python."""

    group: str
    passed: bool | None
    why: str
    exact: bool
    similarity: float
    parses: bool | None


@dataclass(frozen=True)
class Share:
    """A mean over tasks in percent with its 95 % interval over problems."""

    percent: float
    low: float
    high: float


def score(
    tasks: Sequence[Task], texts: Mapping[str, str], limits: Limits | None = None, wall: Wall | None = None
) -> list[Score]:
    """One score per task, in order. Texts are compared without surrounding white space."""
    parsed = {task.id: _parses(task, texts[task.id]) for task in tasks}
    programs = {}
    for task in tasks:
        if task.tests is not None and parsed[task.id] is not False:
            programs[task.id] = task.program(texts[task.id]) + task.tests
    verdicts = run_programs(programs, limits, wall)
    scores = []
    for task in tasks:
        text, middle = texts[task.id].strip(), task.middle.strip()
        passed, why = _judge(task, verdicts)
        similarity = difflib.SequenceMatcher(None, text, middle, autojunk=False).ratio()
        scores.append(Score(task.group, passed, why, text == middle, similarity, parsed[task.id]))
    return scores


def _judge(task: Task, verdicts: Mapping[str, Verdict]) -> tuple[bool | None, str]:
    """Whether the tests passed, None without any, and why not."""
    if task.tests is None:
        return None, "no tests"
    if task.id not in verdicts:
        return False, "syntax"
    return verdicts[task.id].passed, verdicts[task.id].why


def _parses(task: Task, text: str) -> bool | None:
    if task.language != "python":
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            ast.parse(task.program(text))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return False
    return True


def share(values: Sequence[float], groups: Sequence[str]) -> Share:
    """The mean of `values` in [0, 1], bootstrapped over whole groups.

    If all values are 0 or all are 1 the bootstrap interval is a point, so Wilson's with a trial per group replaces it.
    """
    mean = float(np.mean(values))
    if mean in (0.0, 1.0):
        num_groups = len(set(groups))
        low, high = wilson(round(mean * num_groups), num_groups)
    else:
        low, high = _bootstrap(values, groups)
    return Share(*(round(100 * number, 2) for number in (mean, low, high)))


def difference(first: Sequence[float], second: Sequence[float], groups: Sequence[str]) -> Share:
    """The mean difference of `first` and `second` in points, with the interval of paired differences over groups."""
    gains = np.asarray(first, dtype=float) - np.asarray(second, dtype=float)
    low, high = _bootstrap(gains.tolist(), groups)
    return Share(*(round(100 * number, 2) for number in (float(gains.mean()), low, high)))


def _bootstrap(values: Sequence[float], groups: Sequence[str]) -> tuple[float, float]:
    """The interval of the mean of `values`, over whole groups."""
    index = {group: place for place, group in enumerate(dict.fromkeys(groups))}
    places = [index[group] for group in groups]
    totals = np.bincount(places, values)
    counts = np.bincount(places)
    drawn = np.random.default_rng(0).integers(0, len(totals), (NUM_DRAWS, len(totals)))
    means = totals[drawn].sum(axis=1) / counts[drawn].sum(axis=1)
    low, high = np.quantile(means, (0.025, 0.975))
    return float(low), float(high)


def failures(scores: Sequence[Score]) -> dict[str, int]:
    """Counts of the reasons why programs failed, most common first."""
    return dict(Counter(row.why for row in scores if row.passed is False).most_common(8))
