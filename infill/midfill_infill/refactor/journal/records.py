"""The rows of a run: files, holes, fills and writes, as frozen dataclasses. Knows no SQL and no file system."""

import errno
import json
import os
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final, Self

from pydantic import TypeAdapter

from midfill_infill.errors import MidfillError, is_disk_full
from midfill_infill.text.spans import Hole

_COLUMNS: Final = ("start_byte", "end_byte", "name", "kind")
_HOLE_ADAPTER: Final = TypeAdapter(Hole)


class State(StrEnum):
    """A hole's state. Only `apply`, `verify` and `undo` move a hole into or out of APPLIED and VERIFIED."""

    PLANNED = "planned"
    GENERATED = "generated"
    ACCEPTED = "accepted"
    REJECTED = "rejected"
    APPLIED = "applied"
    VERIFIED = "verified"
    ROLLED_BACK = "rolled_back"
    UNDONE = "undone"
    STALE = "stale"
    FAILED = "failed"


WRITTEN = (State.APPLIED, State.VERIFIED)
"""The states of holes whose fills are in their files."""

UNPROVEN: Final = "it has a fill that is not proven yet"
BESIDE_UNPROVEN: Final = "its fill passes, with others that are not proven yet"
"""The reasons of planned holes that have a fill which `generate --until` has still to prove, or makes anew."""


@dataclass(frozen=True)
class FileRow:
    """A planned file; `path` is relative to the root. `planned_hash` is of the planned bytes, `known_hash` of the bytes
    that the holes' regions refer to: the planned ones, or those that this run wrote last.
    """

    id: int
    path: str
    language: str | None
    planned_hash: bytes
    known_hash: bytes

    def below(self, root: Path) -> Path:
        return root / self.path


@dataclass(frozen=True)
class PlannedFile:
    """A file and its holes in document order. `path` is relative to the root."""

    path: str
    hash: bytes
    language: str | None
    holes: tuple[Hole, ...]


def spec_of(hole: Hole) -> str:
    """All fields of a hole except its range, name and kind, as JSON; `HoleRow.hole` reads it."""
    others = {key: value for key, value in asdict(hole).items() if value and key not in _COLUMNS}
    return json.dumps(others, separators=(",", ":"))


@dataclass(frozen=True)
class HoleRow:
    """One hole. `file` is the id of its file, `start_byte` and `end_byte` its range in the planned bytes. `at` and
    `length` are its region in the file's known bytes: of the old text, or of the fill once applied.
    """

    id: int
    file: int
    start_byte: int
    end_byte: int
    name: str | None
    kind: str
    spec: str
    state: State
    reason: str
    at: int
    length: int
    attempt: int

    @property
    def hole(self) -> Hole:
        """The hole that was planned, as a range of the planned bytes."""
        return _HOLE_ADAPTER.validate_python(json.loads(self.spec) | {name: getattr(self, name) for name in _COLUMNS})

    @property
    def is_written(self) -> bool:
        return self.state in WRITTEN

    @property
    def is_unproven(self) -> bool:
        """True if it has a fill that `generate --until` has still to prove."""
        return self.state is State.PLANNED and self.reason in (UNPROVEN, BESIDE_UNPROVEN)


@dataclass(frozen=True)
class FillRow:
    """One attempt: the fill `new` for the planned bytes `old` of the hole with the id `hole`, and how it was made.

    `new_errors` counts the syntax errors that it adds. `certainty` is the probability that it is right or None.
    `is_suggestion`: it is written only on request. `imports` are the import statements that the file needs with it.
    """

    hole: int
    attempt: int
    seed: int
    old: bytes
    new: bytes
    new_errors: int
    certainty: float | None = None
    is_suggestion: bool = False
    ms: float = 0.0
    imports: tuple[str, ...] = ()


Region = tuple[int, int, int]
"""A hole's id, its start in a file's bytes (-1 if unknown), and its length in bytes."""


@dataclass(frozen=True)
class StateChange:
    """The new state of a hole, given by its id, and the reason; "" where the state says enough."""

    hole: int
    state: State
    reason: str = ""


@dataclass(frozen=True)
class WriteRow:
    """The replacement of one file, as journaled. `temporary` names the staged file; `schema.sql` lists the states."""

    id: int
    file: int
    temporary: str
    old_hash: bytes
    new_hash: bytes
    state: str


@dataclass(frozen=True)
class Rewrite:
    """The replacement of one file, as prepared. `target` is the path without links, `status` the file's attributes when
    `before` was read; `regions` and `changes` say what becomes of its holes.
    """

    file: FileRow
    target: Path
    before: bytes
    after: bytes
    status: os.stat_result
    regions: tuple[Region, ...]
    changes: tuple[StateChange, ...]


_NO_FILE: Final = (errno.ENOENT, errno.ENOTDIR, errno.EINVAL, errno.ELOOP)  # EINVAL: see `read_content`


@dataclass(frozen=True)
class Trouble:
    """A file that was left unchanged, and why. `code` is a key of the error table, whose next step holds by default."""

    path: str
    code: str
    message: str
    next_step: str | None = None

    @classmethod
    def of(cls, path: str, error: MidfillError | OSError, *, reading: bool = False) -> Self:
        """Describes an error of a file. `reading` means that the file was being read, not written."""
        if isinstance(error, MidfillError):
            return cls(path, error.code, error.message, error.next_step)
        message = f"{path} cannot be {'read' if reading else 'written'} ({error.strerror or error})"
        if reading and error.errno in _NO_FILE:
            return cls(path, "hole_stale", message, "put it back, or plan it where it is now")
        return cls(path, "disk_full" if is_disk_full(error) else "write_broken", message)


@dataclass
class Report:
    """What a command that writes files did: changed states of holes, files it left, and the number it wrote."""

    holes: list[StateChange] = field(default_factory=list)
    troubles: list[Trouble] = field(default_factory=list)
    num_files: int = 0

    def count(self, *states: State) -> int:
        """The number of holes that came into one of `states`."""
        return sum(change.state in states for change in self.holes)
