"""Finds a region of a file after somebody else edited the file. Knows lines of bytes, no language.

A region is found if its lines, and one more on either side, are unchanged: in the common prefix or suffix of the
versions, or, between the changes, where those lines occur exactly once. Otherwise it is not found.
"""

from bisect import bisect_right
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cached_property
from typing import Final

# SequenceMatcher is quadratic in this in the worst case.
_MAX_CHANGED_LINES: Final = 4000


@dataclass(frozen=True)
class Mapping:
    """Maps byte offsets of `before` to those of `after`."""

    before: bytes
    after: bytes

    @cached_property
    def _lines(self) -> tuple[list[bytes], list[bytes]]:
        return self.before.split(b"\n"), self.after.split(b"\n")

    @cached_property
    def _starts(self) -> tuple[list[int], list[int]]:
        return _starts(self._lines[0]), _starts(self._lines[1])

    @cached_property
    def _same_ends(self) -> tuple[int, int]:
        """Length of the common prefix and suffix, in lines."""
        old, new = self._lines
        head, limit = 0, min(len(old), len(new))
        while head < limit and old[head] == new[head]:
            head += 1
        tail = 0
        while tail < limit - head and old[-1 - tail] == new[-1 - tail]:
            tail += 1
        return head, tail

    @cached_property
    def _blocks(self) -> list[tuple[int, int, int]]:
        """Equal runs of lines between the common ends: start in `before`, start in `after`, number of lines."""
        (old, new), (head, tail) = self._lines, self._same_ends
        middles = old[head : len(old) - tail], new[head : len(new) - tail]
        if max(map(len, middles)) > _MAX_CHANGED_LINES:
            return []
        found = SequenceMatcher(None, *middles, autojunk=False).get_matching_blocks()
        return [(block.a + head, block.b + head, block.size) for block in found if block.size]

    def find(self, at: int, length: int) -> int | None:
        """Start in `after` of the region of `before` that starts at `at`; None if not certain."""
        if at < 0:
            return None
        old_lines, new_lines = self._lines
        old_starts, new_starts = self._starts
        first, last = _line_at(old_starts, at), _line_at(old_starts, at + length)
        column = at - old_starts[first]
        low, high = max(first - 1, 0), min(last + 1, len(old_lines) - 1)
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
        wanted = b"\n".join(self._lines[0][low : high + 1])
        return self.after.count(wanted) == 1 and wanted.strip() != b""


def _starts(lines: list[bytes]) -> list[int]:
    starts, position = [], 0
    for line in lines:
        starts.append(position)
        position += len(line) + 1
    return starts


def _line_at(starts: list[int], offset: int) -> int:
    return bisect_right(starts, offset) - 1
