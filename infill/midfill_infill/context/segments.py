"""Chooses which text around the holes the model sees, within a budget. Knows no model and no tokens.

Imports and headers of enclosing blocks are always shown, then whole lines, nearest to a hole first.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import chain

from midfill_engine.wire import HoleSegment, HoleSpec, Segment, TextSegment
from midfill_infill.context.requests import build_hole, build_text
from midfill_infill.syntax.captures import Function, Outline
from midfill_infill.syntax.holes import is_line_of_code, sort_holes
from midfill_infill.syntax.outline import find_header_end, find_own, outline
from midfill_infill.text.document import Document
from midfill_infill.text.lines import Lines
from midfill_infill.text.spans import Hole

# The largest share of the budget for imports and enclosing headers, and for the text between holes.
HEADER_SHARE, BETWEEN_SHARE = 0.35, 0.75
# This many characters before the holes are shown for each one behind them.
PREFIX_WEIGHT = 2


@dataclass(frozen=True)
class Segments:
    """Text and holes for the engine, and the holes in that order."""

    segments: tuple[Segment, ...]
    holes: tuple[Hole, ...]


def build_segments(document: Document, holes: Sequence[Hole], budget_chars: int) -> Segments:
    """Segments in document order with at most `budget_chars` characters of text; a hole with anchors becomes a draft.

    Raises MidfillError `overlapping_holes`, and `hole_too_large` for over 65,536 characters with anchors or over 1,024
    anchors.
    """
    ordered = sort_holes(document, list(holes))
    stretches = _cut(document, ordered)
    fits = sum(stretch.edge_size for stretch in stretches) <= budget_chars
    most_chars = budget_chars if fits else budget_chars // max(1, 2 * len(ordered))
    left = budget_chars - sum(stretch.keep_edges(most_chars) for stretch in stretches)
    if fits:
        headers = min(left, int(HEADER_SHARE * budget_chars))
        for line in _header_lines(document, ordered):
            for stretch in stretches:
                added = stretch.keep(line - stretch.first_line, headers) or 0
                headers, left = headers - added, left - added
        left -= _keep_nearest(stretches[1:-1], min(left, int(BETWEEN_SHARE * budget_chars)))
        _keep_nearest(stretches, left)
    return Segments(tuple(_lay_out(document, ordered, [stretch.text for stretch in stretches])), ordered)


class _ShownText:
    """The text between two holes, or before the first or after the last. `kept[i]` is the shown part of line `i`."""

    def __init__(self, text: str, first_line: int, *, follows_hole: bool, precedes_hole: bool) -> None:
        self.lines = [line + "\n" for line in text.split("\n")]
        self.lines[-1] = self.lines[-1][:-1]
        self.first_line = first_line
        self.follows_hole, self.precedes_hole = follows_hole, precedes_hole
        edges = (0, follows_hole), (len(self.lines) - 1, precedes_hole)
        self.edge_size = sum(len(self.lines[number]) for number in {number for number, is_edge in edges if is_edge})
        """Characters of the lines that holes stand in."""
        self.kept: list[str | None] = [None] * len(self.lines)

    @property
    def text(self) -> str:
        return "".join(line for line in self.kept if line is not None)

    def keep(self, number: int, room: int) -> int | None:
        """Shows a line. Returns the characters it adds, None if it has more than `room` or there is no such line."""
        if not 0 <= number < len(self.lines):
            return None
        if self.kept[number] is not None:
            return 0
        if len(self.lines[number]) > room:
            return None
        self.kept[number] = self.lines[number]
        return len(self.lines[number])

    def keep_edges(self, most_chars: int) -> int:
        """Shows the lines that holes stand in, at most `most_chars` at each hole. Returns the number of characters."""
        if self.follows_hole:
            self.kept[0] = self.lines[0][:most_chars]
        if self.precedes_hole:
            shown = self.kept[-1] or ""
            rest = self.lines[-1][len(shown) :]
            self.kept[-1] = shown + rest[max(0, len(rest) - most_chars) :]
        return len(self.text)

    def queues(self) -> Iterator[tuple[Iterator[int], int]]:
        """For each hole at its ends, its line numbers outward from that hole, and the weight of this queue."""
        if self.precedes_hole:
            yield iter(reversed(range(len(self.lines)))), 1 if self.follows_hole else PREFIX_WEIGHT
        if self.follows_hole:
            yield iter(range(len(self.lines))), 1


def _keep_nearest(stretches: Sequence[_ShownText], room: int) -> int:
    """Shows lines in proportion to the queues' weights, while they fit. Returns the number of added characters."""
    queues = [(stretch, *queue) for stretch in stretches for queue in stretch.queues()]
    heap, left = [(0.0, number) for number in range(len(queues))], room
    while heap:
        used, number = heappop(heap)
        stretch, lines, weight = queues[number]
        line = next(lines, len(stretch.lines))
        if (size := stretch.keep(line, left)) is not None:
            left -= size
            heappush(heap, (used + len(stretch.lines[line]) / weight, number))
    return room - left


