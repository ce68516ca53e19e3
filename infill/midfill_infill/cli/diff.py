"""Unified diffs of bytes, for `patch`, for JSON and for a terminal. Knows nothing of holes."""

import difflib
import os
from pathlib import Path

_NO_NEWLINE = b"\\ No newline at end of file\n"


def unified_diff(path: Path, before: bytes, after: bytes) -> bytes:
    """What `patch -p0` understands; empty when nothing differs. Lines end at `\\n` only, whatever else they hold."""
    name = os.fsencode(path)
    lines = difflib.diff_bytes(difflib.unified_diff, _lines(before), _lines(after), name, name)
    return b"".join(line if line.endswith(b"\n") else line + b"\n" + _NO_NEWLINE for line in lines)


def _lines(data: bytes) -> list[bytes]:
    lines = [line + b"\n" for line in data.split(b"\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]
