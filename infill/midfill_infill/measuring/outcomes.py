"""Keeps outcomes of measured fills, one file per model; fits certainties and judges to them. Stores no source text."""

import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from midfill_engine.wire import BASE, ModelInfo
from midfill_infill.config import locked_for_change, replace_file
from midfill_infill.errors import MidfillError, advise_on_space
from midfill_infill.filling import certainty
from midfill_infill.filling.certainty import KINDS, Evidence, Fit, Kind
from midfill_infill.measuring.judging import ComparedText, JudgeFit, fit_judge

FRESH_S: Final = 24 * 3600.0  # so long a later run takes an outcome instead of filling the gap again
MAX_FITTED: Final = 600  # a fit uses so many of the latest fills of a kind
MAX_KEPT: Final = 4 * MAX_FITTED  # a file with more than twice as many outcomes is cut to so many of the latest


@dataclass(frozen=True)
class GapOutcome:
    """The outcome of one fill; the fields are the keys of the stored lines. `gap` is the gap's id, `group` the path of
    its file. `is_right`: the fill is the text that was there; `similar`: how similar it is to that, in [0, 1];
    `parses`: it adds no syntax error; `passes`: the user's command passes with it, None if unknown.

    `preview_s` and `end_s` are the seconds from the request to the first text and to the end; `num_bytes` is the
    engine's memory in bytes, None if unknown. `told` is the engine's own certainty, a probability or None; `compared`
    are the texts that it compared for a line. `error` is the code of a failure, "" without one. `model` is the model's
    name in the engine's answers, `how` the settings in words, `at` the time, in seconds since 1970.
    """

    gap: str
    kind: Kind
    group: str
    is_right: bool = False
    similar: float = 0.0
    parses: bool = False
    preview_s: float | None = None
    end_s: float = 0.0
    num_bytes: int | None = None
    told: float | None = None
    evidence: Evidence = Evidence()
    compared: tuple[ComparedText, ...] = ()
    passes: bool | None = None
    error: str = ""
    model: str = ""
    how: str = ""
    at: float = 0.0

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "GapOutcome":
        compared = tuple(ComparedText(**text) for text in values.get("compared", ()))
        return cls(**{**values, "evidence": Evidence(**values["evidence"]), "compared": compared})


class Store:
    """The outcomes of one engine's model, the latest one of each gap. Appends each outcome to its file at once, so an
    abort loses none. `model` is the name in the engine's answers, which may change.
    """

    def __init__(self, info: ModelInfo) -> None:
        self._info = info
        name = hashlib.sha256(certainty.key_of(info).encode()).hexdigest()[:16]
        self._path = certainty.folder() / f"{name}.jsonl"
        self._outcomes: dict[str, GapOutcome] = {}
        with suppress(OSError), locked_for_change(self._path):
            lines = self._path.read_text(encoding="utf-8", errors="replace").splitlines()
            for line in lines:
                with suppress(ValueError, TypeError, KeyError):  # it was cut off by an abort, or is of another version
                    self._put(GapOutcome.from_json(json.loads(line)))
            if len(lines) > 2 * MAX_KEPT:
                latest = list(self._outcomes.values())[-MAX_KEPT:]
                replace_file(self._path, "".join(map(_dump, latest)).encode())

    def _put(self, outcome: GapOutcome) -> None:
        """Adds an outcome as the latest one."""
        self._outcomes.pop(outcome.gap, None)
        self._outcomes[outcome.gap] = outcome

    def find(self, gap: str, model: str, how: str) -> GapOutcome | None:
        """The outcome of the gap with the id `gap`, if `model` filled it within a day with the settings `how`."""
        outcome = self._outcomes.get(gap)
        if outcome is None or (outcome.model, outcome.how) != (model, how):
            return None
        return outcome if outcome.at > time.time() - FRESH_S else None

    def add(self, outcome: GapOutcome) -> None:
        """Keeps an outcome. Raises MidfillError `write_failed` if the file cannot be written."""
        self._put(outcome)
        with _raising_write_failed(self._path), locked_for_change(self._path):
            with open(self._path, "a", encoding="utf-8", opener=partial(os.open, mode=0o600)) as file:
                file.write(_dump(outcome))

    def fit(self, model: str) -> JudgeFit | None:
        """Fits certainties to the outcomes of `model`, and weights that decide among the texts of a line. Keeps both.
        Returns the fit of the weights, None if the shipped ones stay. Raises MidfillError `write_failed`.
        """
        fits: dict[Kind, Fit] = {}
        filled = [outcome for outcome in self._outcomes.values() if outcome.model == model and not outcome.error]
        for kind in KINDS:
            fills = [outcome for outcome in filled if outcome.kind == kind][-MAX_FITTED:]
            if rate_if_better(fills) is not None:
                fits[kind] = certainty.fit([(outcome.evidence, outcome.is_right) for outcome in fills])
        judge = None
        if self._info.id != BASE:  # the shipped weights were fitted to BASE on more lines
            lines = [outcome for outcome in filled if outcome.compared][-MAX_FITTED:]
            judge = fit_judge([outcome.compared for outcome in lines], [outcome.group for outcome in lines])
        with _raising_write_failed(self._path):
            certainty.save(self._info, model, fits, judge.weights if judge else None)
        return judge


def _dump(outcome: GapOutcome) -> str:
    """A line of the file. It begins with the line break, because an abort may have cut off the line before."""
    return f"\n{json.dumps(asdict(outcome))}"


@contextmanager
def _raising_write_failed(path: Path) -> Iterator[None]:
    """Raises MidfillError `write_failed`, with the folder of `path`, in place of OSError."""
    try:
        yield
    except OSError as error:
        message = f"what was measured cannot be kept in {path.parent} ({os.strerror(error.errno or 0)})"
        next_step = advise_on_space(error) or "make it writable, or set XDG_DATA_HOME to another folder"
        raise MidfillError("write_failed", message, next_step) from error


def rate_if_better(fills: Sequence[GapOutcome]) -> list[float] | None:
    """The certainty of each fill, by a fit to fills in other files. None if there are too few fills or files, or if the
    engine tells certainties for all fills that are at least as good.
    """
    groups = [outcome.group for outcome in fills]
    if len(fills) < certainty.MIN_MEASURED or len(set(groups)) < 2:
        return None
    rights = [outcome.is_right for outcome in fills]
    rated = certainty.rate_unseen([(outcome.evidence, outcome.is_right) for outcome in fills], groups)
    engine_rated = [outcome.told for outcome in fills if outcome.told is not None]
    is_better = len(engine_rated) < len(fills) or certainty.lose(rated, rights) < certainty.lose(engine_rated, rights)
    return rated if is_better else None
