"""Describes a command of the user: its words, its limits, and what it may see. Starts nothing."""

import os
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from midfill_infill.errors import MidfillError

_SHELL_SYNTAX: Final = re.compile(r"[|&;<>()$`*?~{}#\n]")


@dataclass(frozen=True)
class Command:
    """`words` are started without a shell, in `folder`, which is relative to the root of the tree.

    A run ends after `timeout_s`, or as soon as `is_cancelled` returns True. A verification runs it `flake_runs` times
    without fills, and at the end as often with all good fills. It may read the paths `allowed`. It gets `variables`,
    each "NAME" or "NAME=VALUE", beside harmless ones.
    """

    words: tuple[str, ...]
    timeout_s: float = 600.0
    sandboxed: bool = True
    flake_runs: int = 1
    allowed: tuple[Path, ...] = ()
    variables: tuple[str, ...] = ()
    folder: str = ""
    is_cancelled: Callable[[], bool] = lambda: False

    @property
    def line(self) -> str:
        """The command line as its user wrote it, but perhaps quoted in another way."""
        return self.words[2] if self.words[:2] == ("/bin/sh", "-c") else shlex.join(self.words)

    def check_cancelled(self) -> None:
        """Raises MidfillError `cancelled`."""
        if self.is_cancelled():
            raise MidfillError("cancelled", "the command was cancelled")


def read_command(
    line: str,
    timeout_s: float,
    *,
    flake_runs: int = 1,
    sandboxed: bool = True,
    allow: Sequence[Path] | None = None,
    env: Sequence[str] | None = None,
) -> Command:
    """The command of a line, as `read_words` reads it. Raises `bad_request`, and `file_missing` for a path to allow."""
    for path in allow or ():
        if not path.exists():
            raise MidfillError("file_missing", f"{path} does not exist", "give --allow another path")
    allowed = tuple(Path(os.path.abspath(path)) for path in allow or ())
    return Command(read_words(line), timeout_s, sandboxed, flake_runs, allowed=allowed, variables=tuple(env or ()))


def read_words(line: str) -> tuple[str, ...]:
    """The words of a command line; those of /bin/sh with the line if it needs a shell. Raises `bad_request`."""
    try:
        words = tuple(shlex.split(line))
    except ValueError as error:
        raise MidfillError("bad_request", f"{line!r} is not a command ({error})", "check the quotes") from None
    if not words:
        raise MidfillError("bad_request", "the command is empty", "write a command, as 'pytest -q'")
    needs_shell = _SHELL_SYNTAX.search(line) or words[0] == "cd" or "=" in words[0]
    return ("/bin/sh", "-c", line) if needs_shell else words
