"""Finds a repository's root and where its runs are stored: inside `.git`, otherwise in the user's state folder.

A lock that the kernel releases when its holder dies keeps it to one writer.
"""

import hashlib
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from midfill_infill.engines.records import locked
from midfill_infill.errors import MidfillError


@dataclass(frozen=True)
class Repository:
    """A root folder, and the private folder with its runs, lock and plan cache."""

    root: Path
    state: Path
    git_dir: Path | None

    @property
    def git_folders(self) -> tuple[Path, ...]:
        """Git's folders for this tree: its own, and for a worktree the shared one."""
        if self.git_dir is None:
            return ()
        named = self.git_dir / "commondir"
        shared = Path(os.path.realpath(self.git_dir / named.read_text().strip())) if named.exists() else self.git_dir
        return tuple(dict.fromkeys((self.git_dir, shared)))

    @property
    def lock(self) -> Path:
        return self.state / "lock"

    def run_folder(self, run_id: str) -> Path:
        return self.state / "runs" / run_id

    def run_ids(self) -> list[str]:
        """All runs, the oldest first."""
        return sorted(journal.parent.name for journal in self.state.glob("runs/*/run.db"))

    def find_run(self, run_id: str | None = None) -> Path:
        """The journal of a run, the latest unless one is named by the start of its id. Raises `run_missing`."""
        known = self.run_ids()
        fitting = [name for name in known if name.startswith(run_id)] if run_id else known[-1:]
        if len(fitting) == 1:
            return self.run_folder(fitting[0]) / "run.db"
        if not known:
            raise MidfillError("run_missing", f"{self.root} has no run yet")
        said = f"{len(fitting)} runs begin with" if fitting else "there is no run"
        raise MidfillError("run_missing", f"{said} {run_id!r}", f"known are {', '.join(known[-5:])}")


def find_place(start: Path) -> Repository:
    """The place of the repository around `start`; without git, `start` is the root. Raises `file_missing`."""
    folder = Path(os.path.realpath(start))
    if not folder.is_dir():
        raise MidfillError("file_missing", f"{start} is not a folder", "name the root of a repository")
    for candidate in (folder, *folder.parents):
        if (git := _git_dir(candidate / ".git")) is not None:
            return Repository(candidate, git / "midfill" / "tree", git)  # a moved repository keeps its runs
    from platformdirs import user_state_path

    mark = hashlib.sha256(os.fsencode(folder)).hexdigest()[:12]
    return Repository(folder, user_state_path("midfill") / "refactor" / mark, None)


def _git_dir(entry: Path) -> Path | None:
    """The git directory that `.git` is or refers to (worktree, submodule)."""
    if entry.is_dir() and (entry / "HEAD").exists():
        return entry
    if not entry.is_file():
        return None
    named = entry.read_text(errors="replace").removeprefix("gitdir:").strip()
    folder = Path(os.path.realpath(entry.parent / named))
    return folder if (folder / "HEAD").exists() else None


def new_run_id() -> str:
    """Sorts by time; four hex digits separate runs of the same microsecond."""
    now_us = time.time_ns() // 1000
    second = time.strftime("%Y%m%d-%H%M%S", time.gmtime(now_us // 1_000_000))
    return f"{second}-{now_us % 1_000_000:06}-{os.urandom(2).hex()}"


@contextmanager
def hold_lock(path: Path, doing: str) -> Iterator[None]:
    """Holds the lock file at `path` for the block. Raises `tree_locked`, naming the process that holds it."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.touch(0o600)
    with ExitStack() as stack:
        try:
            stack.enter_context(locked(path))
        except BlockingIOError:
            holder = path.read_text("utf-8", "replace").split("\n")
            who = f"process {holder[0]} ({holder[1]})" if len(holder) > 1 else "another process"
            raise MidfillError("tree_locked", f"{who} holds {path}") from None
        path.write_text(f"{os.getpid()}\n{doing}\n", "utf-8")
        yield
