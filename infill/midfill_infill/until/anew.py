"""Finds the line of a candidate that a failure points at, and turns it into a hole. Asks no engine."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from midfill_engine import wire
from midfill_infill.errors import MidfillError
from midfill_infill.filling.candidates import Alternative, Answer, CandidateSelector, PlacedFill
from midfill_infill.filling.reroll import put_drafts
from midfill_infill.sandbox.failures import Failure
from midfill_infill.sandbox.runner import Ran
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Hole, Patch, find_gaps


@dataclass(frozen=True)
class Fault:
    """The faulty line of a candidate: the index of its hole, the `span` of the line in the fill's text, and the line
    itself, both without the indentation; and the failure that points at it.
    """

    hole_index: int
    span: tuple[int, int]
    line: str
    failure: Failure


def find_fault(
    document: Document, candidate: Alternative, ran: Ran, is_document: Callable[[str], bool]
) -> Fault | None:
    """The line of a candidate that probably made a run fail: the last frame of a traceback that is in a hole, for the
    first failure that has one. If there are failures and no such frame, it is the only `return` of all fills.

    None if there is no such line, and if its fill has no other line. `is_document` tells whether a path that a
    traceback shows is the document.
    """
    first_lines = _first_lines(document, candidate)
    for failure in ran.failures:
        for frame in reversed(failure.frames):
            if not is_document(frame.path):
                continue
            for hole_index, (fill, first) in enumerate(zip(candidate.fills, first_lines, strict=True)):
                if 0 <= frame.line - first <= fill.text.count("\n"):
                    return _make_fault(candidate, hole_index, frame.line - first, failure)
    returns: list[tuple[int, int]] = []
    for hole_index, fill in enumerate(candidate.fills):
        for line_index, line in enumerate(fill.text.split("\n")):
            if line.lstrip().startswith("return "):
                returns.append((hole_index, line_index))
    if not ran.failures or len(returns) != 1:
        return None
    return _make_fault(candidate, *returns[0], ran.failures[0])


def _first_lines(document: Document, candidate: Alternative) -> list[int]:
    """For each fill the line of the filled document on which its text begins; lines count from 1."""
    first_lines: list[int] = []
    num_added = 0
    for fill, edit in zip(candidate.fills, candidate.patch.edits, strict=True):
        line = document.lines.at(edit.start_byte) + 1
        first_lines.append(line + num_added + fill.hole.lead.count("\n"))
        replaced = document.data[edit.start_byte : edit.end_byte]
        num_added += edit.replacement.count(b"\n") - replaced.count(b"\n")
    return first_lines


def _make_fault(candidate: Alternative, hole_index: int, line_index: int, failure: Failure) -> Fault | None:
    """The fault in a line of a fill; None if the line is blank or the fill's only one."""
    lines = candidate.fills[hole_index].text.split("\n")
    if sum(bool(line.strip()) for line in lines) < 2:
        return None
    line = lines[line_index]
    text = line.strip()
    if not text:
        return None
    start = sum(len(before) + 1 for before in lines[:line_index])
    start += len(line) - len(line.lstrip())
    return Fault(hole_index, (start, start + len(text)), text, failure)


def reopen(
    document: Document, candidate: Alternative, index: int, span: tuple[int, int] | None
) -> tuple[Document, Hole]:
    """Puts a candidate into the document, and opens the hole `index` again. Returns the new document and this hole: its
    text outside of `span` becomes anchors. Without `span` the hole is as it was, without the candidate's text.
    """
    edits = list(candidate.patch.edits)
    del edits[index]
    patch = Patch(tuple(edits))
    around = document.with_patch(patch)
    fill = candidate.fills[index]
    size = fill.hole.end_byte - fill.hole.start_byte
    start = patch.shift(fill.hole.start_byte)
    hole = replace(fill.hole, start_byte=start, end_byte=start + size)
    if span is None:
        return around, hole
    gaps = find_gaps([span], len(fill.text))
    keep = [(first, last) for first, last in gaps if fill.text[first:last].strip()]
    opened, (hole,) = put_drafts(around, (hole,), [(fill.text, keep)])
    return opened, replace(hole, lead="", tail="")


def put_together(
    selector: CandidateSelector, candidate: Alternative, index: int, fill: PlacedFill
) -> Alternative | None:
    """The candidate with `fill` in its hole `index`; None if the texts cannot be inserted together."""
    fills = list(candidate.fills)
    fills[index] = fill
    answers: list[Answer] = []
    for placed in fills:
        filled = wire.FilledHole(
            text=placed.text,
            tokens=list(placed.tokens),
            confidence=list(placed.confidence),
            certainty=placed.certainty,
            cut_at=placed.cut_at,
        )
        answers.append(Answer(filled, placed.origin))
    try:
        made = selector.splice(answers).candidate
    except MidfillError:
        return None
    rated: list[PlacedFill] = []
    for placed, earlier in zip(made.fills, fills, strict=True):
        rated.append(replace(placed, engine_certainty=earlier.engine_certainty, is_exempt=earlier.is_exempt))
    return replace(made, fills=tuple(rated))
