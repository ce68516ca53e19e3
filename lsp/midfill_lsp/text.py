"""Documents as an editor counts them: positions, offsets and edits. Knows no language, no hole and no server.

Lines end at `\\r\\n`, `\\n` and `\\r` only, as LSP has it; `str.splitlines` also splits at form feeds and U+2028.
An offset counts code points of the text; a position's `character` counts units of the negotiated encoding.
"""

import logging
import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import TypeVar

from lsprotocol import types
from pygls.workspace import TextDocument, Workspace

from midfill_infill.text.diffs import common_prefix

logger = logging.getLogger(__name__)

Span = tuple[int, int]
T = TypeVar("T")
_LINE_END = re.compile(r"\r\n|\n|\r")
_ENCODINGS = {"utf-8": ("utf-8", 1), "utf-16": ("utf-16-le", 2), "utf-32": ("utf-32-le", 4)}


@dataclass(frozen=True)
class Text:
    """One version of a document's text. `encoding` is "utf-8", "utf-16" or "utf-32", the unit of `character`."""

    source: str
    encoding: str = "utf-16"

    @cached_property
    def line_starts(self) -> list[int]:
        """The offset of each line."""
        if "\r" not in self.source:  # five times as fast
            return [0, *accumulate(len(line) + 1 for line in self.lines[:-1])]
        return [0, *(match.end() for match in _LINE_END.finditer(self.source))]

    @cached_property
    def lines(self) -> list[str]:
        """The lines without their endings."""
        return _LINE_END.split(self.source) if "\r" in self.source else self.source.split("\n")

    def line_end(self, number: int) -> int:
        """The offset before a line's ending."""
        return self.line_starts[number] + len(self.lines[number])

    def whole_lines(self, span: Span) -> Span:
        """The span from the start of its first line to the end of its last one, before that line's ending."""
        first, last = (bisect_right(self.line_starts, offset) - 1 for offset in span)
        return self.line_starts[first], self.line_end(last)

    def offset(self, position: types.Position) -> int:
        """The offset of a position. One past a line's end means that end; one past the last line, the text's end."""
        if position.line >= len(self.line_starts):
            return len(self.source)
        return self.line_starts[position.line] + self._column(position)[0]

    def has(self, position: types.Position) -> bool:
        """False for a position inside a character, or more than one line behind the last line."""
        num_lines = len(self.line_starts)
        return position.line == num_lines or (position.line < num_lines and self._column(position)[1])

    def position(self, offset: int) -> types.Position:
        """The position of an offset in 0..len(source); of one between `\\r` and `\\n`, the position before both."""
        number = bisect_right(self.line_starts, offset) - 1
        before = self.lines[number][: offset - self.line_starts[number]]
        return types.Position(number, unit_offsets(before, self.encoding)[-1])

    def range(self, span: Span) -> types.Range:
        return types.Range(self.position(span[0]), self.position(span[1]))

    def span(self, range: types.Range) -> Span:
        """The span of a range, clamped, and in order even if the client's range is not."""
        first, second = self.offset(range.start), self.offset(range.end)
        return min(first, second), max(first, second)

    @cached_property
    def data(self) -> bytes:
        return self.source.encode("utf-8", "surrogatepass")

    def start_byte(self, offset: int) -> int:
        """The UTF-8 offset of the code point at `offset`; a lone surrogate counts as three bytes."""
        return len(self.source[:offset].encode("utf-8", "surrogatepass"))

    def offset_of_byte(self, start_byte: int) -> int:
        return len(self.data[:start_byte].decode("utf-8", "surrogatepass"))

    def _column(self, position: types.Position) -> tuple[int, bool]:
        """How many code points stand before the position in its line, and False if it is inside the next one."""
        offsets = unit_offsets(self.lines[position.line], self.encoding)
        column = bisect_right(offsets, position.character) - 1
        return column, offsets[column] == position.character or column == len(offsets) - 1


def find_at(text: Text, offset: int, placed: Iterable[tuple[Span, T]]) -> list[T]:
    """The items whose spans are at an offset; if there are none, those whose spans touch its line."""
    items = list(placed)

    def find(start: int, end: int) -> list[T]:
        return [item for (first, last), item in items if first <= end and start <= last]

    return find(offset, offset) or find(*text.whole_lines((offset, offset)))


def trim(old: str, new: str) -> Span:
    """The shortest part of `old` that differs from `new`, as (start, end); neither end cuts a `\\r\\n` in two."""
    start = common_prefix(old, new)
    if any(cuts_line_end(text, start) for text in (old, new)):
        start -= 1
    tail_length = common_prefix(old[start:][::-1], new[start:][::-1])
    if any(cuts_line_end(text, len(text) - tail_length) for text in (old, new)):
        tail_length -= 1
    return start, len(old) - tail_length


