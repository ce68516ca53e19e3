"""Reads and writes the files of engines in the runtime folder. Starts nothing."""

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Final

from midfill_infill.engines.runtime import runtime_folder

OPTIONS: Final = ("dtype", "cache", "weights")  # of `midfill serve`, which a client may leave open


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
        """Whether this engine fits `wanted`; fields that `wanted` leaves open fit anything."""
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
        """The process last started here; None before the first."""
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
        """An engine holds its lock for as long as it lives."""
        try:
            with locked(self.lock, fcntl.LOCK_SH):
                return False
        except BlockingIOError:
            return True
        except OSError:
            return False

    @property
    def age_s(self) -> float:
        """Since its process was started."""
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
def locked(file: Path, kind: int = fcntl.LOCK_EX) -> Iterator[None]:
    """Raises BlockingIOError if another process holds the lock, OSError if there is no such file."""
    lock = os.open(file, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
        yield
    finally:
        os.close(lock)


def sweep_dead(older_than_s: float) -> None:
    """Removes the files of engines that ended longer ago than this."""
    for lock in runtime_folder().glob("engine-*.lock"):
        with suppress(OSError):
            if time.time() - lock.stat().st_mtime > older_than_s:
                EnginePlace.at(lock.with_suffix("")).sweep()


def living() -> Iterator[tuple[EnginePlace, EngineRecord]]:
    """The running engines of this user, also those still loading, the latest first."""
    locks = sorted(runtime_folder().glob("engine-*.lock"), key=lambda lock: lock.stat().st_mtime_ns, reverse=True)
    for lock in locks:
        place = EnginePlace.at(lock.with_suffix(""))
        if place.lives:
            yield place, place.record or EngineRecord()
