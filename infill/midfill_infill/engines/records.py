"""Knows the private folder in which this user's engines keep their sockets, locks, records and logs. Starts nothing."""

import errno
import hashlib
import json
import os
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Final

from midfill_infill.config import replace_file
from midfill_infill.errors import MidfillError

OPTIONS: Final = ("dtype", "cache", "weights")  # options of `midfill serve` that a client may leave open
# The path in a socket's address has 104 bytes on macOS and 108 on Linux, with the NUL at its end.
_MAX_SOCKET_PATH_BYTES: Final = 103
_LONGEST_NAME: Final = "/engine-0123456789ab.sock"


def runtime_folder() -> Path:
    """The folder of the engines' files, created with mode 0700 if necessary; one among the temporary files if its path
    is too long for a socket. Raises MidfillError `runtime_folder` if other users can enter it, or it cannot be made.
    """
    folder = _choose_folder()
    if len(os.fsencode(folder)) + len(_LONGEST_NAME) > _MAX_SOCKET_PATH_BYTES:
        digest = hashlib.sha256(os.fsencode(folder)).hexdigest()[:8]
        base = tempfile.gettempdir()
        if len(base) >= 50:
            base = "/tmp"
        folder = Path(base) / f"midfill-{os.geteuid()}-{digest}"
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
    except OSError as error:
        raise MidfillError("runtime_folder", f"{folder} cannot be made ({error.strerror})") from None
    _check_private(folder, status)
    return folder


@contextmanager
def writable(folder: Path) -> Iterator[None]:
    """Turns the OSError of a full disk, a read-only one or a missing permission into MidfillError `runtime_folder`."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES):
            raise
        next_step = "free some space there, or set MIDFILL_RUNTIME_DIR to another folder"
        raise MidfillError("runtime_folder", f"{folder} cannot be written ({error.strerror})", next_step) from None


def _choose_folder() -> Path:
    """The folder by MIDFILL_RUNTIME_DIR, otherwise by XDG_RUNTIME_DIR if that exists, otherwise in the user's cache."""
    if chosen := os.environ.get("MIDFILL_RUNTIME_DIR"):
        return Path(chosen).absolute()
    runtime_dir = os.environ.get("XDG_RUNTIME_DIR")
    if runtime_dir and Path(runtime_dir).is_dir():
        return Path(runtime_dir) / "midfill"
    from platformdirs import user_cache_path

    return user_cache_path("midfill") / "run"


def _check_private(folder: Path, status: os.stat_result) -> None:
    """Raises MidfillError `runtime_folder` unless this is a folder of this user that nobody else can enter."""
    if not stat.S_ISDIR(status.st_mode):
        raise MidfillError("runtime_folder", f"{folder} is not a folder")
    if status.st_uid != os.geteuid():
        raise MidfillError("runtime_folder", f"{folder} belongs to another user")
    if status.st_mode & 0o077:
        message = f"{folder} is open to other users"
        is_for_all = status.st_mode & stat.S_ISVTX  # such as /tmp, which must stay open to others
        next_step = None if is_for_all else f"run `chmod 700 {folder}`"
        raise MidfillError("runtime_folder", message, next_step)


@dataclass(frozen=True)
class EngineRecord:
    """The settings with which an engine was started; empty fields were left open. `is_served`: `midfill serve` runs it,
    so fills that leave settings open prefer it.
    """

    model: str = ""
    device: str = "auto"
    dtype: str = ""
    cache: str = ""
    weights: str = ""
    installation: str = ""
    is_served: bool = False

    def serves(self, wanted: "EngineRecord") -> bool:
        """True if this engine may fill for `wanted`: it has the same model and installation, and every option that
        `wanted` names.
        """
        is_same = (self.model, self.installation) == (wanted.model, wanted.installation)
        return is_same and all(
            getattr(wanted, name) in ("", "auto", getattr(self, name)) for name in ("device", *OPTIONS)
        )


@dataclass(frozen=True)
class EnginePlace:
    """The files of one engine in the runtime folder. The lock's file holds the engine's process id."""

    socket: Path
    lock: Path
    log: Path

    @classmethod
    def at(cls, stem: Path) -> "EnginePlace":
        """The place whose files have the path `stem` and different suffixes."""
        return cls(stem.with_suffix(".sock"), stem.with_suffix(".lock"), stem.with_suffix(".log"))

    @property
    def record_file(self) -> Path:
        return self.lock.with_suffix(".json")

    @property
    def pid(self) -> int | None:
        """Process id of the engine that was last started here; None if none was."""
        try:
            return int(self.lock.read_text())
        except (OSError, ValueError):
            return None

    @property
    def record(self) -> EngineRecord | None:
        """The settings of the engine that was last started here; None if they cannot be read."""
        try:
            values = json.loads(self.record_file.read_text(encoding="utf-8"))
            names = [field.name for field in fields(EngineRecord) if field.name in values]
            return EngineRecord(**{name: values[name] for name in names})
        except (OSError, ValueError, TypeError):
            return None

    def write(self, record: EngineRecord) -> None:
        replace_file(self.record_file, json.dumps(asdict(record)).encode())

    @property
    def is_alive(self) -> bool:
        """True if the engine runs: it holds its lock until its process ends."""
        try:
            with locked(self.lock, shared=True):
                return False
        except BlockingIOError:
            return True
        except OSError:
            return False

    @property
    def age_s(self) -> float:
        """Seconds since the engine's process was started."""
        return max(0.0, time.time() - self.lock.stat().st_mtime)

    @property
    def resident_bytes(self) -> int | None:
        """Resident memory of the engine's process; None if /proc does not tell."""
        try:
            return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except (OSError, ValueError, IndexError):
            return None

    def sweep(self) -> None:
        """Removes the engine's files, unless it lives or is being started."""
        with suppress(OSError), locked(self.lock):
            for file in (self.socket, self.record_file, self.log, self.log.with_suffix(".log.old"), self.lock):
                file.unlink(missing_ok=True)


@contextmanager
def locked(file: Path, *, shared: bool = False) -> Iterator[None]:
    """Holds the lock of a file. Raises BlockingIOError if another process holds it, OSError if there is none."""
    import fcntl  # Windows has none, and a client of a named engine needs none

    lock = os.open(file, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
        yield
    finally:
        os.close(lock)


def sweep_dead(older_than_s: float) -> None:
    """Removes the files of engines that have ended, and started and logged nothing for `older_than_s`: the log may say
    why an engine ended.
    """
    for lock in runtime_folder().glob("engine-*.lock"):
        place = EnginePlace.at(lock.with_suffix(""))
        with suppress(OSError):
            changed_s = max(file.stat().st_mtime for file in (lock, place.log) if file.exists())
            if time.time() - changed_s > older_than_s:
                place.sweep()


def list_living() -> Iterator[tuple[EnginePlace, EngineRecord]]:
    """Yields the running engines of this user, also those that still load, the one that was started last first."""
    started_locks: list[tuple[int, Path]] = []
    for lock in runtime_folder().glob("engine-*.lock"):
        with suppress(OSError):  # another process removed it meanwhile
            started_locks.append((lock.stat().st_mtime_ns, lock))
    for _, lock in sorted(started_locks, reverse=True):
        place = EnginePlace.at(lock.with_suffix(""))
        if place.is_alive:
            yield place, place.record or EngineRecord()
