"""Makes folders for copies of trees, and removes those that killed commands left. Knows names and locks."""

import fcntl
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from midfill_infill.engines.records import locked
from midfill_infill.sandbox.mirror import remove

_PREFIX: Final = "midfill-verify-"
_LOCK: Final = "lock"
# Within this time another command may have made its folder and not yet locked it.
_YOUNG_S: Final = 2.0


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A folder of this process in the temporary folder. Its lock is freed by the kernel however the process ends."""
    remove_leftovers()
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield folder
    finally:
        with suppress(OSError):
            remove(folder)
        os.close(descriptor)


def remove_leftovers() -> None:
    """Removes folders of this user's commands that have ended without doing so."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError):
            status = folder.lstat()
            is_ours = status.st_uid == os.getuid() and time.time() - status.st_mtime > _YOUNG_S
            if is_ours and _is_free(folder):
                remove(folder)


def _is_free(folder: Path) -> bool:
    try:
        with locked(folder / _LOCK):
            return True
    except FileNotFoundError:
        return True
    except BlockingIOError:
        return False
