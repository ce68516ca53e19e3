"""Replaces one file atomically, and detects concurrent writers. Knows inodes, no holes or journals.

The new content is written to a temporary file, which is then exchanged with the file (`renameat2`, Linux). So the
replaced bytes can be checked again after all other writers have closed the file. Without that system call, the
temporary file is renamed over the file after a last check.
"""

import ctypes
import errno
import fcntl
import os
import secrets
import signal
import stat
import time
from contextlib import suppress
from enum import Enum, auto
from functools import cache
from pathlib import Path
from typing import Final

from midfill_infill.errors import MidfillError, advise_on_space
from midfill_infill.repository import guards
from midfill_infill.repository.content import digest, read_content

_AT_FDCWD: Final = -100
_RENAME_EXCHANGE: Final = 2
# How long to wait for writers that still have the replaced file open.
QUIET_TIMEOUT_S: Final = 1.0
_POLL_S: Final = 0.002
# Extended attributes that an ordinary user may be unable to set.
_MAY_BE_REFUSED: Final = ("security.", "trusted.", "system.nfs4")


class Swap(Enum):
    """The result of a replacement: DONE, or CHANGED if somebody else wrote the file first; it is as they left it."""

    DONE = auto()
    CHANGED = auto()


def stage(temporary: Path, target: Path, data: bytes, status: os.stat_result) -> int:
    """Writes `data` to the new file `temporary`, with `target`'s owner, mode and attributes. Returns its descriptor,
    which the caller syncs and closes.

    The file's modification time is now, also if it restores old bytes: a build tool must see that what it built in
    between is out of date. Raises OSError and then leaves no file.
    """
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        write_all(descriptor, data)
        new_status = os.fstat(descriptor)
        if (new_status.st_uid, new_status.st_gid) != (status.st_uid, status.st_gid):
            os.fchown(descriptor, status.st_uid, status.st_gid)
        _copy_attributes(target, descriptor)
        os.fchmod(descriptor, stat.S_IMODE(status.st_mode))
    except BaseException:
        os.close(descriptor)
        temporary.unlink(missing_ok=True)
        raise
    return descriptor


def write_all(descriptor: int, data: bytes) -> None:
    """Writes all of `data`, however many system calls that takes. Raises OSError."""
    with open(descriptor, "wb", closefd=False) as file:
        file.write(data)


def _copy_attributes(target: Path, descriptor: int) -> None:
    """Copies extended attributes, including ACLs. Raises OSError if a user attribute cannot be copied."""
    if not hasattr(os, "listxattr"):
        return
    try:
        names = os.listxattr(target)
    except OSError as error:
        if error.errno == errno.ENOTSUP:
            return
        raise
    for name in names:
        try:
            os.setxattr(descriptor, name, os.getxattr(target, name))
        except OSError:
            if not name.startswith(_MAY_BE_REFUSED):
                raise


