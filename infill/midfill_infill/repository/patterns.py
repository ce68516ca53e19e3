"""Matches `.gitignore` patterns. Hostile ignore files cannot cause ReDoS or errors. Knows names, no folder."""

import os
import re
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Final

# No hand-written `.gitignore` is larger; compiling this many patterns takes a second.
MAX_BYTES: Final = 256 * 1024
MAX_PATTERNS, MAX_PATTERN_CHARS = 1000, 32 * 1024
EVERYTHING: Final = "*"

_STAR: Final = r"\[\^/\]\*"
_STARS: Final = re.compile(rf"(?:{_STAR})+((?:\[\^/\](?!\*)|[^/])*?)(?={_STAR})")
_FIRST_FOLDERS, _FOLDERS = r"\(\?:\.\+/\)\?", r"\(\?:/\.\+\)\?"
_FOLDERS_TWICE: Final = re.compile(rf"({_FIRST_FOLDERS}|{_FOLDERS})(.*?)(?={_FOLDERS})", re.DOTALL)
_WITHIN_FOLDERS: Final = "ps_d"


class Patterns:
    """A list of patterns; invalid ones are ignored, as in git."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._rules = [rule for line in lines for rule in _read_line(line)][::-1]

    def says(self, name: str) -> bool | None:
        """True if the last matching pattern includes `name` (which ends with `/` for a folder), False if it excludes
        `name` (with `!`), None without a match. A pattern for the file itself wins over one for a parent folder.
        """
        said: bool | None = None
        for regex, takes in self._rules:
            if match := regex.search(name):
                if not match.groupdict().get(_WITHIN_FOLDERS):
                    return takes
                said = takes if said is None else said
        return said


def read_lines(file: Path, *, follow: bool = False) -> list[str]:
    """Lines of a pattern file; one that is too large matches everything. Raises OSError for what is no regular file,
    and for links unless `follow`, as git does.
    """
    descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW))
    with open(descriptor, "rb") as opened:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(f"{file} is not a regular file")
        data = opened.read(MAX_BYTES + 1)
    lines = [line for line in data.decode("utf-8", "replace").splitlines() if line and not line.startswith("#")]
    is_too_large = len(data) > MAX_BYTES or len(lines) > MAX_PATTERNS or sum(map(len, lines)) > MAX_PATTERN_CHARS
    return [EVERYTHING] if is_too_large else lines


def anywhere(pattern: str) -> str:
    """The pattern made relative to any folder: a slash at the start or in the middle anchors it to one."""
    sign, path = pattern[: pattern.startswith("!")], pattern.removeprefix("!")
    if "/" not in path.rstrip().rstrip("/") or path.startswith(("#", "**/")):
        return pattern
    return f"{sign}**/{path.removeprefix('/')}"


def _read_line(line: str) -> list[tuple[re.Pattern[str], bool]]:
    from pathspec import GitIgnoreSpec  # its import takes as long as checking twenty files

    try:
        return [
            (without_backtracking(regex), takes)
            for pattern in GitIgnoreSpec.from_lines([line]).patterns
            if (regex := pattern.regex) is not None and (takes := pattern.include) is not None
        ]
    except (ValueError, re.error):  # invalid
        return []


def without_backtracking(regex: re.Pattern[str]) -> re.Pattern[str]:
    """The same pattern with atomic groups: `*a*a*a*a*a*a*b` would backtrack for minutes on a long name. For each star
    but the last of a name, and each `**` but the last, the shortest match suffices.
    """
    atomic = _FOLDERS_TWICE.sub(_make_atomic, regex.pattern)
    atomic = _STARS.sub(r"(?>[^/]*?\1)", atomic)
    return regex if atomic == regex.pattern else re.compile(atomic)


def _make_atomic(match: re.Match[str]) -> str:
    folders, names = match.groups()
    return f"(?>{folders.replace('+', '+?')}?{names}(?=/))"
