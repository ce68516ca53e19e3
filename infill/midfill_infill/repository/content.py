"""Reads a file's bytes together with its attributes (mode, owner, times), so that both are of the same file."""

import errno
import hashlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path


def digest(data: bytes) -> bytes:
    """The SHA-256 digest, 32 bytes."""
    return hashlib.sha256(data).digest()


@dataclass(frozen=True)
class Content:
    """The bytes of a file and its attributes, read through one descriptor."""

    data: bytes
    status: os.stat_result

    @property
    def hash(self) -> bytes:
        return digest(self.data)


def read_content(path: Path) -> Content:
    """Reads a regular file. Raises OSError, also for a link (ELOOP) and for a device or a folder (EINVAL)."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        with open(descriptor, "rb", closefd=False) as file:
            return Content(file.read(), status)
    finally:
        os.close(descriptor)