def cuts_line_end(text: str, offset: int) -> bool:
    """True if an offset is between `\\r` and `\\n`."""
    return offset > 0 and text[offset - 1 : offset + 1] == "\r\n"


def unit_offsets(text: str, encoding: str) -> Sequence[int]:
    """The start of each code point, and the end of the last one, in units of the encoding."""
    if text.isascii():
        return range(len(text) + 1)
    codec, unit_bytes = _ENCODINGS[encoding]
    return [0, *accumulate(len(char.encode(codec, "surrogatepass")) // unit_bytes for char in text)]


def code_points(text: str, spans: Iterable[Span], encoding: str) -> list[Span]:
    """Converts spans in units of the encoding into spans in code points, clamped to the text."""
    offsets = unit_offsets(text, encoding)
    return [(bisect_right(offsets, start) - 1, bisect_right(offsets, end) - 1) for start, end in spans]


def to_units(text: str, spans: Iterable[Span], encoding: str) -> tuple[Span, ...]:
    """Converts spans in code points into spans in units of the encoding."""
    offsets = unit_offsets(text, encoding)
    return tuple((offsets[start], offsets[end]) for start, end in spans)


class Moves(list[tuple[int, int, int]]):
    """The edits of a document since some version, in order: `(start, end, new_length)` if `new_length` code points
    replaced [start, end). Converts spans of that version into spans of the current one.
    """

    def carry(self, span: Span) -> Span | None:
        """The current span; None if an edit changed it or touches one of its ends, which would be ambiguous."""
        first, last = span
        for start, end, new_length in self:
            if start <= last and end >= first:
                return None
            if end < first:
                shift = new_length - (end - start)
                first, last = first + shift, last + shift
        return first, last

    def carry_all(self, spans: Iterable[Span]) -> list[Span]:
        """The current spans of those `spans` that no edit has changed or touched."""
        carried = map(self.carry, spans)
        return [span for span in carried if span is not None]

    def stretch(self, span: Span, *, takes_ends: bool = False) -> Span | None:
        """The current span, resized by edits inside and, with `takes_ends`, at its ends; None if one crosses an end."""
        first, last = span
        for start, end, new_length in self:
            shift = new_length - (end - start)
            if end <= first and not (takes_ends and start >= first):
                first, last = first + shift, last + shift
            elif first <= start and end <= last:
                if takes_ends or start < last:
                    last += shift
            elif start < last:
                return None
        return first, last


class SyncedDocument(TextDocument):
    """An open document. A change that does not fit marks it `desynced` until the client sends its full text.
    `num_edits` counts the server's edits that the client has not confirmed yet; it may report their changes before.
    """

    def __init__(self, uri: str, text: Text, version: int | None, language_id: str | None) -> None:
        super().__init__(uri, None, version, language_id)
        self.text = text
        self.desynced = False
        self.num_edits = 0
        self._recorders: list[Moves] = []

    @property
    def source(self) -> str:
        return self.text.source

    def record(self) -> Moves:
        """Records edits from now on, until they are forgotten or the document is closed."""
        self._recorders.append(Moves())
        return self._recorders[-1]

    def forget(self, moves: Moves) -> None:
        self._recorders = [other for other in self._recorders if other is not moves]

    def apply_change(self, change: types.TextDocumentContentChangeEvent) -> None:
        if isinstance(change, types.TextDocumentContentChangeWholeDocument):
            self.desynced = False
            self._replace(0, len(self.source), change.text)
            return
        if self.desynced:
            return
        start, end = self.text.offset(change.range.start), self.text.offset(change.range.end)
        if start <= end and self.text.has(change.range.start) and self.text.has(change.range.end):
            self._replace(start, end, change.text)
        else:
            self.lose_track("its range is not in the text")

    def lose_track(self, reason: str) -> None:
        """Stops applying changes until the client sends the full text."""
        logger.warning("%s: a change does not fit this document (%s)", self.filename, reason)
        self.desynced = True

    def _replace(self, start: int, end: int, new: str) -> None:
        source = self.source
        first, last = trim(source[start:end], new)
        new_length = len(new) - (end - start) + last - first
        if first < last or new_length:
            for moves in self._recorders:
                moves.append((start + first, start + last, new_length))
        self.text = Text(source[:start] + new + source[end:], self.text.encoding)


class SyncedWorkspace(Workspace):
    """pygls' workspace, but its documents are SyncedDocuments."""

    def _create_text_document(
        self, doc_uri: str, source: str | None = None, version: int | None = None, language_id: str | None = None
    ) -> SyncedDocument:
        text = Text(source or "", str(getattr(self.position_encoding, "value", self.position_encoding)))
        return SyncedDocument(doc_uri, text, version, language_id)

    def open_document(self, uri: str) -> SyncedDocument | None:
        """The document if the editor has it open; the disk is never read."""
        document = self.get_text_document(uri)
        if isinstance(document, SyncedDocument) and document.version is not None:
            return document
        return None
