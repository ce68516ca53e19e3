"""Unified diffs of bytes. Lines end at `\\n` only, whatever else they hold. Knows no file."""

import difflib
from typing import TypeVar

Items = TypeVar("Items", str, bytes, list[str], list[bytes])
_NO_NEWLINE = b"\\ No newline at end of file\n"


def unified_diff(before: bytes, after: bytes, name: bytes = b"", context: int = 3) -> bytes:
    r"""A diff for `patch -p0`; empty if nothing differs. Lines end at `\n` only."""
    lines = difflib.diff_bytes(difflib.unified_diff, _lines(before), _lines(after), name, name, n=context)
    return b"".join(line if line.endswith(b"\n") else line + b"\n" + _NO_NEWLINE for line in lines)


def _lines(data: bytes) -> list[bytes]:
    *lines, last = data.split(b"\n")
    return [line + b"\n" for line in lines] + ([last] if last else [])


def common_prefix(old: Items, new: Items) -> int:
    """Length of the common prefix. Compares slices, which takes O(n) in C."""
    low, high = 0, min(len(old), len(new))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if old[low:middle] == new[low:middle] else (low, middle - 1)
    return low


def common_ends(old: Items, new: Items) -> tuple[int, int]:
    """Lengths of the common prefix and of the common suffix behind it."""
    head = common_prefix(old, new)
    return head, common_prefix(old[head:][::-1], new[head:][::-1])
