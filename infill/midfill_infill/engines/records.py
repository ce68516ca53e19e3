"""The private folder where engines of this user keep sockets, locks and logs, and its files. Starts nothing."""

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

from midfill_infill.errors import MidfillError

OPTIONS: Final = ("dtype", "cache", "weights")  # options of `midfill serve` that a client may leave open
# sun_path holds 104 bytes on macOS and 108 on Linux, the closing NUL included.
_MAX_SOCKET_PATH_BYTES: Final = 103
_LONGEST_NAME: Final = "/engine-0123456789ab.sock"


def runtime_folder() -> Path:
    """The folder, created with mode 0700. Raises `runtime_folder` if other users can enter it."""
    folder = _wanted_folder()
    if len(os.fsencode(folder)) + len(_LONGEST_NAME) > _MAX_SOCKET_PATH_BYTES:
        mark = hashlib.sha256(os.fsencode(folder)).hexdigest()[:8]
        base = tempfile.gettempdir()
        if len(base) >= 50:
            base = "/tmp"
        folder = Path(base) / f"midfill-{os.geteuid()}-{mark}"
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


@dataclass(frozen=True)
class EngineRecord:
    """The settings that an engine was started with. `is_served`: by `midfill serve`, so fills prefer it."""

    model: str = ""
    device: str = "auto"
    dtype: str = ""
    cache: str = ""
    weights: str = ""
    installation: str = ""
    is_served: bool = False

    def serves(self, wanted: "EngineRecord") -> bool:
        """True if this engine fits `wanted`; fields that `wanted` leaves open fit anything."""
        pairs = [(getattr(self, name), getattr(wanted, name)) for name in ("device", *OPTIONS)]
        same = (self.model, self.installation) == (wanted.model, wanted.installation)
        return same and all(want in ("", "auto", has) for has, want in pairs)


@dataclass(frozen=True)
class EnginePlace:
    """The files of one engine in the runtime folder."""

    socket: Path
    lock: Path
    log: Path

    @classmethod
    def at(cls, stem: Path) -> "EnginePlace":
        return cls(stem.with_suffix(".sock"), stem.with_suffix(".lock"), stem.with_suffix(".log"))

    @property
    def record_file(self) -> Path:
        return self.lock.with_suffix(".json")

    @property
    def pid(self) -> int | None:
        """Process id of the engine last started here; None before the first."""
        try:
            return int(self.lock.read_text())
        except (OSError, ValueError):
            return None

    @property
    def record(self) -> EngineRecord | None:
        try:
            values = json.loads(self.record_file.read_text(encoding="utf-8"))
            return EngineRecord(**{key.name: values[key.name] for key in fields(EngineRecord) if key.name in values})
        except (OSError, ValueError, TypeError):
            return None

    def write(self, record: EngineRecord) -> None:
        self.record_file.write_text(json.dumps(asdict(record)), encoding="utf-8")

    @property
    def lives(self) -> bool:
        """True if the engine is alive: it holds its lock as long as it lives."""
        try:
            with locked(self.lock, shared=True):
                return False
        except BlockingIOError:
            return True
        except OSError:
            return False

    @property
    def age_s(self) -> float:
        """Seconds since its process was started."""
        return max(0.0, time.time() - self.lock.stat().st_mtime)

    @property
    def resident_bytes(self) -> int | None:
        """Resident memory of its process; None if /proc does not tell."""
        try:
            return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except (OSError, ValueError, IndexError):
            return None

    def sweep(self) -> None:
        """Removes its files unless an engine lives there or is being started."""
        with suppress(OSError), locked(self.lock):
            for file in (self.socket, self.record_file, self.log, self.log.with_suffix(".log.old"), self.lock):
                file.unlink(missing_ok=True)


@contextmanager
def locked(file: Path, *, shared: bool = False) -> Iterator[None]:
    """Raises BlockingIOError if another process holds the lock, OSError if there is no such file."""
    import fcntl  # Windows has none, and a client of a named engine needs none

    lock = os.open(file, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
        yield
    finally:
        os.close(lock)


def sweep_dead(older_than_s: float) -> None:
    """Removes the files of engines that ended more than `older_than_s` ago."""
    for lock in runtime_folder().glob("engine-*.lock"):
        with suppress(OSError):
            if time.time() - lock.stat().st_mtime > older_than_s:
                EnginePlace.at(lock.with_suffix("")).sweep()


def living() -> Iterator[tuple[EnginePlace, EngineRecord]]:
    """Running engines of this user, including those still loading, the latest first."""
    locks = sorted(runtime_folder().glob("engine-*.lock"), key=lambda lock: lock.stat().st_mtime_ns, reverse=True)
    for lock in locks:
        place = EnginePlace.at(lock.with_suffix(""))
        if place.lives:
            yield place, place.record or EngineRecord()
