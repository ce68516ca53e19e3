"""Lines that differ from a commit. Knows git's diff, no holes."""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from midfill_infill.refactor.journal.guards import run_git
from midfill_infill.text.lines import Lines
from midfill_infill.text.spans import Hole

_HUNK: Final = re.compile(rb"^@@ -\S+ \+(\d+)(?:,(\d+))? @@")


@dataclass(frozen=True)
class ChangedLines:
    """Line ranges, from 0 with an exclusive end, per path relative to the root. None means the whole file."""

    ranges: dict[str, tuple[tuple[int, int], ...] | None]

    def touches(self, path: str, data: bytes, hole: Hole) -> bool:
        """Whether a hole overlaps changed lines."""
        found = self.ranges.get(path, ())
        if found is None:
            return True
        lines = Lines(data)
        first, last = lines.at(hole.start_byte), lines.at(hole.end_byte)
        return any(start <= last and first < end for start, end in found)


def find_changed(root: Path, reference: str) -> ChangedLines:
    """Differences between `reference` and the files on disk; untracked files count as a whole.

    Raises MidfillError `git_failed`, also for an unknown reference.
    """
    asked = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{reference}^{{commit}}")
    commit = run_git(root, *asked).decode().strip()
    options = (
        "--unified=0", "--no-color", "--no-ext-diff", "--no-textconv", "--no-renames", "--relative",
        "--src-prefix=a/", "--dst-prefix=b/",
    )  # fmt: skip
    found: dict[str, tuple[tuple[int, int], ...] | None] = {}
    path: str | None = None
    in_header = True
    for line in run_git(root, "diff", *options, commit, "--").split(b"\n"):
        if line.startswith(b"diff --git "):
            path, in_header = None, True
        elif in_header and line.startswith(b"+++ b/"):
            path = os.fsdecode(line[6:].rstrip(b"\t"))
        elif path is not None and (match := _HUNK.match(line)):
            in_header = False
            start, count = int(match[1]), int(match[2] or b"1")
            span = (start - 1, start - 1 + count) if count else (max(start - 1, 0), start + 1)
            found[path] = (*(found.get(path) or ()), span)
    for name in run_git(root, "ls-files", "-z", "--others", "--exclude-standard").split(b"\0"):
        if name:
            found[os.fsdecode(name)] = None
    return ChangedLines(found)
