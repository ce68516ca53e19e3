"""Replaces a file's bytes as a whole or not at all. Knows files, nothing of what is in them."""

import errno
import os
import secrets
from contextlib import suppress
from pathlib import Path

from midfill_infill.errors import MidfillError
from midfill_infill.refactor.writing.replace import remove, stage, sync_folder


def write_atomically(path: Path, before: bytes, after: bytes) -> None:
    """Writes `after` where `before` still stands; mode, owner and attributes stay, a symbolic link's target is written.

    Raises MidfillError `file_changed` or `write_failed`; then the file is as it was.
    """
    try:
        target = path.resolve(strict=True)
        if not os.access(target, os.W_OK):
            raise MidfillError("write_failed", f"{path} is read-only")
        _check_unchanged(path, target, before)
        temporary = target.with_name(f".{target.name[:40]}.{secrets.token_hex(4)}.midfill")
        try:
            with open(stage(temporary, target, after, target.stat()), "wb") as staged:
                os.fsync(staged)
            _check_unchanged(path, target, before)
            os.replace(temporary, target)
        except BaseException:
            remove(temporary)
            raise
    except OSError as error:
        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        next_step = "free some space and run the command again; the file is as it was" if is_full else None
        message = f"{path} cannot be written ({error.strerror})"
        raise MidfillError("write_failed", message, next_step=next_step) from None
    with suppress(OSError):  # of a folder that may be entered but not read; the file is written
        sync_folder(target.parent)


def _check_unchanged(path: Path, target: Path, before: bytes) -> None:
    if target.read_bytes() != before:
        raise MidfillError("file_changed", f"{path} was changed by somebody else while it was filled")
