"""Unified diffs of bytes. Lines end at `\\n` only, whatever else they hold. Knows no file."""

import difflib

_NO_NEWLINE = b"\\ No newline at end of file\n"


def unified_diff(before: bytes, after: bytes, name: bytes = b"", context: int = 3) -> bytes:
    """What `patch -p0` understands; empty when nothing differs."""
    lines = difflib.diff_bytes(difflib.unified_diff, _lines(before), _lines(after), name, name, n=context)
    return b"".join(line if line.endswith(b"\n") else line + b"\n" + _NO_NEWLINE for line in lines)


def _lines(data: bytes) -> list[bytes]:
    *lines, last = data.split(b"\n")
    return [line + b"\n" for line in lines] + ([last] if last else [])
