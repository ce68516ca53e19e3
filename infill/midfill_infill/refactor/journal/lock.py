"""One writer per repository: a lock that the kernel releases when its holder dies. Knows one file."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from midfill_infill.errors import MidfillError


@contextmanager
def hold_lock(path: Path, doing: str) -> Iterator[None]:
    """Holds the lock file at `path` for the block. Raises `tree_locked`, naming the process that holds it."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 200, 0).decode(errors="replace").split("\n")
            who = f"process {holder[0]} ({holder[1]})" if len(holder) > 1 else "another process"
            raise MidfillError("tree_locked", f"{who} holds {path}") from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n{doing}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)
