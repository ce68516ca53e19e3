"""Compares two texts: unified diffs of bytes, and what both have in common at their ends. Knows no file."""

import difflib
import re
from collections import Counter
from collections.abc import Iterator
from typing import TypeVar

Items = TypeVar("Items", str, bytes, list[str], list[bytes])
_NO_NEWLINE = b"\\ No newline at end of file\n"


def unified_diff(before: bytes, after: bytes, name: bytes = b"", context: int = 3) -> bytes:
    r"""A diff for `patch -p0` of the file `name`; empty if nothing differs. Lines end at `\n` only."""
    old, new = _lines(before), _lines(after)
    lines: list[bytes] = []
    for group in _Comparison(None, old, new).get_grouped_opcodes(context):
        (_, old_start, _, new_start, _), (_, _, old_end, _, new_end) = group[0], group[-1]
        ranges = f"@@ -{_count_lines(old_start, old_end)} +{_count_lines(new_start, new_end)} @@\n"
        lines.append(ranges.encode())
        for kind, first_old, last_old, first_new, last_new in group:
            if kind == "equal":
                lines += [b" " + line for line in old[first_old:last_old]]
                continue
            lines += [b"-" + line for line in old[first_old:last_old]]
            lines += [b"+" + line for line in new[first_new:last_new]]
    names = [b"--- %b\n+++ %b\n" % (name, name)] if lines else []
    return b"".join([*names, *(line if line.endswith(b"\n") else line + b"\n" + _NO_NEWLINE for line in lines)])


class _Comparison(difflib.SequenceMatcher[bytes]):
    """Matches what two texts have in common at their ends, then runs around a line that each of them has once. The
    longest run alone may be a function that a fill repeats, and what stands around the fill would be shown as changed.
    """

    a: list[bytes]
    b: list[bytes]

    def find_longest_match(
        self, alo: int = 0, ahi: int | None = None, blo: int = 0, bhi: int | None = None
    ) -> difflib.Match:
        old_end, new_end = len(self.a) if ahi is None else ahi, len(self.b) if bhi is None else bhi
        old, new = self.a[alo:old_end], self.b[blo:new_end]
        head, tail = common_ends(old, new)
        if head:
            return difflib.Match(alo, blo, head)
        if tail:
            return difflib.Match(old_end - tail, new_end - tail, tail)
        runs = list(_find_runs(old, new))
        if runs:
            first, other, size = max(runs, key=lambda run: run[2])
            return difflib.Match(alo + first, blo + other, size)
        return super().find_longest_match(alo, old_end, blo, new_end)


def _find_runs(old: list[bytes], new: list[bytes]) -> Iterator[tuple[int, int, int]]:
    """Yields common runs around lines that both texts have once: where they start in each, and how long they are."""
    counts, other_counts = Counter(old), Counter(new)
    places = {line: index for index, line in enumerate(new) if other_counts[line] == 1}
    run_end = 0
    for index, line in enumerate(old):
        if index < run_end or counts[line] != 1 or line not in places:
            continue
        other = places[line]
        before = common_prefix(old[:index][::-1], new[:other][::-1])
        run_end = index + common_prefix(old[index:], new[other:])
        yield index - before, other - before, run_end - index + before


def _count_lines(start: int, end: int) -> str:
    """A range of lines as a diff has it: the first one, from 1, and how many."""
    return f"{start + 1}" if end - start == 1 else f"{start + (end > start)},{end - start}"


def _lines(data: bytes) -> list[bytes]:
    r"""The lines with their `\n`; the last one may have none."""
    return re.findall(rb"[^\n]*\n|[^\n]+", data)


def common_prefix(old: Items, new: Items) -> int:
    """Length of the common prefix. Compares slices, which takes O(n) in C."""
    low, high = 0, min(len(old), len(new))
    while low < high:
        middle = (low + high + 1) // 2
        if old[low:middle] == new[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def common_ends(old: Items, new: Items) -> tuple[int, int]:
    """Lengths of the common prefix, and of the common suffix of what follows it."""
    head = common_prefix(old, new)
    tail = common_prefix(old[head:][::-1], new[head:][::-1])
    return head, tail
