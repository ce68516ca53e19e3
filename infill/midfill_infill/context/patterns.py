"""Patterns as in a `.gitignore`. Whoever wrote them can neither stop nor delay who asks. Knows names, no folder."""

import os
import re
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Final

# Beyond every `.gitignore` that was written by hand; to compile so many takes a second.
MAX_BYTES: Final = 256 * 1024
MAX_PATTERNS, MAX_PATTERN_CHARS = 1000, 32 * 1024
EVERYTHING: Final = "*"

_STAR: Final = r"\[\^/\]\*"
_STARS: Final = re.compile(rf"(?:{_STAR})+((?:\[\^/\](?!\*)|[^/])*?)(?={_STAR})")
_FIRST_FOLDERS, _FOLDERS = r"\(\?:\.\+/\)\?", r"\(\?:/\.\+\)\?"
_FOLDERS_TWICE: Final = re.compile(rf"({_FIRST_FOLDERS}|{_FOLDERS})(.*?)(?={_FOLDERS})", re.DOTALL)
_WITHIN_FOLDERS: Final = "ps_d"


class Patterns:
    """Lines of patterns; those that are none are left out, as git does."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._rules = [rule for line in lines for rule in _read_line(line)][::-1]

    def says(self, name: str) -> bool | None:
        """Whether the last pattern with an opinion on `name`, which ends with `/` for a folder, takes it or, by `!`,
        does not. One that names the file itself wins over one that names a folder above.
        """
        said: bool | None = None
        for regex, takes in self._rules:
            if match := regex.search(name):
                if not match.groupdict().get(_WITHIN_FOLDERS):
                    return takes
                said = takes if said is None else said
        return said

    def take(self, name: str) -> bool:
        return bool(self.says(name))


def read_lines(file: Path, *, follow: bool = False) -> list[str]:
    """The lines of a file of patterns. Raises OSError for what is none: a folder, a pipe, a device, and, unless
    `follow`, a link, as git does. One that is too large for anybody's use is taken to name everything.
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
    """The pattern relative to any folder: with a slash at its start or in its middle it is relative to one."""
    sign, path = pattern[: pattern.startswith("!")], pattern.removeprefix("!")
    if "/" not in path.rstrip().rstrip("/") or path.startswith(("#", "**/")):
        return pattern
    return f"{sign}**/{path.removeprefix('/')}"


def _read_line(line: str) -> list[tuple[re.Pattern[str], bool]]:
    from pathspec import GitIgnoreSpec  # its import takes as long as a check of twenty files

    try:
        return [
            (_hasten(regex), takes)
            for pattern in GitIgnoreSpec.from_lines([line]).patterns
            if (regex := pattern.regex) is not None and (takes := pattern.include) is not None
        ]
    except (ValueError, re.error):  # no pattern
        return []


def _hasten(regex: re.Pattern[str]) -> re.Pattern[str]:
    """The same without its detours: for each star but the last of a name, and each `**` but the last, the shortest
    match is as good as any other. `*a*a*a*a*a*a*b` would take minutes to miss a long name.
    """
    hastened = _FOLDERS_TWICE.sub(_settle_folders, regex.pattern)
    hastened = _STARS.sub(r"(?>[^/]*?\1)", hastened)
    return regex if hastened == regex.pattern else re.compile(hastened)


def _settle_folders(match: re.Match[str]) -> str:
    folders, names = match.groups()
    return f"(?>{folders.replace('+', '+?')}?{names}(?=/))"
