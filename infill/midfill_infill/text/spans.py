"""Defines holes, anchors, edits and patches: byte ranges of a document. Knows bytes, no language and no model."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, Self

HoleKind = Literal["range", "cursor", "line", "body", "stub"]


def find_gaps(spans: Iterable[Sequence[int]], length: int) -> list[tuple[int, int]]:
    """The non-empty ranges of `[0, length)` outside `spans`, which are sorted and disjoint."""
    gaps: list[tuple[int, int]] = []
    position = 0
    for start, end in (*spans, (length, length)):
        if position < start:
            gaps.append((position, start))
        position = end
    return gaps


def merge_spans(spans: Iterable[tuple[int, int]], apart: int = 0) -> list[tuple[int, int]]:
    """`spans` in order, joined where they overlap, touch, or are at most `apart` from each other."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1] + apart:
            start, last_end = merged.pop()
            end = max(end, last_end)
        merged.append((start, end))
    return merged


@dataclass(frozen=True)
class Anchor:
    """Bytes inside a hole that must survive; offsets count from the start of the document. The fill has them between
    `lead` and `tail`, fixed text that is not in the file yet.
    """

    start_byte: int
    end_byte: int
    lead: str = ""
    tail: str = ""


@dataclass(frozen=True)
class Hole:
    r"""A byte range to fill: `[start_byte, end_byte)` becomes `lead + fill + tail`.

    `lead` and `tail` are fixed text (with `\n` line ends) that must surround the fill but is not in the file yet, such
    as the line break after a bare `def f():`; the model sees them as context. `indent` is the indentation of the fill's
    lines but the first, whose indentation is before the hole or in `lead`. Only the fill of a hole of kind `line`, a
    blank line, begins with its own indentation, which is expected to be `indent`. `context` are byte ranges that the
    model should see however far away. `note` is shown to the model as a comment and never becomes part of a fill.
    `imports` are statements that any fill needs. No fill holds a string of `forbid`, except in its anchors.
    """

    start_byte: int
    end_byte: int
    anchors: tuple[Anchor, ...] = ()
    kind: HoleKind = "range"
    name: str | None = None
    lead: str = ""
    tail: str = ""
    indent: str = ""
    context: tuple[tuple[int, int], ...] = ()
    note: str = ""
    imports: tuple[str, ...] = ()
    forbid: tuple[str, ...] = ()

    @property
    def is_body(self) -> bool:
        """True if the hole is the inside of one function, which a fill must not leave."""
        return self.kind in ("body", "stub")

    @property
    def is_at_cursor(self) -> bool:
        """True if the hole is where somebody types, so that a fill need not be indented as a block."""
        return self.kind in ("cursor", "line")


@dataclass(frozen=True)
class Edit:
    """The bytes `[start_byte, end_byte)` of a document are replaced by `replacement`."""

    start_byte: int
    end_byte: int
    replacement: bytes

    @property
    def growth(self) -> int:
        """By how many bytes the document grows."""
        return len(self.replacement) - (self.end_byte - self.start_byte)


@dataclass(frozen=True)
class Patch:
    """Non-overlapping edits in document order. Everything between them is kept byte for byte."""

    edits: tuple[Edit, ...]

    @classmethod
    def of(cls, edits: Iterable[Edit]) -> Self:
        """Sorts `edits`; raises ValueError when two of them overlap."""
        ordered = sorted(edits, key=lambda edit: (edit.start_byte, edit.end_byte))
        for edit, following in pairwise(ordered):
            if following.start_byte < edit.end_byte:
                raise ValueError(f"edits overlap at byte {following.start_byte}")
        return cls(tuple(ordered))

    def shift(self, byte: int) -> int:
        """The offset after the edits of a byte that stands outside of them."""
        return byte + sum(edit.growth for edit in self.edits if edit.end_byte <= byte)

    def apply(self, data: bytes) -> bytes:
        """The document's bytes `data` after the edits. Raises ValueError if an edit ends behind the end of `data`."""
        pieces: list[bytes] = []
        position = 0
        for edit in self.edits:
            if edit.end_byte > len(data):
                raise ValueError(f"edit ends at byte {edit.end_byte} of {len(data)}")
            pieces += [data[position : edit.start_byte], edit.replacement]
            position = edit.end_byte
        return b"".join([*pieces, data[position:]])
