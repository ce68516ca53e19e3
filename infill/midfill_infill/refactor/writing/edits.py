"""Replaces regions of a file's bytes and tracks where every hole is. Knows bytes, no files and no language.

Edits move the regions behind them, and so do other people's edits. After those, a region is found if its lines, and one
more on either side, are unchanged: in the common prefix or suffix of the versions, or, between the changes, where those
lines occur exactly once.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cached_property
from itertools import accumulate
from typing import Final

from midfill_infill.refactor.journal.records import HoleRow, Region
from midfill_infill.text.diffs import common_ends
from midfill_infill.text.spans import Edit, Patch

# SequenceMatcher takes quadratic time in the worst case.
_MAX_CHANGED_LINES: Final = 4000


@dataclass(frozen=True)
class Moved:
    """Maps byte offsets of `before` to those of `after`."""

    before: bytes
    after: bytes

    @cached_property
    def _lines(self) -> tuple[list[bytes], list[bytes]]:
        return self.before.split(b"\n"), self.after.split(b"\n")

    @cached_property
    def _starts(self) -> tuple[list[int], list[int]]:
        old, new = self._lines
        return _line_starts(old), _line_starts(new)

    @cached_property
    def _same_ends(self) -> tuple[int, int]:
        """Length of the common prefix and suffix, in lines."""
        return common_ends(*self._lines)

    @cached_property
    def _blocks(self) -> list[tuple[int, int, int]]:
        """Equal runs of lines between the common ends: start in `before`, start in `after`, number of lines."""
        old, new = self._lines
        head, tail = self._same_ends
        old_middle = old[head : len(old) - tail]
        new_middle = new[head : len(new) - tail]
        if max(len(old_middle), len(new_middle)) > _MAX_CHANGED_LINES:
            return []
        matcher = SequenceMatcher(None, old_middle, new_middle, autojunk=False)
        blocks: list[tuple[int, int, int]] = []
        for block in matcher.get_matching_blocks():
            if block.size:
                blocks.append((block.a + head, block.b + head, block.size))
        return blocks

    def find(self, at: int, length: int) -> int | None:
        """Start in `after` of the region of `before` that starts at `at`; None if not certain."""
        if at < 0:
            return None
        old_lines, new_lines = self._lines
        old_starts, new_starts = self._starts
        first = bisect_right(old_starts, at) - 1
        last = bisect_right(old_starts, at + length) - 1
        column = at - old_starts[first]
        low = max(first - 1, 0)
        high = min(last + 1, len(old_lines) - 1)
        head, tail = self._same_ends
        if high < head:
            return at
        if low >= len(old_lines) - tail:
            return new_starts[first + len(new_lines) - len(old_lines)] + column
        for old, new, size in self._blocks:
            if old <= low and high < old + size and self._is_unique(low, high):
                return new_starts[first + new - old] + column
        return None

    def _is_unique(self, low: int, high: int) -> bool:
        old, _ = self._lines
        wanted = b"\n".join(old[low : high + 1])
        return self.after.count(wanted) == 1 and wanted.strip() != b""


def _line_starts(lines: Sequence[bytes]) -> list[int]:
    return [0, *accumulate(len(line) + 1 for line in lines[:-1])]


LOST = -1


@dataclass(frozen=True)
class Regions:
    """The places of a file's holes in `data`, in document order; holes whose place is unknown are missing."""

    data: bytes
    places: Mapping[int, tuple[int, int]]

    @classmethod
    def find(cls, holes: Sequence[HoleRow], known: bytes, data: bytes) -> "Regions":
        """Transfers the regions from `known`, the bytes they refer to, to `data`."""
        mapping = Moved(known, data)
        places: dict[int, tuple[int, int]] = {}
        for hole in holes:
            if hole.is_lost:
                continue
            at = hole.at if known == data else mapping.find(hole.at, hole.length)
            if at is not None:
                places[hole.id] = (at, hole.length)
        return cls(data, places)

    def text(self, hole: int) -> bytes | None:
        """The current text of a hole's region."""
        if hole not in self.places:
            return None
        at, length = self.places[hole]
        return self.data[at : at + length]

    def replace(self, texts: Mapping[int, bytes]) -> "Regions":
        """The bytes with `texts[hole]` in each region; updates all regions. Raises ValueError for overlapping regions.
        A region that an edit overlaps partly becomes unknown.
        """
        edits: dict[int, Edit] = {}
        for hole, (at, length) in self.places.items():
            if hole in texts:
                edits[hole] = Edit(at, at + length, texts[hole])
        after = Patch.of(edits.values()).apply(self.data)
        places: dict[int, tuple[int, int]] = {}
        earlier: set[int] = set()
        for hole, (at, length) in self.places.items():
            others = [(other, edit) for other, edit in edits.items() if other != hole]
            if not any(_reaches_into(edit, at, at + length) for _, edit in others):
                # At the same byte (adjacent empty holes) the later hole's text comes last.
                before = [edit for other, edit in others if edit.start_byte < at or other in earlier]
                if hole in edits:
                    length = len(texts[hole])
                places[hole] = Patch(tuple(before)).shift(at), length
            earlier.add(hole)
        return Regions(after, places)

    def edit(self, edit: Edit) -> "Regions":
        """The bytes after an edit outside of holes; unchanged if it overlaps one."""
        if any(_reaches_into(edit, at, at + length) for at, length in self.places.values()):
            return self
        patch = Patch((edit,))
        places = {hole: (patch.shift(at), length) for hole, (at, length) in self.places.items()}
        return Regions(patch.apply(self.data), places)

    def rows(self, holes: Sequence[HoleRow]) -> tuple[Region, ...]:
        return tuple((hole.id, *self.places.get(hole.id, (LOST, hole.length))) for hole in holes)


def _reaches_into(edit: Edit, start: int, end: int) -> bool:
    return edit.start_byte < end and start < edit.end_byte
