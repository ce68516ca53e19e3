"""Asks git which lines of a tree have changed since a revision."""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from midfill_infill.errors import MidfillError
from midfill_infill.repository import git

_HUNK: Final = re.compile(rb"^@@ -\S+ \+(\d+)(?:,(\d+))? @@")


@dataclass(frozen=True)
class ChangedLines:
    """Changed lines by path relative to the root: ranges, from 0, with an exclusive end. None means the whole file.
    A line ends at a line feed alone, as in git.
    """

    ranges: dict[str, tuple[tuple[int, int], ...] | None]

    def touches(self, path: str, data: bytes, start: int, end: int) -> bool:
        """True if one of the lines of the bytes `start` to `end` changed, in a file with the content `data`."""
        ranges = self.ranges.get(path, ())
        first = data.count(b"\n", 0, start)
        last = data.count(b"\n", 0, end)
        return ranges is None or any(above <= last and first < below for above, below in ranges)


def find_changed(root: Path, reference: str) -> ChangedLines:
    """The lines that differ between the commit `reference` and the files on disk; untracked files count as a whole.
    Raises MidfillError `git_failed`, also for an unknown reference.
    """
    words = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{reference}^{{commit}}")
    commit = git.run_git(root, *words, fine=(0, 1)).decode().strip()
    if not commit:
        message = f"there is no revision {reference!r} in {root}"
        raise MidfillError("git_failed", message, "name a commit, a branch or a tag, see `git log`")
    options = (
        "--unified=0", "--inter-hunk-context=0", "--no-color", "--no-ext-diff", "--no-textconv", "--no-renames",
        "--relative", "--src-prefix=a/", "--dst-prefix=b/",
    )  # fmt: skip
    ranges: dict[str, tuple[tuple[int, int], ...] | None] = {}
    path: str | None = None
    in_header = True
    for line in git.run_git(root, "diff", *options, commit, "--").split(b"\n"):
        if line.startswith(b"diff --git "):
            path, in_header = None, True
        elif in_header and line.startswith(b"+++ "):
            path = _read_path(line[4:].rstrip(b"\t"))
        elif path is not None and (match := _HUNK.match(line)):
            in_header = False
            start, count = int(match[1]), int(match[2] or b"1")
            span = (start - 1, start - 1 + count)
            if count == 0:  # lines were only removed: the lines above and below count as changed
                span = (max(start - 1, 0), start + 1)
            ranges[path] = (*(ranges.get(path) or ()), span)
    return ChangedLines(ranges | dict.fromkeys(git.list_files(root, "--others", "--exclude-standard")))


def _read_path(name: bytes) -> str | None:
    """The path that a diff names, which git quotes if it has a quote, a backslash or a control character; None for a
    deleted file.
    """
    if name.startswith(b'"'):
        name = name[1:-1].decode("unicode_escape").encode("latin-1")
    return os.fsdecode(name[2:]) if name.startswith(b"b/") else None
