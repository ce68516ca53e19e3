"""Chooses which text around the holes the model sees, within a budget of characters. Knows no model and no tokens.

The lines that holes stand in come first, then imports and headers of enclosing blocks, then whole lines, those nearest
to a hole first.
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

# The largest shares of the budget: for imports and enclosing headers, and for the text between holes.
HEADER_SHARE, BETWEEN_SHARE = 0.35, 0.75
# So many characters before the first hole are shown for each one behind the last hole.
PREFIX_WEIGHT = 2


@dataclass(frozen=True)
class Segments:
    """The holes in document order, the spec of each for the request, and the shown texts before, between and behind
    them.
    """

    texts: tuple[str, ...]
    specs: tuple[HoleSpec, ...]
    holes: tuple[Hole, ...]

    @property
    def in_turn(self) -> list[Segment]:
        """Texts and holes in turn, as a request has them; empty texts are left out."""
        segments: list[Segment] = []
        for text, spec in zip_longest(self.texts, self.specs):
            if text:
                segments.append(TextSegment(text=text))
            if spec is not None:
                segments.append(HoleSegment(hole=spec))
        return segments


def build_segments(document: Document, holes: Sequence[Hole], budget_chars: int) -> Segments:
    """Segments in document order with at most `budget_chars` characters of text. The text of a hole with anchors
    becomes the draft of its spec.

    Raises MidfillError `overlapping_holes`, and `hole_too_large` for a hole with anchors and over 65,536 characters,
    over 1,024 anchors, and a text that no segment takes.
    """
    ordered = sort_holes(document, list(holes))
    stretches = _cut_stretches(document, ordered)
    num_edge_chars = sum(stretch.num_edge_chars for stretch in stretches)
    if num_edge_chars > budget_chars:
        max_chars = budget_chars // max(1, 2 * len(ordered))  # on each side of each hole
        for stretch in stretches:
            stretch.show_edges(max_chars)
    else:
        room = budget_chars - sum(stretch.show_edges(budget_chars) for stretch in stretches)
        room -= _show_headers(document, ordered, stretches, min(room, int(HEADER_SHARE * budget_chars)))
        room -= _show_nearest(stretches[1:-1], min(room, int(BETWEEN_SHARE * budget_chars)))
        _show_nearest(stretches, room)
    first, *others = stretches
    texts = [clean_text(first.text)]
    specs: list[HoleSpec] = []
    for hole, stretch in zip(ordered, others, strict=True):
        specs.append(_specify(document, hole))
        texts.append(clean_text(stretch.text))
    return Segments(tuple(texts), tuple(specs), ordered)


def _show_headers(document: Document, holes: Sequence[Hole], stretches: Sequence["_Stretch"], max_chars: int) -> int:
    """Shows requested context, headers and imports, each line that fits. Returns the number of added characters."""
    room = max_chars
    for line in _find_header_lines(document, holes):
        for stretch in stretches:
            num_added = stretch.show(line - stretch.first_line, room)
            if num_added is not None:
                room -= num_added
    return max_chars - room


class _Stretch:
    """The text between two holes, before the first or behind the last. `shown[i]` is the shown part of line `i`, None
    if it is not shown. `first_line` is the document's line in which the stretch begins.
    """

    def __init__(self, text: str, first_line: int, *, follows_hole: bool, precedes_hole: bool) -> None:
        *ended, last = text.split("\n")
        self.lines = [*(line + "\n" for line in ended), last]
        self.first_line = first_line
        self.follows_hole = follows_hole
        self.precedes_hole = precedes_hole
        edges: set[int] = set()
        if follows_hole:
            edges.add(0)
        if precedes_hole:
            edges.add(len(ended))
        self.num_edge_chars = sum(len(self.lines[line]) for line in edges)
        """Characters of the lines that holes stand in."""
        self.shown: list[str | None] = [None] * len(self.lines)

    @property
    def text(self) -> str:
        """The shown text."""
        return "".join(line for line in self.shown if line is not None)

    def show(self, line: int, room: int) -> int | None:
        """Shows a line. Returns how many characters this adds; None if the line is longer than `room`, or not here."""
        if not 0 <= line < len(self.lines):
            return None
        if self.shown[line] is not None:
            return 0
        if len(self.lines[line]) > room:
            return None
        self.shown[line] = self.lines[line]
        return len(self.lines[line])

    def show_edges(self, max_chars: int) -> int:
        """Shows the lines that holes stand in, at most `max_chars` at each hole. Returns the number of characters."""
        if self.follows_hole:
            self.shown[0] = self.lines[0][:max_chars]
        if self.precedes_hole:
            start = self.shown[-1] or ""  # a stretch of a single line may be shown from its start
            remainder = self.lines[-1][len(start) :]
            self.shown[-1] = start + remainder[max(0, len(remainder) - max_chars) :]
        return len(self.text)

    def queues(self) -> Iterator[tuple[Iterator[int], int]]:
        """Yields a queue for each hole at an end of the stretch: the lines in order from that hole, and its weight."""
        lines = range(len(self.lines))
        if self.precedes_hole:
            yield reversed(lines), 1 if self.follows_hole else PREFIX_WEIGHT
        if self.follows_hole:
            yield iter(lines), 1


def _show_nearest(stretches: Sequence[_Stretch], max_chars: int) -> int:
    """Shows lines from all queues, so that their characters are in proportion to the queues' weights. A queue ends at
    its first line that does not fit. Returns the number of added characters.
    """
    queues: list[tuple[_Stretch, Iterator[int], int]] = []
    for stretch in stretches:
        queues += [(stretch, lines, weight) for lines, weight in stretch.queues()]
    heap = [(0.0, index) for index in range(len(queues))]  # characters of a queue by its weight, and its index
    room = max_chars
    while heap:
        weighted_chars, index = heappop(heap)
        stretch, lines, weight = queues[index]
        line = next(lines, len(stretch.lines))
        num_added = stretch.show(line, room)
        if num_added is not None:
            room -= num_added
            heappush(heap, (weighted_chars + len(stretch.lines[line]) / weight, index))
    return max_chars - room


def _cut_stretches(document: Document, holes: Sequence[Hole]) -> list[_Stretch]:
    """The texts before, between and behind the holes, with the holes' leads and tails."""
    stretches: list[_Stretch] = []
    start, tail = 0, ""
    for hole in (*holes, None):
        end, lead = len(document.data), ""
        if hole is not None:
            end, lead = hole.start_byte, hole.lead
        text = tail + document.visible_text(start, end) + lead
        first_line = document.lines.at(start) - tail.count("\n")
        follows_hole = bool(stretches)
        stretches.append(_Stretch(text, first_line, follows_hole=follows_hole, precedes_hole=hole is not None))
        if hole is not None:
            start, tail = hole.end_byte, hole.tail
    return stretches