def sync_folder(folder: Path) -> None:
    """Syncs a folder, so that its names survive a power failure. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def swap(temporary: Path, target: Path, old_hash: bytes, new_hash: bytes) -> Swap:
    """Exchanges `temporary`, whose digest is `new_hash`, with `target`, whose digest must be `old_hash`; then deletes
    `temporary`, which holds the old bytes.

    If somebody else changes `target` before the exchange, or later through an open descriptor, their bytes stay or come
    back: returns CHANGED, and leaves `temporary` for `dispose`. After an OSError the caller calls `resolve`.
    """
    if read_content(target).hash != old_hash:
        return Swap.CHANGED
    if not exchange(temporary, target):
        os.replace(temporary, target)
        return Swap.DONE
    return resolve(temporary, target, old_hash, new_hash)


def resolve(temporary: Path, target: Path, old_hash: bytes, new_hash: bytes) -> Swap:
    """Finishes an exchange: deletes the replaced file, or exchanges it back if its digest is not `old_hash`."""
    if _is_quiet(temporary, old_hash):
        temporary.unlink(missing_ok=True)
        return Swap.DONE
    if read_content(target).hash == new_hash:
        exchange(temporary, target)
    return Swap.CHANGED


def dispose(temporary: Path, target: Path, new_hash: bytes) -> Path | None:
    """Deletes a staged file that is not to be used. Keeps one that somebody wrote into, under the returned name."""
    try:
        is_ours = _is_quiet(temporary, new_hash)
    except FileNotFoundError:
        return None
    if is_ours:
        temporary.unlink(missing_ok=True)
        return None
    kept = target.with_name(f"{target.name}.midfill-conflict-{time.time_ns():x}")
    os.rename(temporary, kept)
    return kept


def _is_quiet(path: Path, expected: bytes) -> bool:
    """True if the digest of a file's bytes is `expected` and nobody has it open for writing; waits for writers."""
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW)) as file:
        deadline = time.monotonic() + QUIET_TIMEOUT_S
        while not _take_lease(file.fileno()):
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_S)
        return digest(file.read()) == expected


def _take_lease(descriptor: int) -> bool:
    """Asks the system for a read lease. False while somebody has the file open for writing; True also if the system
    gives none, as for another user's file.
    """
    if not hasattr(fcntl, "F_SETLEASE"):
        return True
    try:
        # A broken lease sends SIGIO, which terminates the process by default; SIGURG is ignored.
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except OSError as error:
        return error.errno not in (errno.EAGAIN, errno.EBUSY)
    return True


def exchange(first: Path, second: Path) -> bool:
    """Exchanges the files of two names atomically; False if the system cannot. Raises OSError."""
    function = _renameat2()
    if function is None:
        return False
    if function(_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second), _RENAME_EXCHANGE) == 0:
        return True
    error_number = ctypes.get_errno()
    if error_number in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP):
        return False
    raise OSError(error_number, os.strerror(error_number), str(second))


@cache
def _renameat2() -> "ctypes._NamedFuncPointer | None":
    library = ctypes.CDLL(None, use_errno=True)
    function = getattr(library, "renameat2", None)
    if function is not None:
        function.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
        function.restype = ctypes.c_int
    return function


def check_replaceable(path: Path) -> Path:
    """The file that `write_atomically` would replace: `path` without links. Raises OSError, and MidfillError
    `write_failed` for a file that is read-only or has several hard links.
    """
    target = Path(os.path.realpath(path, strict=True))
    try:
        guards.check_writable(path, target.stat())
    except MidfillError as error:
        raise MidfillError("write_failed", error.message, error.next_step) from None
    return target


def write_atomically(path: Path, before: bytes, after: bytes) -> None:
    """Replaces a file's bytes `before` by `after`. Keeps its mode, owner and attributes; follows a symbolic link.
    Raises MidfillError `file_changed` if it no longer contains `before`, or `write_failed`; then it is unchanged.
    """
    try:
        target = check_replaceable(path)
        _check_unchanged(path, target, before)
        temporary = target.with_name(f".{target.name[:40]}.{secrets.token_hex(4)}.midfill")
        try:
            with open(stage(temporary, target, after, target.stat()), "wb") as staged:
                os.fsync(staged)
            _check_unchanged(path, target, before)
            os.replace(temporary, target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        advice = advise_on_space(error)
        next_step = advice and f"{advice}; the file is as it was"
        raise MidfillError("write_failed", f"{path} cannot be written ({error.strerror})", next_step) from None
    with suppress(OSError):  # an unreadable folder cannot be synced; the file is written
        sync_folder(target.parent)


def _check_unchanged(path: Path, target: Path, before: bytes) -> None:
    """Raises `file_changed` if `target`, which the user calls `path`, no longer contains `before`."""
    if target.read_bytes() != before:
        raise MidfillError("file_changed", f"{path} was changed by somebody else while it was filled")
