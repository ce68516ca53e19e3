"""The private folder where engines of this user keep sockets, locks and logs. Knows the file system, no engine."""

import errno
import hashlib
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from midfill_infill.errors import MidfillError

# sun_path holds 104 bytes on macOS and 108 on Linux, the closing NUL included.
_MAX_SOCKET_PATH_BYTES: Final = 103
_LONGEST_NAME: Final = "/engine-0123456789ab.sock"


def runtime_folder() -> Path:
    """The folder, created with mode 0700. Raises `runtime_folder` if other users can enter it."""
    folder = _wanted_folder()
    if len(os.fsencode(folder)) + len(_LONGEST_NAME) > _MAX_SOCKET_PATH_BYTES:
        mark = hashlib.sha256(os.fsencode(folder)).hexdigest()[:8]
        folder = (
            Path(tempfile.gettempdir() if len(tempfile.gettempdir()) < 50 else "/tmp")
            / f"midfill-{os.geteuid()}-{mark}"
        )
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        facts = folder.lstat()
    except OSError as error:
        raise MidfillError("runtime_folder", f"{folder} cannot be made ({error.strerror})") from None
    _check_private(folder, facts)
    return folder


@contextmanager
def writable(folder: Path) -> Iterator[None]:
    """Turns a full disk or missing permission into a MidfillError `runtime_folder`."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES):
            raise
        next_step = "free some space there, or set MIDFILL_RUNTIME_DIR to another folder"
        raise MidfillError("runtime_folder", f"{folder} cannot be written ({error.strerror})", next_step) from None


def _wanted_folder() -> Path:
    if chosen := os.environ.get("MIDFILL_RUNTIME_DIR"):
        return Path(chosen).absolute()
    given = os.environ.get("XDG_RUNTIME_DIR")
    if given and Path(given).is_dir():
        return Path(given) / "midfill"
    from platformdirs import user_cache_path

    return user_cache_path("midfill") / "run"


def _check_private(folder: Path, facts: os.stat_result) -> None:
    if not stat.S_ISDIR(facts.st_mode):
        raise MidfillError("runtime_folder", f"{folder} is not a folder")
    if facts.st_uid != os.geteuid():
        raise MidfillError("runtime_folder", f"{folder} belongs to another user")
    if facts.st_mode & 0o077:
        message = f"{folder} is open to other users"
        is_for_all = facts.st_mode & stat.S_ISVTX  # such as /tmp, which others need open
        next_step = None if is_for_all else f"run `chmod 700 {folder}`"
        raise MidfillError("runtime_folder", message, next_step)
