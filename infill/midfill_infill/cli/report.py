"""The JSON that `midfill fill --json` prints: its schema and how a fill becomes one. Knows no terminal."""

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict

from midfill_infill.candidates import DRAFTED, Candidate, FilledHole
from midfill_infill.fill import Filled
from midfill_infill.text.document import Document

if TYPE_CHECKING:
    from midfill_infill.until.trying import Tried, Try


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class HoleReport(_Part):
    """Where a hole was, `line` and `column` from 1, and its fill; `confidence[i]` is of `text[slice(*tokens[i])]`.

    `certainty` is the probability that the whole text is right; null where the engine does not say. `origin` says in
    words where the text comes from. `written` says that it is in the file now.
    """

    name: str | None
    kind: str
    start_byte: int
    end_byte: int
    line: int
    column: int
    text: str
    tokens: list[tuple[int, int]]
    confidence: list[float]
    certainty: float | None = None
    origin: str = DRAFTED
    written: bool = False


class AlternativeReport(_Part):
    new_errors: int
    holes: list[HoleReport]
    diff: str


class StatsReport(_Part):
    """`ms` is the engine's time, `wall_ms` the command's, an engine's start included."""

    steps: int
    forwards: int
    tokens: int
    ms: float
    cached_context: bool
    wall_ms: float


class TryReport(_Part):
    """One run of the command. `texts` has one entry a hole; `code` is null where its time was over; `tests_passed` and
    `reason` are null where the command did not say. `is_warm`: the command was not started anew.
    """

    number: int
    verdict: str
    code: int | None
    seconds: float
    is_warm: bool
    certainty: float | None
    texts: list[str]
    tests_passed: int | None
    reason: str | None


class FillReport(_Part):
    """`new_errors` counts the syntax errors that the patch adds; `alternatives` are the other fills, best first.

    With `--until`, `tries` are all runs of the command in their order and `passes` says whether the fill passed.
    """

    file: str
    model: str
    new_errors: int
    holes: list[HoleReport]
    alternatives: list[AlternativeReport]
    stats: StatsReport
    diff: str
    written: bool
    passes: bool | None = None
    tries: list[TryReport] | None = None


def report_fill(
    path: Path,
    document: Document,
    filled: Filled,
    diffs: list[str],
    *,
    wall_ms: float,
    written: Collection[int],
    tried: "Tried | None" = None,
) -> FillReport:
    """`diffs` has one entry a candidate, the best first; `written` are the holes of the best that were, by number."""
    best, *others = (
        AlternativeReport(new_errors=candidate.new_errors, holes=_holes(document, candidate), diff=diff)
        for candidate, diff in zip((filled.best, *filled.alternatives), diffs, strict=True)
    )
    return FillReport(
        file=_clean(str(path)),
        model=filled.model,
        new_errors=best.new_errors,
        holes=[hole.model_copy(update={"written": at in written}) for at, hole in enumerate(best.holes)],
        alternatives=others,
        stats=_stats(filled, wall_ms),
        diff=best.diff,
        written=bool(written),
        passes=None if tried is None else tried.passed,
        tries=None if tried is None else [_try(each) for each in tried.tries],
    )


def _try(each: "Try") -> TryReport:
    ran, certainty = each.ran, each.candidate.certainty
    return TryReport(
        number=each.number,
        verdict=ran.verdict,
        code=ran.code,
        seconds=round(ran.seconds, 3),
        is_warm=ran.is_warm,
        certainty=None if certainty is None else round(certainty, 4),
        texts=[fill.text for fill in each.candidate.fills],
        tests_passed=ran.passed,
        reason=_clean(ran.failures[0].sentence) if ran.failures else None,
    )


def _clean(text: str) -> str:
    """Bytes that were no text cannot go into JSON."""
    return text.encode(errors="replace").decode()


def _stats(filled: Filled, wall_ms: float) -> StatsReport:
    stats = filled.stats
    return StatsReport(
        steps=stats.steps,
        forwards=stats.forwards,
        tokens=stats.tokens,
        ms=round(stats.ms, 1),
        cached_context=stats.cached_context,
        wall_ms=round(wall_ms, 1),
    )


def _holes(document: Document, candidate: Candidate) -> list[HoleReport]:
    return [_hole(document, filled) for filled in candidate.fills]


def _hole(document: Document, filled: FilledHole) -> HoleReport:
    line, column = document.position_at(filled.hole.start_byte)
    return HoleReport(
        name=_clean(filled.hole.name) if filled.hole.name else None,
        kind=filled.hole.kind,
        start_byte=filled.hole.start_byte,
        end_byte=filled.hole.end_byte,
        line=line,
        column=column,
        text=filled.text,
        tokens=list(filled.tokens),
        confidence=[round(score, 4) for score in filled.confidence],
        certainty=None if filled.certainty is None else round(filled.certainty, 4),
        origin=filled.origin,
    )