def _cut(document: Document, holes: Sequence[Hole]) -> list[_ShownText]:
    starts = [0, *(hole.end_byte for hole in holes)]
    stops = [*(hole.start_byte for hole in holes), len(document.data)]
    leads, tails = [*(hole.lead for hole in holes), ""], ["", *(hole.tail for hole in holes)]
    return [
        _ShownText(
            tail + document.show(start, stop) + lead,
            document.lines.at(start) - tail.count("\n"),
            follows_hole=number > 0,
            precedes_hole=number < len(holes),
        )
        for number, (start, stop, lead, tail) in enumerate(zip(starts, stops, leads, tails, strict=True))
    ]


def _header_lines(document: Document, holes: Sequence[Hole]) -> list[int]:
    """Lines that are always shown: requested context, headers of enclosing blocks, imports."""
    lines = document.source_lines
    spans = [(document.to_source(start), document.to_source(end)) for hole in holes for start, end in hole.context]
    found = outline(document) if document.syntax else Outline(False, (), (), ())
    for hole in holes:
        own = find_own(document, hole)
        place = own.head if own else document.to_source(hole.start_byte)
        around = [(scope[0], scope[0]) for scope, _ in found.scopes if scope[0] <= place < scope[1]]
        headers = (_header(lines, each) for each in found.functions if each.start <= place < each.end)
        spans += sorted([*around, *headers], reverse=True)
    spans += found.imports
    numbers = (range(lines.at(start), lines.at(max(start, end - 1)) + 1) for start, end in spans)
    return list(dict.fromkeys(chain.from_iterable(numbers)))


def _header(lines: Lines, function: Function) -> tuple[int, int]:
    brace = function.body[0]
    has_brace = lines.data[brace : brace + 1] == b"{"
    return function.start, (brace if has_brace else find_header_end(lines, function)) + 1


def _lay_out(document: Document, holes: Sequence[Hole], texts: Sequence[str]) -> list[Segment]:
    segments: list[Segment] = [build_text(texts[0])] if texts[0] else []
    for hole, text in zip(holes, texts[1:], strict=True):
        segments.append(HoleSegment(hole=_specify(document, hole)))
        if text:
            segments.append(build_text(text))
    return segments


def _specify(document: Document, hole: Hole) -> HoleSpec:
    if not hole.anchors:
        return build_hole(indent=None if hole.is_at_cursor or is_line_of_code(document, hole) else hole.indent)
    draft, keep, position = "", list[tuple[int, int]](), hole.start_byte
    for anchor in hole.anchors:
        draft += document.show(position, anchor.start_byte)
        kept = anchor.lead + document.show(anchor.start_byte, anchor.end_byte) + anchor.tail
        if kept:
            keep.append((len(draft), len(draft) + len(kept)))
        draft, position = draft + kept, anchor.end_byte
    draft += document.show(position, hole.end_byte)
    return build_hole(draft=draft, keep=keep, forbid=list(hole.forbid), indent=hole.indent)


def with_intent(segments: Segments, mark: str, intent: str) -> Segments:
    """The segments with `intent` and each hole's note as line comments (starting with `mark`) above the hole's line."""
    shown: list[Segment] = []
    holes = iter(segments.holes)
    for segment in segments.segments:
        lines = () if isinstance(segment, TextSegment) else (intent, next(holes).note)
        if comments := [f"{mark} {line}" for text in lines for line in text.splitlines()]:
            before = shown.pop().text if shown and isinstance(shown[-1], TextSegment) else ""  # type: ignore[union-attr]
            head, newline, line = before.rpartition("\n")
            indent = line[: len(line) - len(line.lstrip())]
            said = "".join(f"{indent}{comment}\n" for comment in comments)
            shown.append(build_text(head + newline + said + line))
        shown.append(segment)
    return replace(segments, segments=tuple(shown))