def _find_header_lines(document: Document, holes: Sequence[Hole]) -> list[int]:
    """Lines of the document to show wherever they are, the most important first: requested context, then headers of
    enclosing blocks from the inside out, then imports.
    """
    lines = document.source_lines
    spans: list[tuple[int, int]] = []
    for hole in holes:
        spans += [(document.to_source(start), document.to_source(end)) for start, end in hole.context]
    parts = outline(document) if document.syntax else Outline(False, (), (), ())
    for hole in holes:
        position = document.to_source(hole.start_byte)
        own_function = find_own(document, hole)
        if own_function is not None:
            position = own_function.head
        headers = [(start, start) for (start, end), _ in parts.scopes if start <= position < end]
        for function in parts.functions:
            if function.start <= position < function.end:
                headers.append(_find_header(lines, function))
        spans += sorted(headers, reverse=True)
    header_lines: dict[int, None] = {}
    for start, end in (*spans, *parts.imports):
        first = lines.at(start)
        last = lines.at(max(start, end - 1))
        header_lines |= dict.fromkeys(range(first, last + 1))
    return list(header_lines)


def _find_header(lines: Lines, function: Function) -> tuple[int, int]:
    """The source bytes from the start of a function, its decorators included, to the end of its header."""
    end, _ = function.body
    if lines.data[end : end + 1] != b"{":
        end = find_header_end(lines, function)
    return function.start, end + 1


def _specify(document: Document, hole: Hole) -> HoleSpec:
    """The spec of a hole; a hole with anchors gets its text as draft, in which the anchors are kept."""
    forbid = list(hole.forbid)
    if not hole.anchors:
        is_single_line = hole.is_at_cursor or is_line_of_code(document, hole)
        return build_hole(forbid=forbid, indent=None if is_single_line else hole.indent)
    draft = ""
    keep: list[tuple[int, int]] = []
    position = hole.start_byte
    for anchor in hole.anchors:
        draft += document.visible_text(position, anchor.start_byte)
        start = len(draft)
        draft += anchor.lead + document.visible_text(anchor.start_byte, anchor.end_byte) + anchor.tail
        if start < len(draft):
            keep.append((start, len(draft)))
        position = anchor.end_byte
    draft += document.visible_text(position, hole.end_byte)
    return build_hole(draft=draft, keep=keep, forbid=forbid, indent=hole.indent)


def with_intent(segments: Segments, mark: str, intent: str) -> Segments:
    """The segments with `intent` and the notes of a line's holes as comments above each line that holes begin on;
    `mark` starts a comment. Raises MidfillError `hole_too_large` if a text gets too long.
    """
    texts = list(segments.texts)
    remarks_of: dict[int, list[str]] = {}  # by the index of the text in which the holes' line begins
    index = 0
    for hole_index, hole in enumerate(segments.holes):
        if "\n" in texts[hole_index]:
            index = hole_index
        remarks_of.setdefault(index, intent.splitlines()).extend(hole.note.splitlines())
    for index, remarks in remarks_of.items():
        texts[index] = clean_text(_add_comments(texts[index], [f"{mark} {remark}" for remark in remarks]))
    return replace(segments, texts=tuple(texts))


def _add_comments(text: str, comments: Sequence[str]) -> str:
    """The text with comments above its last line, with the same indentation as this line."""
    head, newline, last_line = text.rpartition("\n")
    indent = last_line[: len(last_line) - len(last_line.lstrip())]
    added = "".join(f"{indent}{comment}\n" for comment in comments)
    return head + newline + added + last_line
