"""Finds the line of a candidate that a failure points at, and turns it into a hole. Asks no engine."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from midfill_engine import wire
from midfill_infill.errors import MidfillError
from midfill_infill.filling.candidates import Alternative, Answer, Place, PlacedFill
from midfill_infill.filling.reroll import put_drafts
from midfill_infill.sandbox.runner import Ran
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Hole, Patch, find_gaps


@dataclass(frozen=True)
class Fault:
    """The faulty line of a candidate: its hole, and its characters without the indentation."""

    hole: int
    span: tuple[int, int]
    line: str


def find_fault(document: Document, candidate: Alternative, ran: Ran, where: Callable[[str], bool]) -> Fault | None:
    """The line of the first failure's last frame that is in a hole; otherwise the only `return`. None if no single line
    is suspect, or the text has only one line.
    """
    first_lines = _first_lines(document, candidate)
    for failure in ran.failures:
        for frame in reversed(failure.frames):
            if not where(frame.path):
                continue
            for index, (fill, first) in enumerate(zip(candidate.fills, first_lines, strict=True)):
                if 0 <= frame.line - first <= fill.text.count("\n"):
                    return _fault(candidate, index, frame.line - first)
    returns: list[tuple[int, int]] = []
    for index, fill in enumerate(candidate.fills):
        for number, line in enumerate(fill.text.split("\n")):
            if line.lstrip().startswith("return "):
                returns.append((index, number))
    if not ran.failures or len(returns) != 1:
        return None
    return _fault(candidate, *returns[0])


def _first_lines(document: Document, candidate: Alternative) -> list[int]:
    """For each fill the line, from 1, of the filled document on which its text begins."""
    first_lines: list[int] = []
    num_added = 0
    for fill, edit in zip(candidate.fills, candidate.patch.edits, strict=True):
        line = document.lines.at(edit.start_byte) + 1
        first_lines.append(line + num_added + fill.hole.lead.count("\n"))
        replaced = document.data[edit.start_byte : edit.end_byte]
        num_added += edit.replacement.count(b"\n") - replaced.count(b"\n")
    return first_lines


def _fault(candidate: Alternative, index: int, number: int) -> Fault | None:
    """A line of a candidate; None if it is blank or the only one."""
    lines = candidate.fills[index].text.split("\n")
    if len(list(filter(str.strip, lines))) < 2:
        return None
    line = lines[number]
    text = line.strip()
    if not text:
        return None
    start = sum(len(before) + 1 for before in lines[:number])
    start += len(line) - len(line.lstrip())
    return Fault(index, (start, start + len(text)), text)


def reopen(
    document: Document, candidate: Alternative, index: int, span: tuple[int, int] | None
) -> tuple[Document, Hole]:
    """Puts the candidate into the document and opens one of its holes again; all of its text but `span` is anchors."""
    edits = list(candidate.patch.edits)
    del edits[index]
    patch = Patch(tuple(edits))
    around = document.put(patch)
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


def put_together(place: Place, candidate: Alternative, index: int, fill: PlacedFill) -> Alternative | None:
    """The candidate with another text in one hole; None if the text does not fit."""
    fills = list(candidate.fills)
    fills[index] = fill
    answers: list[Answer] = []
    for placed in fills:
        filled = wire.FilledHole(
            text=placed.text,
            tokens=list(placed.tokens),
            confidence=list(placed.confidence),
            certainty=placed.certainty,
        )
        answers.append(Answer(filled, placed.origin))
    try:
        made = place.row(answers).candidate
    except MidfillError:
        return None
    rated: list[PlacedFill] = []
    for placed, known in zip(made.fills, fills, strict=True):
        rated.append(replace(placed, told=known.told, is_exempt=known.is_exempt))
    return replace(made, fills=tuple(rated))
