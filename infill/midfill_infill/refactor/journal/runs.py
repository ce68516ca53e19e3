"""Finds where the runs of a repository are stored: inside `.git`, or without git in the user's state folder.

A lock file allows one writer at a time. The kernel releases the lock when its holder dies.
"""

import calendar
import hashlib
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

from midfill_infill.engines.records import locked
from midfill_infill.errors import MidfillError, is_disk_full
from midfill_infill.repository.roots import Repository

_SECOND: Final = "%Y%m%d-%H%M%S"  # the beginning of a run's id


def state_folder(repository: Repository) -> Path:
    """The private folder with the runs and the lock of a repository."""
    if repository.git_dir is not None:
        return repository.git_dir / "midfill" / "tree"  # a moved repository keeps its runs
    from platformdirs import user_state_path

    mark = hashlib.sha256(os.fsencode(repository.root)).hexdigest()[:12]
    return user_state_path("midfill") / "refactor" / mark


def journal_of(repository: Repository, run_id: str) -> Path:
    return state_folder(repository) / "runs" / run_id / "run.db"


def list_runs(repository: Repository) -> list[str]:
    """The ids of all runs, the oldest first."""
    return sorted(journal.parent.name for journal in state_folder(repository).glob("runs/*/run.db"))


def find_run(repository: Repository, run_id: str | None = None) -> Path:
    """The journal of the run whose id begins with `run_id`, by default of the latest. Raises `run_missing`."""
    run_ids = list_runs(repository)
    fitting = run_ids[-1:]
    if run_id is not None:
        fitting = [name for name in run_ids if run_id and name.startswith(run_id)]
    if len(fitting) == 1:
        return journal_of(repository, fitting[0])
    if not run_ids:
        raise MidfillError("run_missing", f"{repository.root} has no run yet")
    message = f"{len(fitting)} runs begin with" if fitting else "there is no run"
    raise MidfillError("run_missing", f"{message} {run_id!r}", f"known are {', '.join(run_ids[-5:])}")


def delete_run(journal: Path) -> None:
    """Deletes a run, given its journal. Raises `tree_locked` if a command uses the run, `journal_failed`."""
    with hold_lock(journal.with_name("lock"), "runs"):
        try:
            journal.unlink()  # from here on it is no run
            shutil.rmtree(journal.parent)
        except OSError as error:
            raise MidfillError("journal_failed", f"{journal.parent} cannot be deleted ({error.strerror})") from None


def new_run_id(repository: Repository) -> str:
    """A new id, which sorts by time and behind those of all runs, even if the clock was set back. Its four random hex
    digits tell runs apart that two processes make in the same microsecond.
    """
    now_us = time.time_ns() // 1000
    for latest in list_runs(repository)[-1:]:
        with suppress(ValueError):  # a folder of another name
            latest_s = calendar.timegm(time.strptime(latest[:15], _SECOND))
            now_us = max(now_us, latest_s * 1_000_000 + int(latest[16:22]) + 1)
    second = time.strftime(_SECOND, time.gmtime(now_us // 1_000_000))
    return f"{second}-{now_us % 1_000_000:06}-{os.urandom(2).hex()}"


@contextmanager
def hold_lock(path: Path, doing: str) -> Iterator[None]:
    """Holds the lock file at `path` during the `with` block, and says in it what for. Raises `tree_locked` with the
    holder, and `journal_failed`.
    """
    with ExitStack() as stack:
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.touch(0o600)
            stack.enter_context(locked(path))
            path.write_text(f"{os.getpid()}\n{doing}\n", "utf-8")
        except BlockingIOError:
            holder = path.read_text("utf-8", "replace").split("\n")
            who = f"process {holder[0]} ({holder[1]})" if len(holder) > 1 else "another process"
            raise MidfillError("tree_locked", f"{who} holds {path}") from None
        except OSError as error:
            next_step = None if is_disk_full(error) else "check its permissions"
            raise MidfillError("journal_failed", f"{path} cannot be written ({error.strerror})", next_step) from None
        yield
