"""Compares two texts: unified diffs of bytes, and what both have in common at their ends. Knows no file."""

import difflib
from typing import TypeVar

Items = TypeVar("Items", str, bytes, list[str], list[bytes])
_NO_NEWLINE = b"\\ No newline at end of file\n"


def unified_diff(before: bytes, after: bytes, name: bytes = b"", context: int = 3) -> bytes:
    r"""A diff for `patch -p0` of the file `name`; empty if nothing differs. Lines end at `\n` only."""
    lines: list[bytes] = []
    for line in difflib.diff_bytes(difflib.unified_diff, _lines(before), _lines(after), name, name, n=context):
        lines.append(line)
        if not line.endswith(b"\n"):
            lines.append(b"\n" + _NO_NEWLINE)
    return b"".join(lines)


def _lines(data: bytes) -> list[bytes]:
    r"""The lines with their `\n`; the last one may have none."""
    *whole, last = data.split(b"\n")
    lines = [line + b"\n" for line in whole]
    if last:
        lines.append(last)
    return lines


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
