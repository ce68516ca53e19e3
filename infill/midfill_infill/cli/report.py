"""The JSON that `midfill fill --json` prints. Knows no terminal."""

import json
from typing import TYPE_CHECKING, Any

from midfill_infill.candidates import Alternative, PlacedFill
from midfill_infill.cli.results import Results, write_bytes
from midfill_infill.text.document import Document
from midfill_infill.text.visible import encodable

if TYPE_CHECKING:
    from midfill_infill.until.trying import Try


def print_json(results: Results, *, wall_ms: float, written: bool) -> None:
    report = report_fill(results, wall_ms=wall_ms, written=written)
    write_bytes(json.dumps(report, ensure_ascii=False).encode() + b"\n")


def report_fill(results: Results, *, wall_ms: float, written: bool) -> dict[str, Any]:
    """`new_errors` counts the syntax errors that the patch adds; `alternatives` are the other fills, best first.

    `written` says that a hole is in the file now. `ms` is the engine's time, `wall_ms` the command's. With `--until`,
    `tries` are all runs of the command in their order, and `passes` says whether the fill passed.
    """
    best, *others = (_candidate(results, candidate) for candidate in results.candidates)
    for at, hole in enumerate(best["holes"]):
        hole["written"] = written and at not in results.held_back
    stats, tried = results.filled.stats, results.tried
    return {
        "file": encodable(str(results.path)),
        "model": results.filled.model,
        **best,
        "alternatives": others,
        "stats": stats.model_dump(exclude={"context_tokens"})
        | {"ms": round(stats.ms, 1), "wall_ms": round(wall_ms, 1)},
        "written": any(hole["written"] for hole in best["holes"]),
        "passes": None if tried is None else tried.passed,
        "tries": None if tried is None else [_try(each) for each in tried.tries],
    }


def _candidate(results: Results, candidate: Alternative) -> dict[str, Any]:
    return {
        "new_errors": candidate.new_errors,
        "holes": [_hole(results.document, fill) for fill in candidate.fills],
        "diff": results.diff(candidate).decode(results.document.encoding, "replace"),
    }


def _hole(document: Document, filled: PlacedFill) -> dict[str, Any]:
    """`line` and `column` from 1; `confidence[i]` is of `text[slice(*tokens[i])]`; `certainty` is the probability that
    the whole text is right, null where the engine does not say. `origin` says in words where the text comes from. In a
    notebook all places count in the source of `cell`, by its number from 1.
    """
    line, column = document.position_at(filled.hole.start_byte)
    cell, first = document.cell_at(filled.hole.start_byte)
    return {
        "name": encodable(filled.hole.name) if filled.hole.name else None,
        "kind": filled.hole.kind,
        "start_byte": filled.hole.start_byte - first,
        "end_byte": filled.hole.end_byte - first,
        "line": line,
        "column": column,
        "text": filled.text,
        "tokens": filled.tokens,
        "confidence": [round(score, 4) for score in filled.confidence],
        "certainty": None if filled.certainty is None else round(filled.certainty, 4),
        "origin": filled.origin,
        "cell": cell,
        "written": False,
    }


def _try(each: "Try") -> dict[str, Any]:
    """`texts` has one entry a hole; `code` is null where its time was over; `tests_passed` and `reason` are null where
    the command did not say. `is_warm`: the command was not started anew.
    """
    ran, certainty = each.ran, each.candidate.certainty
    return {
        "number": each.number,
        "verdict": ran.verdict,
        "code": ran.code,
        "seconds": round(ran.seconds, 3),
        "is_warm": ran.is_warm,
        "certainty": None if certainty is None else round(certainty, 4),
        "texts": [fill.text for fill in each.candidate.fills],
        "tests_passed": ran.passed,
        "reason": encodable(ran.failures[0].sentence) if ran.failures else None,
    }
