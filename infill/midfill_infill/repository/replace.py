"""Replaces one file atomically, and detects concurrent writers. Knows inodes, no holes or journals.

The new content is exchanged with the old one (`renameat2`, Linux), so the replaced bytes can be checked again after all
other writers have closed the file. Without that system call it is a rename after a last check.
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

from midfill_infill.errors import MidfillError, is_disk_full
from midfill_infill.repository import guards
from midfill_infill.repository.content import digest, read_content

_AT_FDCWD: Final = -100
_RENAME_EXCHANGE: Final = 2
# How long to wait for a writer that still has the replaced file open.
QUIET_TIMEOUT_S: Final = 1.0
_POLL_S: Final = 0.002
_MAY_BE_REFUSED: Final = ("security.", "trusted.", "system.nfs4")


class Swap(Enum):
    """Result of a replacement. CHANGED: somebody wrote the file first; it is as they left it."""

    DONE = auto()
    CHANGED = auto()


def stage(temporary: Path, target: Path, data: bytes, status: os.stat_result) -> int:
    """Writes `data` to a new file with `target`'s owner, mode and attributes; returns its open descriptor.

    Its modification time is now, also for old bytes: files built from the new ones are older. The caller syncs and
    closes it. Raises OSError and then leaves no file.
    """
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        write_all(descriptor, data)
        own = os.fstat(descriptor)
        if (own.st_uid, own.st_gid) != (status.st_uid, status.st_gid):
            os.fchown(descriptor, status.st_uid, status.st_gid)
        _copy_attributes(target, descriptor)
        os.fchmod(descriptor, stat.S_IMODE(status.st_mode))
    except BaseException:
        os.close(descriptor)
        temporary.unlink(missing_ok=True)
        raise
    return descriptor


def write_all(descriptor: int, data: bytes) -> None:
    """Writes all of `data`, also if a call writes only a part. Raises OSError."""
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
    """Syncs a folder's entries. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def swap(temporary: Path, target: Path, old_hash: bytes, new_hash: bytes) -> Swap:
    """Exchanges `temporary` with `target`, which must still match `old_hash`, and removes the old file.

    A change made before the exchange, or later through an open descriptor, is restored completely: CHANGED, and
    `temporary` is left for `dispose`. Raises OSError; then `resolve` finds `temporary`.
    """
    if read_content(target).hash != old_hash:
        return Swap.CHANGED
    if not exchange(temporary, target):
        os.replace(temporary, target)
        return Swap.DONE
    return resolve(temporary, target, old_hash, new_hash)


def resolve(temporary: Path, target: Path, old_hash: bytes, new_hash: bytes) -> Swap:
    """Finishes an exchange: removes the replaced file, or restores it if it is not the expected one."""
    if _is_quiet(temporary, old_hash):
        temporary.unlink(missing_ok=True)
        return Swap.DONE
    if read_content(target).hash == new_hash:
        exchange(temporary, target)
    return Swap.CHANGED


def dispose(temporary: Path, target: Path, new_hash: bytes) -> Path | None:
    """Removes an unwanted staged file; one that somebody wrote into is kept under the returned name."""
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
    """True if the file's content hashes to `expected` and nobody has it open for writing."""
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW)) as file:
        deadline = time.monotonic() + QUIET_TIMEOUT_S
        while not _take_lease(file.fileno()):
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_S)
        return digest(file.read()) == expected


def _take_lease(descriptor: int) -> bool:
    """False while somebody has the file open for writing; True also if the system has no leases."""
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
    """Exchanges two names atomically; False if the system cannot. Raises OSError."""
    function = _renameat2()
    if function is None:
        return False
    if function(_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second), _RENAME_EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP):
        return False
    raise OSError(number, os.strerror(number), str(second))


@cache
def _renameat2() -> "ctypes._NamedFuncPointer | None":
    library = ctypes.CDLL(None, use_errno=True)
    function = getattr(library, "renameat2", None)
    if function is not None:
        function.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
        function.restype = ctypes.c_int
    return function


def check_replaceable(path: Path) -> Path:
    """The file that `write_atomically` would replace. Raises OSError, and MidfillError `write_failed` for one that is
    read-only or has several hard links.
    """
    target = Path(os.path.realpath(path, strict=True))
    try:
        guards.check_writable(path, target.stat())
    except MidfillError as error:
        raise MidfillError("write_failed", error.message, error.next_step) from None
    return target


def write_atomically(path: Path, before: bytes, after: bytes) -> None:
    """Writes `after` if the file still contains `before`. Keeps mode, owner and attributes; follows a symbolic link.
    Raises MidfillError `file_changed` or `write_failed`; then the file is unchanged.
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
        next_step = "free some space and run the command again; the file is as it was" if is_disk_full(error) else None
        raise MidfillError("write_failed", f"{path} cannot be written ({error.strerror})", next_step) from None
    with suppress(OSError):  # an unreadable folder cannot be synced; the file is written
        sync_folder(target.parent)


def _check_unchanged(path: Path, target: Path, before: bytes) -> None:
    if target.read_bytes() != before:
        raise MidfillError("file_changed", f"{path} was changed by somebody else while it was filled")
