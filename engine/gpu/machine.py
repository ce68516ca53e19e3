"""What a lent machine allows, and what one stay on it has done so far. Knows seconds, bytes and files; no work."""

import json
import os
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

MIB: Final = 2**20
STATE: Final = "state.json"


@dataclass(frozen=True)
class Limits:
    """Of the machine and of a call to it. `before_s` have gone when the first call's command begins; after `idle_s`
    without a call the machine, and all on it, is gone."""

    stay_s: float = 1800
    call_s: float = 600
    before_s: float = 100
    idle_s: float = 30
    in_bytes: int = 64 * MIB
    out_files: int = 8
    out_file_bytes: int = 16 * MIB


@dataclass
class State:
    """What outlives a call. `asked_at` is when the machine was asked for, in seconds since 1970; `done` says of every
    step that ended how it ended; `trainer` is a process, 0 where none was started, `attempts` how many were; `helpers`
    are processes that end with their call."""

    asked_at: float
    done: dict[str, str] = field(default_factory=dict)
    trainer: int = 0
    attempts: int = 0
    calls: int = 0
    helpers: list[int] = field(default_factory=list)

    @classmethod
    def open(cls, folder: Path, before_s: float) -> "State":
        folder.mkdir(parents=True, exist_ok=True)
        if (folder / STATE).exists():
            return cls(**json.loads((folder / STATE).read_text(encoding="utf-8")))
        return cls(time.time() - before_s)

    def write(self, folder: Path) -> None:
        """Whole or not at all: a call can end at any moment."""
        written = folder / f"{STATE}.new"
        written.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")
        written.replace(folder / STATE)


def is_running(process: int) -> bool:
    """Whether the process is there and has not ended, also where it is a child that nobody has waited for."""
    try:
        os.waitpid(process, os.WNOHANG)
    except ChildProcessError:
        pass
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return process > 0 and state not in "ZX"
