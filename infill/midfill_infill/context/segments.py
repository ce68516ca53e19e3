"""Chooses which text around the holes the model sees, within a budget. Knows no model and no tokens.

Imports and headers of enclosing blocks are always shown, then whole lines, nearest to a hole first.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import zip_longest

from midfill_engine.wire import HoleSegment, HoleSpec, Segment, TextSegment
from midfill_infill.context.requests import build_hole, clean_text
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
    """The holes in order, what is asked for each, and the shown texts before, between and behind them."""

    texts: tuple[str, ...]
    specs: tuple[HoleSpec, ...]
    holes: tuple[Hole, ...]

    @property
    def segments(self) -> list[Segment]:
        """Texts and holes in turn, as the wire has them."""
        segments: list[Segment] = []
        for text, spec in zip_longest(self.texts, self.specs):
            if text:
                segments.append(TextSegment(text=text))
            if spec is not None:
                segments.append(HoleSegment(hole=spec))
        return segments


def build_segments(document: Document, holes: Sequence[Hole], budget_chars: int) -> Segments:
    """Segments in document order with at most `budget_chars` characters of text; a hole with anchors becomes a draft.

    Raises MidfillError `overlapping_holes`, and `hole_too_large` for over 65,536 characters with anchors or over 1,024
    anchors.
    """
    ordered = sort_holes(document, list(holes))
    stretches = _cut(document, ordered)
    num_edge_chars = sum(stretch.edge_size for stretch in stretches)
    if num_edge_chars > budget_chars:
        most_chars = budget_chars // max(1, 2 * len(ordered))
        for stretch in stretches:
            stretch.keep_edges(most_chars)
    else:
        left = budget_chars - sum(stretch.keep_edges(budget_chars) for stretch in stretches)
        left -= _keep_headers(document, ordered, stretches, min(left, int(HEADER_SHARE * budget_chars)))
        left -= _keep_nearest(stretches[1:-1], min(left, int(BETWEEN_SHARE * budget_chars)))
        _keep_nearest(stretches, left)
    first, *others = stretches
    texts = [clean_text(first.text)]
    specs: list[HoleSpec] = []
    for hole, stretch in zip(ordered, others, strict=True):
        specs.append(_specify(document, hole))
        texts.append(clean_text(stretch.text))
    return Segments(tuple(texts), tuple(specs), ordered)


def _keep_headers(document: Document, holes: Sequence[Hole], stretches: Sequence["_ShownText"], room: int) -> int:
    """Shows the lines that are always shown, while they fit. Returns the number of added characters."""
    left = room
    for line in _header_lines(document, holes):
        for stretch in stretches:
            size = stretch.keep(line - stretch.first_line, left)
            if size is not None:
                left -= size
    return room - left


class _ShownText:
    """The text between two holes, or before the first or after the last. `kept[i]` is the shown part of line `i`."""

    def __init__(self, text: str, first_line: int, *, follows_hole: bool, precedes_hole: bool) -> None:
        *whole, last = text.split("\n")
        self.lines = [*(line + "\n" for line in whole), last]
        self.first_line = first_line
        self.follows_hole = follows_hole
        self.precedes_hole = precedes_hole
        edges: set[int] = set()
        if follows_hole:
            edges.add(0)
        if precedes_hole:
            edges.add(len(whole))
        self.edge_size = sum(len(self.lines[number]) for number in edges)
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
        numbers = range(len(self.lines))
        if self.precedes_hole:
            yield reversed(numbers), 1 if self.follows_hole else PREFIX_WEIGHT
        if self.follows_hole:
            yield iter(numbers), 1


def _keep_nearest(stretches: Sequence[_ShownText], room: int) -> int:
    """Shows lines in proportion to the queues' weights, while they fit. Returns the number of added characters."""
    queues: list[tuple[_ShownText, Iterator[int], int]] = []
    for stretch in stretches:
        queues += [(stretch, numbers, weight) for numbers, weight in stretch.queues()]
    heap = [(0.0, queue) for queue in range(len(queues))]
    left = room
    while heap:
        used, queue = heappop(heap)
        stretch, numbers, weight = queues[queue]
        line = next(numbers, len(stretch.lines))
        size = stretch.keep(line, left)
        if size is not None:
            left -= size
            used += len(stretch.lines[line]) / weight
            heappush(heap, (used, queue))
    return room - left


