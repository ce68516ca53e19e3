"""Keeps a pytest command warm in the sandbox: a process imports installed packages once and forks a child for each run.

Each child imports the modules of the tree anew. The process ends itself if other processes outlive a run.
"""

import json
import os
import secrets
import subprocess
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from midfill_infill.sandbox import run
from midfill_infill.sandbox.command import Command
from midfill_infill.sandbox.copy import Copy
from midfill_infill.sandbox.view import choose_variables

_PLUGIN: Final = Path(__file__).with_name("warm_plugin.py")
PLUGIN_NAME: Final = "midfill_warm"
_TAIL_BYTES: Final = 16_000  # of the output of a run
_START_S: Final = 60.0
_CLEANUP_S: Final = 30.0  # how long an answer may take beyond the time limit of its run


class WarmEnded(Exception):
    """The warm process failed; later runs must start the command."""


def tell_why_cold(command: Command) -> str:
    """Why a command cannot be kept warm, and what to do about it; "" if it can. Workers of xdist are processes of their
    own and cannot be forked.
    """
    words = [os.path.basename(word) for word in command.words]
    if words[0] == "sh" or not ("pytest" in words or "py.test" in words):
        return "only a single pytest tells what each test runs; give such a command"
    if any(word.startswith(("-n", "--numprocesses", "--dist", "--forked")) for word in command.words):
        return "the workers of -n do not tell what each test runs; leave out -n"
    if not command.sandboxed:
        return "without the sandbox nothing tells what each test runs; leave out --no-sandbox"
    return ""


def add_plugin(command: Command, copy: Copy, **variables: str) -> Command:
    """A command of pytest with the plugin, which gets these variables with `MIDFILL_WARM_` before their names."""
    folder = copy.folder / "plugin"
    if not folder.is_dir():
        folder.mkdir()
        (folder / f"{PLUGIN_NAME}.py").write_bytes(_PLUGIN.read_bytes())
    known = choose_variables(os.environ, command.variables)
    own = {
        "PYTHONPATH": os.pathsep.join([str(folder), *filter(None, [known.get("PYTHONPATH")])]),
        "PYTEST_PLUGINS": ",".join([PLUGIN_NAME, *filter(None, [known.get("PYTEST_PLUGINS")])]),
        "MIDFILL_WARM_ROOT": str(copy.root),
        **{f"MIDFILL_WARM_{name}": value for name, value in variables.items()},
    }
    added = (f"{name}={value}" for name, value in own.items())
    return replace(command, variables=(*command.variables, *added), allowed=(*command.allowed, folder))


class WarmPytest:
    """A warm process. Its start, `run` and `take_in` raise WarmEnded if it fails, and MidfillError `cancelled`; then it
    must be closed.
    """

    def __init__(self, copy: Copy, command: Command) -> None:
        self._mark = secrets.token_hex(16)  # begins each answer; the tests do not know it
        with_plugin = add_plugin(command, copy, MARK=self._mark, SPACE=os.readlink("/proc/self/ns/pid"))
        self._unread = b""  # output behind the last answer
        with ExitStack() as stack:
            # Bubblewrap ends with the thread that has started it, so that thread waits for the end.
            thread = stack.enter_context(ThreadPoolExecutor(1, "midfill-warm"))
            started = run.start_command(with_plugin, copy.tree, stdin=subprocess.PIPE)
            try:
                self._process = thread.submit(stack.enter_context, started).result()
            except OSError as error:
                raise WarmEnded(str(error)) from None
            self._read(command, _START_S)
            self._stack = stack.pop_all()

    def run(
        self, command: Command, *, marker: str = "", wants_modules: bool = False, only: Sequence[str] | None = None
    ) -> dict[str, Any]:
        """Runs the tests once, of these `only` the given ones, until `command` has no more time or is cancelled. Code
        that is to be noticed creates the file `marker`.

        Returns `code` (None after the timeout), `output`, `seconds`, `passed`, `failures`, `failed` and `reached`, as
        the plugin's `Recorder` reports them, and with `wants_modules` also what `take_in` needs.
        """
        limit_s = command.timeout_s
        request = {"timeout_s": limit_s, "marker": marker, "wants_modules": wants_modules, "only": only}
        return self._ask(request, command, limit_s + _CLEANUP_S)

    def take_in(self, report: dict[str, Any], command: Command) -> None:
        """Imports and compiles in advance the modules that a `wants_modules` run of `command` reported."""
        if "modules" not in report:
            raise WarmEnded("it does not tell what it ran")
        request = {name: report[name] for name in ("modules", "sources", "paths")}
        if not self._ask(request, command, _START_S)["ready"]:
            raise WarmEnded("a module starts threads")

    def close(self) -> None:
        with suppress(BrokenPipeError):  # if it has ended with a request unread
            self._stack.close()

    def _ask(self, request: dict[str, Any], command: Command, timeout_s: float) -> dict[str, Any]:
        """Sends a request to the plugin, and returns its answer."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            raise WarmEnded("it has ended") from None
        return self._read(command, timeout_s)

    def _read(self, command: Command, timeout_s: float) -> dict[str, Any]:
        """Waits for the next answer. Its `output` is the end of what was printed before it."""
        mark, deadline_s = b"\n" + self._mark.encode(), time.monotonic() + timeout_s
        while True:
            output, has_mark, answer = self._unread.partition(mark)
            if has_mark and b"\n" in answer:
                line, _, self._unread = answer.partition(b"\n")
                return {**json.loads(line), "output": output[-_TAIL_BYTES:].decode(errors="replace")}
            if not has_mark:
                self._unread = self._unread[-_TAIL_BYTES:]
            command.check_cancelled()
            piece = run.read_piece(self._process, run.POLL_S)
            if piece == b"":
                raise WarmEnded("it has ended")
            if piece is None and time.monotonic() > deadline_s:
                raise WarmEnded("it does not answer")
            self._unread += piece or b""
