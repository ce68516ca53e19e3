"""Replaces the holes' regions in a file's bytes, and tracks where each region is. Knows bytes; no files, no language.

An edit moves the regions after it. After edits of other people, a region is found again only if its lines and one line
on either side are unchanged. These lines must be in the beginning or the end that both versions share, or, between
changes, occur exactly once in the new version. A region that is not there as the journal knows it is looked for in
what the run has written before, and as it was planned, because somebody may have put an older version back.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cached_property
from itertools import accumulate
from typing import Final

from midfill_infill.refactor.journal.journal import Journal
from midfill_infill.refactor.journal.records import FileRow, HoleRow, Region
from midfill_infill.repository.content import digest
from midfill_infill.text.diffs import common_ends
from midfill_infill.text.spans import Edit, Patch

# Of a longer changed part no region is found: SequenceMatcher takes quadratic time in the worst case.
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
        """How many lines at the start and at the end are common to both."""
        return common_ends(*self._lines)

    @cached_property
    def _blocks(self) -> list[tuple[int, int, int]]:
        """The equal runs of lines that are not only in the common ends: start in `before`, start in `after`, number of
        lines.
        """
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
                blocks.append(self._extend(block.a + head, block.b + head, block.size))
        return blocks

    def _extend(self, old_start: int, new_start: int, size: int) -> tuple[int, int, int]:
        """An equal run with the equal lines beside it, such as blank ones that the common ends have taken."""
        old, new = self._lines
        while old_start and new_start and old[old_start - 1] == new[new_start - 1]:
            old_start, new_start, size = old_start - 1, new_start - 1, size + 1
        num_left = min(len(old) - old_start, len(new) - new_start)
        while size < num_left and old[old_start + size] == new[new_start + size]:
            size += 1
        return old_start, new_start, size

    def find(self, at: int, length: int) -> int | None:
        """Where a region of `before`, from byte `at` on, starts in `after`; None if that is not certain."""
        if at < 0:
            return None
        if self.before == self.after:
            return at
        old_lines, new_lines = self._lines
        old_starts, new_starts = self._starts
        first = bisect_right(old_starts, at) - 1
        last = bisect_right(old_starts, at + length) - 1
        column = at - old_starts[first]
        low = max(first - 1, 0)  # with one line on either side
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
        """True if the lines of `before` from `low` to `high` are not blank and occur once in `after`."""
        old, _ = self._lines
        text = b"\n".join(old[low : high + 1])
        return self.after.count(text) == 1 and text.strip() != b""


def _line_starts(lines: Sequence[bytes]) -> list[int]:
    """The byte at which each line begins."""
    return [0, *accumulate(len(line) + 1 for line in lines[:-1])]


LOST = -1


@dataclass(frozen=True)
class Regions:
    """A file's bytes `data`, and where each hole is in them: its start and its length by its id. Of empty holes at one
    byte the first of `places` comes first. Holes whose place is unknown are missing.
    """

    data: bytes
    places: Mapping[int, tuple[int, int]]

    @classmethod
    def find(cls, journal: Journal, file: FileRow, holes: Sequence[HoleRow], data: bytes) -> "Regions":
        """The regions of all `holes` of a file in `data`, what the file holds now. The file must have fills."""
        known = Moved(_read_snapshot(journal, file.known_hash), data)
        places: dict[int, tuple[int, int]] = {}
        for hole in holes:
            at = known.find(hole.at, hole.length)
            if at is not None:
                places[hole.id] = (at, hole.length)
        if len(places) == len(holes):
            return cls(data, places)
        if written := journal.regions_written(file.id, digest(data)):
            return cls(data, {hole_id: (at, length) for hole_id, at, length in written if at != LOST})
        planned = Moved(_read_snapshot(journal, file.planned_hash), data)
        for hole in holes:
            length = hole.end_byte - hole.start_byte
            at = planned.find(hole.start_byte, length) if hole.id not in places else None
            taken = ((start, start + size) for start, size in places.values())
            if at is not None and not any(at < end and start < at + length for start, end in taken):
                places[hole.id] = (at, length)
        return cls(data, {hole.id: places[hole.id] for hole in holes if hole.id in places})

    def text(self, hole_id: int) -> bytes | None:
        """The bytes of a hole's region; None if the region is unknown."""
        if hole_id not in self.places:
            return None
        at, length = self.places[hole_id]
        return self.data[at : at + length]

    def replace(self, texts: Mapping[int, bytes]) -> "Regions":
        """The regions after `texts` (by hole id) have replaced theirs. A region that the edit of another hole overlaps
        becomes unknown. Raises ValueError if regions to replace overlap.
        """
        order = sorted(self.places.items(), key=lambda place: (place[1][0], sum(place[1])))
        edits = {hole_id: Edit(at, at + length, texts[hole_id]) for hole_id, (at, length) in order if hole_id in texts}
        patch = Patch.of(edits.values())
        places: dict[int, tuple[int, int]] = {}
        num_passed = growth = last_end = 0
        for hole_id, (at, length) in order:
            edit = edits.get(hole_id)
            num_passed += edit is not None
            following = patch.edits[num_passed : num_passed + 1]
            if at >= last_end and not any(other.start_byte < at + length for other in following):
                places[hole_id] = at + growth, length if edit is None else len(edit.replacement)
            if edit is not None:
                growth += edit.growth
                last_end = edit.end_byte
        return Regions(patch.apply(self.data), places)

    def edit(self, edit: Edit) -> "Regions":
        """The regions after an edit outside of them; the same regions if it overlaps one."""
        if any(_overlaps(edit, at, at + length) for at, length in self.places.values()):
            return self
        patch = Patch((edit,))
        places = {hole_id: (patch.shift(at), length) for hole_id, (at, length) in self.places.items()}
        return Regions(patch.apply(self.data), places)

    def rows(self, holes: Sequence[HoleRow]) -> tuple[Region, ...]:
        """The regions of `holes` for the journal."""
        return tuple((hole.id, *self.places.get(hole.id, (LOST, hole.length))) for hole in holes)


def _read_snapshot(journal: Journal, content_hash: bytes) -> bytes:
    data = journal.snapshot(content_hash)
    assert data is not None, "a file with fills has a snapshot"
    return data


def _overlaps(edit: Edit, start: int, end: int) -> bool:
    return edit.start_byte < end and start < edit.end_byte
