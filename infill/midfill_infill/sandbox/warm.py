"""A pytest command that is kept warm in the sandbox: after its imports it forks a child for every run.

Installed packages are imported once, modules of the tree again in every run. The process ends if it cannot be trusted.
"""

import json
import os
import secrets
import subprocess
import tempfile
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from midfill_infill.sandbox import run
from midfill_infill.sandbox.command import Command
from midfill_infill.sandbox.copy import Copy

_PLUGIN: Final = Path(__file__).with_name("warm_plugin.py")
_NAME: Final = "midfill_warm"
_TAIL_BYTES: Final = 16_000
_START_S: Final = 60.0
_REST_S: Final = 30.0


class WarmEnded(Exception):
    """The warm process failed; later runs must start the command."""


def can_be_warm(command: Command) -> bool:
    """True if the command is a single pytest. Workers of xdist are separate processes and cannot be forked."""
    words = [os.path.basename(word) for word in command.words]
    is_pytest = "pytest" in words or "py.test" in words
    many = any(word.startswith(("-n", "--numprocesses", "--dist", "--forked")) for word in command.words)
    return command.sandboxed and is_pytest and words[0] != "sh" and not many


class WarmPytest:
    """Raises WarmEnded from every method, the first one too."""

    def __init__(self, copy: Copy, command: Command) -> None:
        self._mark = secrets.token_hex(16)
        folder = Path(tempfile.mkdtemp(prefix="warm-", dir=copy.folder))
        (folder / f"{_NAME}.py").write_bytes(_PLUGIN.read_bytes())
        paths = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
        plugins = [_NAME, *filter(None, [os.environ.get("PYTEST_PLUGINS")])]
        variables = (
            *command.variables,
            f"PYTHONPATH={os.pathsep.join(paths)}",
            f"PYTEST_PLUGINS={','.join(plugins)}",
            f"MIDFILL_WARM_MARK={self._mark}",
            f"MIDFILL_WARM_SPACE={os.readlink('/proc/self/ns/pid')}",
            f"MIDFILL_WARM_ROOT={copy.root}",
        )
        self._command = replace(command, variables=variables, allowed=(*command.allowed, folder))
        self._said = b""
        with ExitStack() as stack:
            try:
                self._process = stack.enter_context(run.started(self._command, copy.tree, stdin=subprocess.PIPE))
            except OSError as error:
                raise WarmEnded(str(error)) from None
            self._read(_START_S)
            self._stack = stack.pop_all()

    def run(self, timeout_s: float, *, marker: str = "", wants_modules: bool = False) -> dict[str, Any]:
        """Runs the tests once. Returns `code` (None after the timeout), `output`, `passed` and `failures`."""
        asked = {"timeout_s": timeout_s, "marker": marker, "wants_modules": wants_modules}
        return self._ask(asked, timeout_s + _REST_S)

    def take_in(self, told: dict[str, Any]) -> None:
        """Imports and compiles in advance the modules that a `wants_modules` run reported."""
        if not self._ask({name: told.get(name, []) for name in ("modules", "sources", "paths")}, _START_S)["ready"]:
            raise WarmEnded("a module starts threads")

    def close(self) -> None:
        self._stack.close()

    def _ask(self, asked: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(asked).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            raise WarmEnded("it has ended") from None
        return self._read(timeout_s)

    def _read(self, timeout_s: float) -> dict[str, Any]:
        """The next answer, with what was printed before it."""
        mark, deadline_s = b"\n" + self._mark.encode(), time.monotonic() + timeout_s
        while True:
            before, found, rest = self._said.partition(mark)
            if found and b"\n" in rest:
                line, _, self._said = rest.partition(b"\n")
                return {**json.loads(line), "output": before[-_TAIL_BYTES:].decode(errors="replace")}
            if not found:
                self._said = self._said[-_TAIL_BYTES:]
            self._command.check_cancelled()
            piece = run.read_piece(self._process, run.POLL_S)
            if piece == b"":
                raise WarmEnded("it has ended")
            if piece is None and time.monotonic() > deadline_s:
                raise WarmEnded("it does not answer")
            self._said += piece or b""
