"""Holes, anchors, edits and patches: byte ranges of a document. Knows bytes, no language and no model."""

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
    """Bytes inside a hole that must survive; offsets count from the start of the document. The fill has `lead` before
    and `tail` after them, which are not in the file yet.
    """

    start_byte: int
    end_byte: int
    lead: str = ""
    tail: str = ""


@dataclass(frozen=True)
class Hole:
    r"""A byte range to fill: `[start_byte, end_byte)` becomes `lead + fill + tail`.

    `lead` and `tail` are fixed text (with line feeds) that must surround the fill but is not in the file yet, such as
    the line break after a bare `def f():`; the model sees them as context. `indent` begins every later line of the
    fill; the first line's indent is before the hole or in `lead`, but the fill of a blank `line` begins with its own,
    and `indent` is the one expected there. `context` are byte ranges that the model should see
    however far away. `note` is shown to the model as a comment and never becomes part of a fill. `imports` are
    statements that any fill needs. No string of `forbid` is in a fill, but for its anchors.
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
        """True if the hole is a place where somebody types, which a fill need not indent as a block."""
        return self.kind in ("cursor", "line")


@dataclass(frozen=True)
class Edit:
    """Replaces the bytes `[start_byte, end_byte)`."""

    start_byte: int
    end_byte: int
    replacement: bytes

    @property
    def growth(self) -> int:
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
        """Returns the offset after the edits of a byte that is outside of them."""
        return byte + sum(edit.growth for edit in self.edits if edit.end_byte <= byte)

    def apply(self, data: bytes) -> bytes:
        """The document's bytes after the edits. Raises ValueError when `data` is shorter than the edits know it."""
        pieces, position = [], 0
        for edit in self.edits:
            if edit.end_byte > len(data):
                raise ValueError(f"edit ends at byte {edit.end_byte} of {len(data)}")
            pieces += [data[position : edit.start_byte], edit.replacement]
            position = edit.end_byte
        return b"".join([*pieces, data[position:]])
