"""Runs a command of the user's over a copy of the tree: no network, nothing but the copy writable, bounded in time.

With bubblewrap the rest of the machine is read-only, keys in the home are hidden, and the copy stands where the tree
itself stands, so that what was installed from the tree runs the copy; without it only limits and a timeout hold, and
what makes itself a session of its own outlives the command.
"""

import os
import re
import resource
import selectors
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Final

_MAX_FILE_BYTES: Final = 2 << 30
_MAX_NEW_PROCESSES: Final = 512
_TAIL_BYTES: Final = 4000
_POLL_S: Final = 0.05
# How long what a command has printed is read after its end: others may hold its output open.
_REST_S: Final = 1.0
_SECRET: Final = re.compile(
    r"TOKEN|SECRET|CREDENTIAL|PASS|KEYS?\d*(?:_|$)|(?:^|_)(?:AUTH|AUTHORIZATION|PAT)(?:_|$)|PWD$|(?:_|^)(?:URL|URI|DSN)$"
)
_NO_SECRETS: Final = ("PWD", "OLDPWD")
# What a command needs of a tree that no copy has: environments, which git ignores.
_ENVIRONMENTS: Final = (".venv", "venv", "env", "node_modules", ".tox", ".nox")
# Nothing of these can be read inside: keys, tokens and sockets of the user.
_HIDDEN: Final = (".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".config", ".netrc", ".npmrc", ".pypirc",
                  ".git-credentials", ".local/state", ".cache", ".password-store", ".mozilla")  # fmt: skip


@dataclass(frozen=True)
class Limits:
    timeout_s: float = 600.0
    max_memory_bytes: int | None = None


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
    words = [path, "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--unshare-all", "true"]
    try:
        works = subprocess.run(words, capture_output=True, timeout=20, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return None
    return path if works else None


def wrap(command: Sequence[str], folder: Path, at: Path, *, home: Path | None = None) -> list[str]:
    """`command` inside of bubblewrap. `folder` is seen at `at` and can be written, as can a /tmp of its own.

    Environments and the `.git` of `at`, which `folder` lacks, are seen there too, read-only.
    """
    bubblewrap = find_bubblewrap()
    assert bubblewrap is not None
    home = home or Path.home()
    words = [
        bubblewrap,
        "--ro-bind",
        "/",
        "/",
        "--dev",
        "/dev",
        "--proc",
        "/proc",
        "--tmpfs",
        "/tmp",
        "--tmpfs",
        "/run",
    ]
    for name in _HIDDEN:
        if (home / name).is_dir():
            words += ["--tmpfs", str(home / name)]
        elif (home / name).is_file():
            words += ["--ro-bind", "/dev/null", str(home / name)]
    words += ["--bind", str(folder), str(at)]
    lacking = [at / name for name in (*_ENVIRONMENTS, ".git") if at != folder and _is_bare(folder / name)]
    # An environment below the tree or the temporary folder was hidden just now.
    hidden = (at, Path("/tmp"))
    prefixes = [path for path in map(Path, (sys.prefix, sys.base_prefix)) if any(map(path.is_relative_to, hidden))]
    for shown in dict.fromkeys(path for path in (*lacking, *prefixes) if path.exists()):
        words += ["--ro-bind", str(shown), str(shown)]
    words += ["--chdir", str(at), "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    return [*words, "--", *command]


def _is_bare(path: Path) -> bool:
    """Whether there is nothing, or what bubblewrap left there to mount on."""
    if path.is_dir():
        return not any(path.iterdir())
    return not os.path.lexists(path) or (path.is_file() and not path.stat().st_size)


def run(
    command: Sequence[str], folder: Path, limits: Limits, *, sandboxed: bool, copy_of: Path | None = None
) -> Outcome:
    """Runs `command` in `folder` and ends everything it started. Raises OSError where it cannot be started.

    In the sandbox it finds itself in `copy_of`, the tree that `folder` is a copy of.
    """
    tree = copy_of or folder
    words = wrap(command, folder, tree) if sandboxed else list(command)
    if not sandboxed:
        _link_environments(folder, tree)
    with subprocess.Popen(
        words,
        cwd=folder,
        env=_environment(folder, tree if sandboxed else folder),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=partial(_limit, limits, _count_own_tasks()),
    ) as process:
        return _watch(process, limits.timeout_s)


def _watch(process: subprocess.Popen[bytes], timeout_s: float) -> Outcome:
    """Ends the command at the timeout, and whoever is left of its group at its end."""
    assert process.stdout is not None
    tail = _Tail(process.stdout.fileno())
    deadline_s = time.monotonic() + timeout_s
    try:
        while process.poll() is None and (left_s := deadline_s - time.monotonic()) > 0 and not tail.is_whole:
            tail.read(min(left_s, _POLL_S))
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
        """Takes what is there, or comes within the time."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._descriptor, selectors.EVENT_READ)
            if not selector.select(timeout_s):
                return
        piece = os.read(self._descriptor, 1 << 16)
        self.data = (self.data + piece)[-_TAIL_BYTES:]
        self.is_whole = not piece


def _environment(folder: Path, seen_at: Path) -> dict[str, str]:
    """The user's without secrets. Python takes modules of the tree before installed ones of the same name."""
    found = {key: value for key, value in os.environ.items() if not _is_secret(key)}
    source = seen_at / "src" if (folder / "src").is_dir() else seen_at
    paths = [str(source), *filter(None, [found.get("PYTHONPATH")])]
    return found | {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": os.pathsep.join(paths), "MIDFILL_VERIFY": "1"}


def _link_environments(folder: Path, tree: Path) -> None:
    for name in _ENVIRONMENTS:
        if (tree / name).is_dir() and not os.path.lexists(folder / name):
            (folder / name).symlink_to(tree / name)


def _end(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _is_secret(name: str) -> bool:
    return name not in _NO_SECRETS and _SECRET.search(name.upper()) is not None


def _count_own_tasks() -> int | None:
    """Threads of this user, all of which the limit of processes counts; None where the system does not say."""
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


def _limit(limits: Limits, num_tasks: int | None) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _lower(resource.RLIMIT_FSIZE, _MAX_FILE_BYTES)
    if num_tasks is not None:
        _lower(resource.RLIMIT_NPROC, num_tasks + _MAX_NEW_PROCESSES)
    if limits.max_memory_bytes is not None:
        _lower(resource.RLIMIT_AS, limits.max_memory_bytes)


def _lower(which: int, most: int) -> None:
    _, hard = resource.getrlimit(which)
    value = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(which, (value, value))
