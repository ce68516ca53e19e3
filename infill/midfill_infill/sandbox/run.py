"""Runs a command of the user's over a copy of the tree: no network, nothing but the copy writable, bounded in time.

With bubblewrap it sees what `view` lists and can call what `seccomp` leaves, and the copy stands where the tree itself
stands, so that what was installed from the tree runs the copy; without it only limits and a timeout hold, and what
makes itself a session of its own outlives the command.
"""

import json
import os
import resource
import selectors
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Final

from midfill_infill.errors import MidfillError
from midfill_infill.sandbox import environment, view
from midfill_infill.sandbox.seccomp import make_filter
from midfill_infill.sandbox.view import Access

_MAX_FILE_BYTES: Final = 2 << 30
_MAX_NEW_PROCESSES: Final = 512
_TAIL_BYTES: Final = 4000
POLL_S: Final = 0.05
# How long output is read after the command's end: other processes may hold the pipe open.
_REST_S: Final = 1.0
# How long to wait for the end of all processes in the sandbox.
_GONE_S: Final = 20.0
_APART: Final = (
    "--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent", "--new-session", "--cap-drop", "ALL",
)  # fmt: skip


@dataclass(frozen=True)
class Limits:
    """A command ends after `timeout_s`, and as soon as `is_cancelled` says so."""

    timeout_s: float = 600.0
    is_cancelled: Callable[[], bool] = lambda: False

    def check(self) -> None:
        """Raises MidfillError `cancelled`."""
        if self.is_cancelled():
            raise MidfillError("cancelled", "the command was cancelled")


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
def _wrapped(command: Sequence[str], folder: Path, at: Path, access: Access) -> Iterator[tuple[list[str], list[int]]]:
    """`command` inside of bubblewrap, and descriptors that it must inherit."""
    bubblewrap = find_bubblewrap()
    assert bubblewrap is not None
    with ExitStack() as stack:
        words = [bubblewrap, *view.machine_words(), *view.tree_words(folder, at, access, command[0]), *_APART]
        inherited = []
        for git in access.git:
            with suppress(OSError):
                config = view.without_logins((git / "config").read_bytes())
                inherited.append(_give(stack, config))
                words += ["--ro-bind-data", str(inherited[-1]), str(git / "config")]
        if (program := make_filter()) is not None:
            inherited.append(_give(stack, program))
            words += ["--seccomp", str(inherited[-1])]
        yield [*words, "--", *command], inherited


def _give(stack: ExitStack, data: bytes) -> int:
    """A descriptor from which `data` is read."""
    descriptor = os.memfd_create("midfill")
    stack.callback(os.close, descriptor)
    os.write(descriptor, data)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def run(
    command: Sequence[str],
    folder: Path,
    limits: Limits,
    *,
    sandboxed: bool,
    copy_of: Path | None = None,
    access: Access | None = None,
) -> Outcome:
    """Runs `command` in `folder` and ends everything it started. Raises OSError where it cannot be started,
    MidfillError `cancelled`.

    In the sandbox it finds itself in `copy_of`, the tree that `folder` is a copy of.
    """
    with started(command, folder, limits, sandboxed=sandboxed, copy_of=copy_of, access=access) as process:
        return _watch(process, limits)


@contextmanager
def started(
    command: Sequence[str],
    folder: Path,
    limits: Limits,
    *,
    sandboxed: bool,
    copy_of: Path | None = None,
    access: Access | None = None,
    stdin: int = subprocess.DEVNULL,
) -> Iterator[subprocess.Popen[bytes]]:
    """The process of `command`, as `run` has it; at the end it and everything that it started are gone."""
    tree, access = (copy_of or folder) if sandboxed else folder, access or Access()
    source = tree / "src" if (folder / "src").is_dir() else tree
    variables = environment.for_command(access.variables, str(source))
    start = partial(_start, variables=variables, stdin=stdin)
    if not sandboxed:
        with start(command, folder / access.start) as process:
            try:
                yield process
            finally:
                _end(process)
        return
    with _wrapped(command, folder, tree, access) as (words, inherited), _Inside() as inside:
        words[1:1] = ["--info-fd", str(inside.descriptor)]
        with start(words, folder, inherited=[*inherited, inside.descriptor]) as process:
            inside.look()
            try:
                yield process
            finally:
                _end(process)
        inside.wait()


def _start(
    words: Sequence[str],
    folder: Path,
    variables: Mapping[str, str],
    stdin: int,
    inherited: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        words,
        cwd=folder,
        env=variables,
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        pass_fds=inherited,
        preexec_fn=partial(_limit, _count_own_tasks()),
    )


class _Inside:
    """The sandbox's first process, which the kernel ends only after all others in the sandbox."""

    def __init__(self) -> None:
        self._read, self.descriptor = os.pipe()
        self._process: int | None = None

    def __enter__(self) -> "_Inside":
        return self

    def __exit__(self, *_: object) -> None:
        for descriptor in (self._read, self.descriptor, self._process):
            if descriptor is not None and descriptor >= 0:
                os.close(descriptor)

    def look(self) -> None:
        """Reads its process id from bubblewrap, if bubblewrap got that far."""
        os.close(self.descriptor)
        self.descriptor = -1
        said = b""
        while piece := os.read(self._read, 1 << 12):
            said += piece
        with suppress(ValueError, KeyError, OSError):
            self._process = os.pidfd_open(json.loads(said)["child-pid"])

    def wait(self) -> None:
        if self._process is not None:
            with selectors.DefaultSelector() as selector:
                selector.register(self._process, selectors.EVENT_READ)
                selector.select(_GONE_S)


def _watch(process: subprocess.Popen[bytes], limits: Limits) -> Outcome:
    """Waits for the command, ends it at its limits, and then ends what is left of its process group."""
    assert process.stdout is not None
    tail = _Tail(process.stdout.fileno())
    deadline_s = time.monotonic() + limits.timeout_s
    try:
        while process.poll() is None and (left_s := deadline_s - time.monotonic()) > 0 and not tail.is_whole:
            limits.check()
            tail.read(min(left_s, POLL_S))
        code: int | None = process.wait(max(0.0, deadline_s - time.monotonic()))
    except subprocess.TimeoutExpired:
        code = None
    finally:
        _end(process)
    deadline_s = time.monotonic() + _REST_S
    while not tail.is_whole and (left_s := deadline_s - time.monotonic()) > 0:
        tail.read(left_s)
    return Outcome(code, tail.data.decode(errors="replace"))


class _Tail:
    """The end of what comes through a pipe. `is_whole` when nothing more can come."""

    def __init__(self, descriptor: int) -> None:
        self.data, self.is_whole = b"", False
        self._descriptor = descriptor

    def read(self, timeout_s: float) -> None:
        """Reads what is available within the time."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._descriptor, selectors.EVENT_READ)
            if not selector.select(timeout_s):
                return
        piece = os.read(self._descriptor, 1 << 16)
        self.data = (self.data + piece)[-_TAIL_BYTES:]
        self.is_whole = not piece


def _end(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _count_own_tasks() -> int | None:
    """Number of this user's threads, which RLIMIT_NPROC counts; None without /proc."""
    count = 0
    try:
        for entry in os.scandir("/proc"):
            try:
                if entry.name.isdecimal() and entry.stat().st_uid == os.getuid():
                    count += len(os.listdir(f"{entry.path}/task"))
            except OSError:
                continue  # it has ended
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
