"""How fills of gaps turned out, kept from run to run: one file per model in the user's data folder. Holds no code."""

import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from midfill_engine.wire import BASE, ModelInfo
from midfill_infill.errors import MidfillError
from midfill_infill.filling import certainty
from midfill_infill.filling.certainty import KINDS, Evidence, Fit, Kind
from midfill_infill.measuring.judging import ComparedText, JudgeFit, fit_judge

FRESH_S: Final = 24 * 3600.0
MOST_KEPT: Final = 600  # fills of one kind, the latest


@dataclass(frozen=True)
class GapOutcome:
    """One fill of a gap. `group` names the file; `similar` is in [0, 1]; `preview_s` and `end_s` count from the request
    to the first text and to the end; `num_bytes` is the engine's memory, None if unknown. `told` is the engine's own
    certainty, `compared` the texts that it compared for a line. `passes`: the user's command passed, None if it was not
    run. `error` is the code of a failure. `model`
    is how the model names itself, `how` names the settings, and `at` is when, in seconds since 1970.
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
        compared = tuple(ComparedText(**each) for each in values.get("compared", ()))
        return cls(**{**values, "evidence": Evidence(**values["evidence"]), "compared": compared})


class Store:
    """The outcomes of one model, the latest of each gap. Every one is written at once, so an end loses nothing."""

    def __init__(self, info: ModelInfo) -> None:
        self._info = info
        name = hashlib.sha256(certainty.key_of(info).encode()).hexdigest()[:16]
        self._path = certainty.folder() / f"{name}.jsonl"
        self._known: dict[str, GapOutcome] = {}
        for line in _read_lines(self._path):
            try:
                self._put(GapOutcome.from_json(json.loads(line)))
            except (ValueError, TypeError, KeyError):  # cut off by an end, or of another version
                continue

    def _put(self, outcome: GapOutcome) -> None:
        self._known.pop(outcome.gap, None)
        self._known[outcome.gap] = outcome

    def find(self, gap: str, model: str, how: str) -> GapOutcome | None:
        """The outcome of a gap, filled within a day by the same model with the same settings."""
        known = self._known.get(gap)
        is_same = known is not None and (known.model, known.how) == (model, how)
        return known if known and is_same and known.at > time.time() - FRESH_S else None

    def add(self, outcome: GapOutcome) -> None:
        """Raises MidfillError if it cannot be kept."""
        self._put(outcome)
        with _told_if_not_kept(self._path):
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with open(self._path, "a", encoding="utf-8", opener=_open_own) as file:
                file.write(json.dumps(asdict(outcome)) + "\n")

    def fit(self, model: str) -> JudgeFit | None:
        """Fits how likely a fill of this model is right, from all its outcomes, and what decides among its lines, and
        keeps both for later fills; returns the latter, None for what ships. Raises MidfillError if they cannot be kept.
        """
        fits: dict[Kind, Fit] = {}
        for kind in KINDS:
            ours = [each for each in self._known.values() if each.kind == kind and each.model == model]
            seen = [each for each in ours if not each.error][-MOST_KEPT:]
            if len(seen) >= certainty.MIN_MEASURED and rate_better(seen) is not None:
                fits[kind] = certainty.fit([(each.evidence, each.is_right) for each in seen])
        judge = self._fit_judge(model)
        with _told_if_not_kept(self._path):
            certainty.save(self._info, model, fits, judge.weights if judge else None)
        return judge

    def _fit_judge(self, model: str) -> JudgeFit | None:
        """None for the default model: what ships was fitted for it, on more lines."""
        if self._info.id == BASE:
            return None
        lines = [each for each in self._known.values() if each.compared and each.model == model][-MOST_KEPT:]
        return fit_judge([each.compared for each in lines], [each.group for each in lines])


@contextmanager
def _told_if_not_kept(path: Path) -> Iterator[None]:
    """Raises MidfillError in place of OSError."""
    try:
        yield
    except OSError as error:
        message = f"what was measured cannot be kept in {path.parent} ({os.strerror(error.errno or 0)})"
        raise MidfillError(
            "write_failed", message, "make it writable, or set XDG_DATA_HOME to another folder"
        ) from error


def _open_own(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def rate_better(seen: Sequence[GapOutcome]) -> list[float] | None:
    """The certainty of each fill, fitted on fills in other files; None if the engine's own is as close to what was
    right.
    """
    rights = [each.is_right for each in seen]
    rated = certainty.rate_unseen([(each.evidence, each.is_right) for each in seen], [each.group for each in seen])
    if any(each.told is None for each in seen):
        return rated
    own = certainty.lose([each.told or 0.0 for each in seen], rights)
    return rated if certainty.lose(rated, rights) < own else None


def _read_lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return []
