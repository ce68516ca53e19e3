"""Runs the user's command over a copy of the tree: no network, only the copy is writable, bounded in time.

With bubblewrap the command sees what `view` lists and may call what `seccomp` allows. The copy is mounted at the tree's
path, so that packages installed from the tree run the copy. Without bubblewrap only the resource limits and the timeout
hold, and a process that starts its own session outlives the command.
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
_TAIL_BYTES: Final = 200_000  # of the output, which alone tells the failures of what is no pytest
POLL_S: Final = 0.05
# How long to read output after the command has ended: other processes may hold the pipe open.
_DRAIN_S: Final = 1.0
# How long to wait for the end of all processes in the sandbox.
_TEARDOWN_S: Final = 20.0
_ISOLATION: Final = (
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
    words = [path, *view.machine_words(), *_ISOLATION, "true"]
    try:
        works = subprocess.run(words, capture_output=True, timeout=20, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return None
    return path if works else None


@contextmanager
def _wrap(command: Command, tree: CopiedTree) -> Iterator[tuple[list[str], list[int]]]:
    """The words that run `command` in bubblewrap, and the descriptors, closed at the end, that bubblewrap inherits."""
    bubblewrap = find_bubblewrap()
    assert bubblewrap is not None
    with ExitStack() as stack:
        words = [bubblewrap, *view.machine_words(), *view.tree_words(tree, command), *_ISOLATION]
        inherited = []
        for git in tree.git:
            with suppress(OSError):
                config = view.without_logins((git / "config").read_bytes())
                inherited.append(_open_data(stack, config))
                words += ["--ro-bind-data", str(inherited[-1]), str(git / "config")]
        program = make_filter()
        if program is not None:
            inherited.append(_open_data(stack, program))
            words += ["--seccomp", str(inherited[-1])]
        yield [*words, "--", *command.words], inherited


def _open_data(stack: ExitStack, data: bytes) -> int:
    """A descriptor that reads `data`; `stack` closes it."""
    descriptor = os.memfd_create("midfill")
    stack.callback(os.close, descriptor)
    os.write(descriptor, data)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def run(command: Command, tree: CopiedTree) -> Outcome:
    """Runs `command`, and ends it at its limits. Raises OSError if it cannot be started, MidfillError `cancelled`."""
    with start_command(command, tree) as process:
        return _watch(process, command)


@contextmanager
def start_command(
    command: Command, tree: CopiedTree, stdin: int = subprocess.DEVNULL
) -> Iterator[subprocess.Popen[bytes]]:
    """Starts `command` and yields its process. At the end, kills its process group, in a sandbox all it started."""
    root = tree.root if command.sandboxed else tree.folder
    source = root / "src" if (tree.folder / "src").is_dir() else root
    variables = view.choose_environment(command.variables, str(source))
    if not command.sandboxed:
        with _start_process(command.words, tree.folder / command.folder, variables, stdin) as process:
            yield process
        return
    read_end, write_end = os.pipe()
    with open(read_end, "rb") as info, open(write_end, "wb") as write, ExitStack() as stack:
        words, inherited = stack.enter_context(_wrap(command, tree))
        words[1:1] = ["--info-fd", str(write.fileno())]
        init: int | None = None  # the pidfd of the sandbox's first process, which ends after all its other processes
        with _start_process(words, tree.folder, variables, stdin, [*inherited, write.fileno()]) as process:
            write.close()
            with suppress(ValueError, KeyError, OSError):  # bubblewrap may end before it writes
                init = os.pidfd_open(json.loads(info.read())["child-pid"])
                stack.callback(os.close, init)
            yield process
        if init is not None:
            _wait_until_readable(init, _TEARDOWN_S)


@contextmanager
def _start_process(
    words: Sequence[str], folder: Path, variables: Mapping[str, str], stdin: int, inherited: Sequence[int] = ()
) -> Iterator[subprocess.Popen[bytes]]:
    """Starts a process with limits and a process group of its own, which is killed at the end."""
    with subprocess.Popen(
        words,
        cwd=folder,
        env=variables,
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        pass_fds=inherited,
        preexec_fn=partial(_set_limits, _count_own_tasks()),
    ) as process:
        try:
            yield process
        finally:
            _kill_group(process)


def _watch(process: subprocess.Popen[bytes], command: Command) -> Outcome:
    """Reads the output until the command ends or its time is over, then kills what is left of its process group."""
    tail = b""
    piece: bytes | None = None  # b"" at the end of the output
    deadline_s = time.monotonic() + command.timeout_s
    try:
        while process.poll() is None and piece != b"":
            remaining_s = deadline_s - time.monotonic()
            if remaining_s <= 0:
                break
            command.check_cancelled()
            piece = read_piece(process, min(remaining_s, POLL_S))
            tail = (tail + (piece or b""))[-_TAIL_BYTES:]
        code: int | None = process.wait(max(0.0, deadline_s - time.monotonic()))
    except subprocess.TimeoutExpired:
        code = None
    _kill_group(process)
    drain_deadline_s = time.monotonic() + _DRAIN_S
    while piece != b"":
        remaining_s = drain_deadline_s - time.monotonic()
        if remaining_s <= 0:
            break
        piece = read_piece(process, remaining_s)
        tail = (tail + (piece or b""))[-_TAIL_BYTES:]
    return Outcome(code, tail.decode(errors="replace"))


def read_piece(process: subprocess.Popen[bytes], timeout_s: float) -> bytes | None:
    """Returns what a process prints next, b"" at the end of its output, None if nothing comes within the time."""
    assert process.stdout is not None
    if not _wait_until_readable(process.stdout.fileno(), timeout_s):
        return None
    return os.read(process.stdout.fileno(), 1 << 16)


def _wait_until_readable(descriptor: int, timeout_s: float) -> bool:
    """False if the time is over first. A pidfd becomes readable when its process ends."""
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        return bool(selector.select(timeout_s))


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _count_own_tasks() -> int | None:
    """How many threads this user has, which is what RLIMIT_NPROC counts; None without /proc."""
    count = 0
    try:
        for entry in os.scandir("/proc"):
            with suppress(OSError):  # the process has ended
                if entry.name.isdecimal() and entry.stat().st_uid == os.getuid():
                    count += len(os.listdir(f"{entry.path}/task"))
    except OSError:
        return None
    return count


def _set_limits(num_tasks: int | None) -> None:
    """Limits the calling process: no core dump, the size of files, and new processes beside the user's `num_tasks`."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _lower_limit(resource.RLIMIT_FSIZE, _MAX_FILE_BYTES)
    if num_tasks is not None:
        _lower_limit(resource.RLIMIT_NPROC, num_tasks + _MAX_NEW_PROCESSES)


def _lower_limit(kind: int, maximum: int) -> None:
    _, hard_limit = resource.getrlimit(kind)
    limit = maximum if hard_limit == resource.RLIM_INFINITY else min(maximum, hard_limit)
    resource.setrlimit(kind, (limit, limit))
