"""Matches names with `.gitignore` patterns. No hostile pattern raises an error or takes long. Knows no folder."""

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
_WITHIN_FOLDERS: Final = "ps_d"  # pathspec's group, which is empty unless a folder above the name matches


class Patterns:
    """The patterns of one ignore file, in order. Invalid ones are left out, as in git."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._rules = [rule for line in lines for rule in _read_line(line)][::-1]

    def __len__(self) -> int:
        return len(self._rules)

    def says(self, name: str) -> bool | None:
        """True if the last pattern that matches `name` includes it, False if it excludes it (with `!`), None if none
        matches. The name of a folder ends with `/`. A pattern for the name itself wins over one for a folder above.
        """
        by_folder: bool | None = None
        for regex, includes in self._rules:  # the last pattern first
            if match := regex.search(name):
                if not match.groupdict().get(_WITHIN_FOLDERS):
                    return includes
                if by_folder is None:
                    by_folder = includes
        return by_folder


def read_lines(file: Path, *, follow: bool = False) -> list[str]:
    """The patterns in an ignore file; a file that is too large counts as one pattern that matches everything. Raises
    OSError for what is no regular file and, unless `follow`, for a link, which git refuses too.
    """
    descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW))
    with open(descriptor, "rb") as opened:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(f"{file} is not a regular file")
        data = opened.read(MAX_BYTES + 1)
    text = data.decode("utf-8-sig", "replace").replace("\r\n", "\n")
    lines = [line for line in text.split("\n") if line and not line.startswith("#")]
    is_too_large = len(data) > MAX_BYTES or len(lines) > MAX_PATTERNS or sum(map(len, lines)) > MAX_PATTERN_CHARS
    return [EVERYTHING] if is_too_large else lines


def anywhere(pattern: str) -> str:
    """A pattern that matches below any folder. A slash at the start or in the middle would anchor it to one folder."""
    sign, path = pattern[: pattern.startswith("!")], pattern.removeprefix("!")
    if "/" not in path.rstrip().rstrip("/") or path.startswith(("#", "**/")):
        return pattern
    return f"{sign}**/{path.removeprefix('/')}"


def _read_line(line: str) -> list[tuple[re.Pattern[str], bool]]:
    """What a line matches, and whether that is included; nothing for comments and invalid patterns."""
    from pathspec import GitIgnoreSpec  # its import takes as long as checking twenty files

    try:
        return [
            (without_backtracking(regex), includes)
            for pattern in GitIgnoreSpec.from_lines([line]).patterns
            if (regex := pattern.regex) is not None and (includes := pattern.include) is not None
        ]
    except (ValueError, re.error):  # invalid
        return []


def without_backtracking(regex: re.Pattern[str]) -> re.Pattern[str]:
    """The same pattern with atomic groups: `*a*a*a*a*a*a*b` would backtrack for minutes on a long name. It matches the
    same, because for each star of a name but the last, and for each `**` but the last, the shortest match suffices.
    """
    atomic = _FOLDERS_TWICE.sub(_make_atomic, regex.pattern)
    atomic = _STARS.sub(r"(?>[^/]*?\1)", atomic)
    return regex if atomic == regex.pattern else re.compile(atomic)


def _make_atomic(match: re.Match[str]) -> str:
    folders, names = match.groups()
    return f"(?>{folders.replace('+', '+?')}?{names}(?=/))"
