"""Finds the line of a candidate that a failure points at, and turns it into a hole. Asks no engine."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import accumulate

from midfill_engine import wire
from midfill_infill.errors import MidfillError
from midfill_infill.filling.candidates import Alternative, Answer, Place, PlacedFill
from midfill_infill.filling.reroll import put_drafts
from midfill_infill.sandbox.runner import Ran
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Hole, Patch


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
    starts = _first_lines(document, candidate)
    for failure in ran.failures:
        for frame in reversed(failure.frames):
            if not where(frame.path):
                continue
            for index, (fill, first) in enumerate(zip(candidate.fills, starts, strict=True)):
                if 0 <= frame.line - first <= fill.text.count("\n"):
                    return _fault(candidate, index, frame.line - first)
    returns = [
        (index, number)
        for index, fill in enumerate(candidate.fills)
        for number, line in enumerate(fill.text.split("\n"))
        if line.lstrip().startswith("return ")
    ]
    return _fault(candidate, *returns[0]) if ran.failures and len(returns) == 1 else None


def _first_lines(document: Document, candidate: Alternative) -> list[int]:
    """For each fill the line, from 1, of the filled document on which its text begins."""
    found, added = [], 0
    for fill, edit in zip(candidate.fills, candidate.patch.edits, strict=True):
        found.append(document.lines.at(edit.start_byte) + 1 + added + fill.hole.lead.count("\n"))
        old = document.data[edit.start_byte : edit.end_byte]
        added += edit.replacement.count(b"\n") - old.count(b"\n")
    return found


def _fault(candidate: Alternative, index: int, number: int) -> Fault | None:
    lines = candidate.fills[index].text.split("\n")
    if len([line for line in lines if line.strip()]) < 2:
        return None
    start = list(accumulate((len(line) + 1 for line in lines), initial=0))[number]
    text = lines[number].strip()
    start += len(lines[number]) - len(lines[number].lstrip())
    return Fault(index, (start, start + len(text)), text) if text else None


def reopen(
    document: Document, candidate: Alternative, index: int, span: tuple[int, int] | None
) -> tuple[Document, Hole]:
    """Puts the candidate into the document and opens one of its holes again; all of its text but `span` is anchors."""
    others = [edit for number, edit in enumerate(candidate.patch.edits) if number != index]
    fill = candidate.fills[index]
    patch = Patch(tuple(others))
    around = document.put(patch)
    start = patch.shift(fill.hole.start_byte)
    hole = replace(fill.hole, start_byte=start, end_byte=start + fill.hole.end_byte - fill.hole.start_byte)
    if span is None:
        return around, hole
    keep = [(start, end) for start, end in ((0, span[0]), (span[1], len(fill.text))) if fill.text[start:end].strip()]
    opened, (hole,) = put_drafts(around, (hole,), [(fill.text, keep)])
    return opened, replace(hole, lead="", tail="")


def put_together(place: Place, candidate: Alternative, index: int, fill: PlacedFill) -> Alternative | None:
    """The candidate with another text in one hole; None if the text does not fit."""
    answers = []
    for each in (*candidate.fills[:index], fill, *candidate.fills[index + 1 :]):
        tokens, confidence = list(each.tokens), list(each.confidence)
        filled = wire.FilledHole(text=each.text, tokens=tokens, confidence=confidence, certainty=each.certainty)
        answers.append(Answer(filled, each.origin))
    try:
        return place.row(answers).candidate
    except MidfillError:
        return None
