"""A command of the user's: its words, its limits, what it may see. Starts nothing."""

import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from midfill_infill.errors import MidfillError
from midfill_infill.sandbox.run import Limits

_OF_A_SHELL: Final = re.compile(r"[|&;<>()$`*?~{}#\n]")


@dataclass(frozen=True)
class Command:
    """`words` are started without a shell. `flake_runs` repeats the command without fills and at the end with them.

    `allowed` are paths that it may read, `variables` those of the environment it gets, beside what is harmless. It
    runs in `folder`, which is relative to the root of the tree.
    """

    words: tuple[str, ...]
    limits: Limits = Limits()
    sandboxed: bool = True
    flake_runs: int = 1
    allowed: tuple[Path, ...] = ()
    variables: tuple[str, ...] = ()
    folder: str = ""

    @property
    def line(self) -> str:
        """As its user wrote it."""
        return self.words[2] if self.words[:2] == ("/bin/sh", "-c") else shlex.join(self.words)


def read_command(
    line: str,
    timeout_s: float,
    *,
    flake_runs: int = 1,
    sandboxed: bool = True,
    allow: Sequence[Path] = (),
    env: Sequence[str] = (),
    folder: str = "",
) -> Command:
    """The command of a line, which /bin/sh runs if it needs one. Raises `bad_request` and `file_missing`."""
    for path in allow:
        if not path.exists():
            raise MidfillError("file_missing", f"{path} does not exist", "give --allow another path")
    allowed = tuple(Path(os.path.abspath(path)) for path in allow)
    return Command(read_words(line), Limits(timeout_s), sandboxed, flake_runs, allowed, tuple(env), folder)


def read_words(line: str) -> tuple[str, ...]:
    try:
        words = tuple(shlex.split(line))
    except ValueError as error:
        raise MidfillError("bad_request", f"{line!r} is no command ({error})", "check the quotes") from None
    if not words:
        raise MidfillError("bad_request", "the command is empty", "write a command, as 'pytest -q'")
    needs_shell = _OF_A_SHELL.search(line) or words[0] == "cd" or "=" in words[0]
    return ("/bin/sh", "-c", line) if needs_shell else words
