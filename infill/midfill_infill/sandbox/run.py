"""Runs the user's command over a copy of the tree: no network, only the copy is writable, bounded in time.

With bubblewrap it sees what `view` lists and may call what `seccomp` allows. The copy is mounted at the tree's path, so
that packages installed from the tree run the copy. Without bubblewrap only limits and the timeout hold, and processes
that start their own session outlive the command.
"""

import json
import os
import resource
import selectors
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Final

from midfill_infill.sandbox import view
from midfill_infill.sandbox.command import Command
from midfill_infill.sandbox.seccomp import make_filter
from midfill_infill.sandbox.view import CopiedTree

_MAX_FILE_BYTES: Final = 2 << 30
_MAX_NEW_PROCESSES: Final = 512
_TAIL_BYTES: Final = 4000
POLL_S: Final = 0.05
# How long to read output after the command has ended: other processes may hold the pipe open.
_REST_S: Final = 1.0
# How long to wait for the end of all processes in the sandbox.
_GONE_S: Final = 20.0
_APART: Final = (
    "--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent", "--new-session", "--cap-drop", "ALL",
)  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """Exit code (None after the timeout) and the end of what was printed."""

    code: int | None
    output: str

    @property
    def passed(self) -> bool:
        return self.code == 0


@cache
def find_bubblewrap() -> str | None:
    """The path of a bubblewrap that works here."""
    path = shutil.which("bwrap")
    if path is None:
        return None
    words = [path, *view.machine_words(), *_APART, "true"]
    try:
        works = subprocess.run(words, capture_output=True, timeout=20, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return None
    return path if works else None


@contextmanager
def _wrapped(command: Command, tree: CopiedTree) -> Iterator[tuple[list[str], list[int]]]:
    """The words of `command` inside of bubblewrap, and descriptors that it must inherit."""
    bubblewrap = find_bubblewrap()
    assert bubblewrap is not None
    with ExitStack() as stack:
        words = [bubblewrap, *view.machine_words(), *view.tree_words(tree, command), *_APART]
        inherited = []
        for git in tree.git:
            with suppress(OSError):
                config = view.without_logins((git / "config").read_bytes())
                inherited.append(_give(stack, config))
                words += ["--ro-bind-data", str(inherited[-1]), str(git / "config")]
        if (program := make_filter()) is not None:
            inherited.append(_give(stack, program))
            words += ["--seccomp", str(inherited[-1])]
        yield [*words, "--", *command.words], inherited


def _give(stack: ExitStack, data: bytes) -> int:
    """A descriptor for reading `data`."""
    descriptor = os.memfd_create("midfill")
    stack.callback(os.close, descriptor)
    os.write(descriptor, data)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def run(command: Command, tree: CopiedTree) -> Outcome:
    """Runs `command`, ends all it started. Raises OSError if it cannot be started, MidfillError `cancelled`."""
    with started(command, tree) as process:
        return _watch(process, command)


@contextmanager
def started(command: Command, tree: CopiedTree, stdin: int = subprocess.DEVNULL) -> Iterator[subprocess.Popen[bytes]]:
    """Starts `command` as `run` does. At the end, ends the process and everything that it started."""
    root = tree.root if command.sandboxed else tree.folder
    source = root / "src" if (tree.folder / "src").is_dir() else root
    variables = view.choose_environment(command.variables, str(source))
    if not command.sandboxed:
        with _process(command.words, tree.folder / command.folder, variables, stdin) as process:
            yield process
        return
    ends = os.pipe()
    with open(ends[0], "rb") as read, open(ends[1], "wb") as write, ExitStack() as stack:
        words, inherited = stack.enter_context(_wrapped(command, tree))
        words[1:1] = ["--info-fd", str(write.fileno())]
        first: int | None = None  # of the sandbox, which ends last, after all its other processes
        with _process(words, tree.folder, variables, stdin, [*inherited, write.fileno()]) as process:
            write.close()
            with suppress(ValueError, KeyError, OSError):  # bubblewrap may not get that far
                first = os.pidfd_open(json.loads(read.read())["child-pid"])
                stack.callback(os.close, first)
            yield process
        if first is not None:
            _is_ready(first, _GONE_S)


@contextmanager
def _process(
    words: Sequence[str], folder: Path, variables: Mapping[str, str], stdin: int, inherited: Sequence[int] = ()
) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        words,
        cwd=folder,
        env=variables,
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        pass_fds=inherited,
        preexec_fn=partial(_limit, _count_own_tasks()),
    ) as process:
        try:
            yield process
        finally:
            _end(process)


def _watch(process: subprocess.Popen[bytes], command: Command) -> Outcome:
    """Waits for the command, ends it at its limits, and then ends what is left of its process group."""
    tail = b""
    piece: bytes | None = None  # nothing comes after an empty one
    deadline_s = time.monotonic() + command.timeout_s
    try:
        while process.poll() is None and (left_s := deadline_s - time.monotonic()) > 0 and piece != b"":
            command.check_cancelled()
            piece = read_piece(process, min(left_s, POLL_S))
            tail = (tail + (piece or b""))[-_TAIL_BYTES:]
        code: int | None = process.wait(max(0.0, deadline_s - time.monotonic()))
    except subprocess.TimeoutExpired:
        code = None
    finally:
        _end(process)
    deadline_s = time.monotonic() + _REST_S
    while piece != b"" and (left_s := deadline_s - time.monotonic()) > 0:
        piece = read_piece(process, left_s)
        tail = (tail + (piece or b""))[-_TAIL_BYTES:]
    return Outcome(code, tail.decode(errors="replace"))


def read_piece(process: subprocess.Popen[bytes], timeout_s: float) -> bytes | None:
    """Returns what a process prints next, b"" at the end of its output, None if nothing comes within the time."""
    assert process.stdout is not None
    return os.read(process.stdout.fileno(), 1 << 16) if _is_ready(process.stdout.fileno(), timeout_s) else None


def _is_ready(descriptor: int, timeout_s: float) -> bool:
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        return bool(selector.select(timeout_s))


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _count_own_tasks() -> int | None:
    """Number of this user's threads, which RLIMIT_NPROC counts; None without /proc."""
    count = 0
    try:
        for entry in os.scandir("/proc"):
            with suppress(OSError):  # it has ended
                if entry.name.isdecimal() and entry.stat().st_uid == os.getuid():
                    count += len(os.listdir(f"{entry.path}/task"))
    except OSError:
        return None
    return count


def _limit(num_tasks: int | None) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _lower(resource.RLIMIT_FSIZE, _MAX_FILE_BYTES)
    if num_tasks is not None:
        _lower(resource.RLIMIT_NPROC, num_tasks + _MAX_NEW_PROCESSES)


def _lower(which: int, most: int) -> None:
    _, hard = resource.getrlimit(which)
    value = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(which, (value, value))
