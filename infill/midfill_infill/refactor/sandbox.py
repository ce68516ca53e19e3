"""Runs a command of the user's over a copy of the tree: no network, nothing but the copy writable, bounded in time.

With bubblewrap the rest of the machine is read-only and homes are hidden; without it only limits and a timeout hold.
"""

import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

_MAX_FILE_BYTES: Final = 2 << 30
_MAX_PROCESSES: Final = 512
_TAIL_BYTES: Final = 4000
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


def wrap(command: Sequence[str], folder: Path, *, home: Path | None = None) -> list[str]:
    """`command` inside of bubblewrap, with `folder` the only place that can be written, besides a /tmp of its own."""
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
    # What a virtual environment below the temporary folder needs was hidden just now.
    for shown in (Path(sys.prefix), Path(sys.base_prefix)):
        if shown.is_relative_to("/tmp"):
            words += ["--ro-bind", str(shown), str(shown)]
    for name in _HIDDEN:
        if (home / name).is_dir():
            words += ["--tmpfs", str(home / name)]
        elif (home / name).is_file():
            words += ["--ro-bind", "/dev/null", str(home / name)]
    words += ["--bind", str(folder), str(folder), "--chdir", str(folder), "--unshare-all", "--die-with-parent"]
    return [*words, "--new-session", "--cap-drop", "ALL", "--", *command]


def run(command: Sequence[str], folder: Path, limits: Limits, *, sandboxed: bool) -> Outcome:
    """Runs `command` in `folder` and ends everything it started. Raises OSError where it cannot be started."""
    words = wrap(command, folder) if sandboxed else list(command)
    environment = {key: value for key, value in os.environ.items() if not _is_secret(key)}
    environment |= {"PYTHONDONTWRITEBYTECODE": "1", "MIDFILL_VERIFY": "1"}
    process = subprocess.Popen(
        words,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=lambda: _limit(limits),
    )
    try:
        output, _ = process.communicate(timeout=limits.timeout_s)
        code: int | None = process.returncode
    except subprocess.TimeoutExpired:
        _end(process)
        output, _ = process.communicate()
        code = None
    finally:
        _end(process)
    return Outcome(code, output[-_TAIL_BYTES:].decode(errors="replace"))


def _end(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _is_secret(name: str) -> bool:
    return any(word in name.upper() for word in ("TOKEN", "SECRET", "PASSWORD", "APIKEY", "API_KEY", "CREDENTIAL"))


def _limit(limits: Limits) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _lower(resource.RLIMIT_FSIZE, _MAX_FILE_BYTES)
    _lower(resource.RLIMIT_NPROC, _MAX_PROCESSES)
    if limits.max_memory_bytes is not None:
        _lower(resource.RLIMIT_AS, limits.max_memory_bytes)


def _lower(which: int, most: int) -> None:
    _, hard = resource.getrlimit(which)
    value = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(which, (value, value))