def _cut(document: Document, holes: Sequence[Hole]) -> list[_ShownText]:
    """The texts before, between and behind the holes."""
    stretches: list[_ShownText] = []
    start, tail = 0, ""
    for hole in (*holes, None):
        end, lead = len(document.data), ""
        if hole is not None:
            end, lead = hole.start_byte, hole.lead
        text = tail + document.show(start, end) + lead
        first_line = document.lines.at(start) - tail.count("\n")
        follows_hole = bool(stretches)
        stretches.append(_ShownText(text, first_line, follows_hole=follows_hole, precedes_hole=hole is not None))
        if hole is not None:
            start, tail = hole.end_byte, hole.tail
    return stretches


def _header_lines(document: Document, holes: Sequence[Hole]) -> list[int]:
    """Lines that are always shown: requested context, headers of enclosing blocks, imports."""
    lines = document.source_lines
    spans: list[tuple[int, int]] = []
    for hole in holes:
        spans += [(document.to_source(start), document.to_source(end)) for start, end in hole.context]
    parts = Outline(False, (), (), ())
    if document.syntax:
        parts = outline(document)
    for hole in holes:
        position = document.to_source(hole.start_byte)
        own = find_own(document, hole)
        if own is not None:
            position = own.head
        headers = [(start, start) for (start, end), _ in parts.scopes if start <= position < end]
        for function in parts.functions:
            if function.start <= position < function.end:
                headers.append(_header(lines, function))
        spans += sorted(headers, reverse=True)
    numbers: dict[int, None] = {}
    for start, end in (*spans, *parts.imports):
        first = lines.at(start)
        last = lines.at(max(start, end - 1))
        numbers |= dict.fromkeys(range(first, last + 1))
    return list(numbers)


def _header(lines: Lines, function: Function) -> tuple[int, int]:
    """From the start of a function to the end of its header."""
    end, _ = function.body
    if lines.data[end : end + 1] != b"{":
        end = find_header_end(lines, function)
    return function.start, end + 1


def _specify(document: Document, hole: Hole) -> HoleSpec:
    """What is asked for a hole; one with anchors is a draft."""
    if not hole.anchors:
        if hole.is_at_cursor or is_line_of_code(document, hole):
            return build_hole(indent=None)
        return build_hole(indent=hole.indent)
    draft = ""
    keep: list[tuple[int, int]] = []
    position = hole.start_byte
    for anchor in hole.anchors:
        draft += document.show(position, anchor.start_byte)
        start = len(draft)
        draft += anchor.lead + document.show(anchor.start_byte, anchor.end_byte) + anchor.tail
        if start < len(draft):
            keep.append((start, len(draft)))
        position = anchor.end_byte
    draft += document.show(position, hole.end_byte)
    return build_hole(draft=draft, keep=keep, forbid=list(hole.forbid), indent=hole.indent)


def with_intent(segments: Segments, mark: str, intent: str) -> Segments:
    """The segments with `intent` and each hole's note as line comments (starting with `mark`) above the hole's line."""
    texts = list(segments.texts)
    for index, hole in enumerate(segments.holes):
        remarks = [*intent.splitlines(), *hole.note.splitlines()]
        if remarks:
            comments = [f"{mark} {remark}" for remark in remarks]
            texts[index] = clean_text(_add_comments(texts[index], comments))
    return replace(segments, texts=tuple(texts))


def _add_comments(text: str, comments: Sequence[str]) -> str:
    """The text with comments above its last line, indented as that."""
    head, newline, line = text.rpartition("\n")
    indent = line[: len(line) - len(line.lstrip())]
    added = "".join(f"{indent}{comment}\n" for comment in comments)
    return head + newline + added + line
