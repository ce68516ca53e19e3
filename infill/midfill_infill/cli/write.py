"""Replaces a file's bytes as a whole or not at all. Knows files, nothing of what is in them."""

import errno
import os
import tempfile
from contextlib import suppress
from pathlib import Path

from midfill_infill.errors import MidfillError


def write_atomically(path: Path, before: bytes, after: bytes) -> None:
    """Writes `after` where `before` still stands; mode and owner stay, a symbolic link's target is written.

    Raises MidfillError `file_changed` or `write_failed`; then the file is as it was.
    """
    try:
        target = path.resolve(strict=True)
        if not os.access(target, os.W_OK):
            raise MidfillError("write_failed", f"{path} is read-only")
        _check_unchanged(path, target, before)
        temporary = _write_beside(target, after)
        try:
            _check_unchanged(path, target, before)
            os.replace(temporary, target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        next_step = "free some space and run the command again; the file is as it was" if is_full else None
        message = f"{path} cannot be written ({error.strerror})"
        raise MidfillError("write_failed", message, next_step=next_step) from None
    with suppress(OSError):  # of a folder that may be entered but not read; the file is written
        _sync_folder(target.parent)


def _check_unchanged(path: Path, target: Path, before: bytes) -> None:
    if target.read_bytes() != before:
        raise MidfillError("file_changed", f"{path} was changed by somebody else while it was filled")


def _write_beside(target: Path, data: bytes) -> Path:
    """A file in the same folder with `data` safely on disk and the target's mode and owner."""
    facts = target.stat()
    descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name[:40]}.", suffix=".midfill")
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            own = os.fstat(descriptor)
            if (own.st_uid, own.st_gid) != (facts.st_uid, facts.st_gid):
                os.fchown(descriptor, facts.st_uid, facts.st_gid)
            os.fchmod(descriptor, facts.st_mode & 0o7777)
            os.fsync(descriptor)
    except BaseException:
        os.unlink(name)
        raise
    return Path(name)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
