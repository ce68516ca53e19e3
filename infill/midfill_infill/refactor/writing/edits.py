"""Replaces regions of a file's bytes and tracks where every hole is. Knows bytes, no files.

Edits move the regions behind them, and so do other people's edits.
"""

from collections.abc import Mapping as Dictionary
from collections.abc import Sequence
from dataclasses import dataclass

from midfill_infill.refactor.journal.records import HoleRow, Region
from midfill_infill.refactor.writing.anchoring import Mapping
from midfill_infill.text.spans import Edit, Patch

LOST = -1


@dataclass(frozen=True)
class Regions:
    """Where the holes of a file are in `data`, in document order. Unknown ones are not in `places`."""

    data: bytes
    places: Dictionary[int, tuple[int, int]]

    @classmethod
    def find(cls, holes: Sequence[HoleRow], known: bytes, data: bytes) -> "Regions":
        """Transfers the regions from `known`, the bytes they refer to, to `data`."""
        if known == data:
            return cls(data, {hole.id: (hole.at, hole.length) for hole in holes if not hole.is_lost})
        mapping = Mapping(known, data)
        found = {hole.id: (mapping.find(hole.at, hole.length), hole.length) for hole in holes if not hole.is_lost}
        return cls(data, {hole: (at, length) for hole, (at, length) in found.items() if at is not None})

    def text(self, hole: int) -> bytes | None:
        """The current text of a hole's region."""
        if hole not in self.places:
            return None
        at, length = self.places[hole]
        return self.data[at : at + length]

    def replace(self, texts: Dictionary[int, bytes]) -> "Regions":
        """The bytes with `texts[hole]` in each region; updates all regions.

        Raises ValueError for overlapping regions. A region that an edit overlaps partly becomes unknown.
        """
        edits = {
            hole: Edit(at, at + length, texts[hole]) for hole, (at, length) in self.places.items() if hole in texts
        }
        after = Patch.of(edits.values()).apply(self.data)
        places: dict[int, tuple[int, int]] = {}
        earlier: set[int] = set()
        for hole, (at, length) in self.places.items():
            others = [(other, edit) for other, edit in edits.items() if other != hole]
            if not any(_reaches_into(edit, at, at + length) for _, edit in others):
                # At the same byte (adjacent empty holes) the later hole's text comes last.
                before = [edit for other, edit in others if edit.start_byte < at or other in earlier]
                moved = at + sum(_growth(edit) for edit in before if edit.end_byte <= at)
                places[hole] = moved, len(texts[hole]) if hole in edits else length
            earlier.add(hole)
        return Regions(after, places)

    def edit(self, edit: Edit) -> "Regions":
        """The bytes after an edit outside of holes; unchanged if it overlaps one."""
        if any(_reaches_into(edit, at, at + length) for at, length in self.places.values()):
            return self
        growth = _growth(edit)
        places = {hole: (at + growth * (edit.end_byte <= at), length) for hole, (at, length) in self.places.items()}
        return Regions(Patch((edit,)).apply(self.data), places)

    def rows(self, holes: Sequence[HoleRow]) -> tuple[Region, ...]:
        return tuple(Region(hole.id, *self.places.get(hole.id, (LOST, hole.length))) for hole in holes)


def _growth(edit: Edit) -> int:
    return len(edit.replacement) - (edit.end_byte - edit.start_byte)


def _reaches_into(edit: Edit, start: int, end: int) -> bool:
    return edit.start_byte < end and start < edit.end_byte
