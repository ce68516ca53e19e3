"""Splits a run among machines that share only files: each fills its shard of the holes in a copy of the journal.

A hole's id decides its shard, so every machine finds the same shards.
"""

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from midfill_infill.errors import MidfillError
from midfill_infill.refactor.journal.journal import Journal
from midfill_infill.refactor.journal.records import HoleRow, State, StateChange


@dataclass(frozen=True)
class Shard:
    """The shard `index`, counted from 1, of `count` shards."""

    index: int
    count: int

    @classmethod
    def parse(cls, text: str) -> "Shard":
        """Reads "I/N". Raises `bad_shard`."""
        first, _, second = text.partition("/")
        if not (first.isdecimal() and second.isdecimal() and 1 <= int(first) <= int(second)):
            raise MidfillError("bad_shard", f"{text!r} is not a shard")
        return cls(int(first), int(second))

    def takes(self, hole: HoleRow) -> bool:
        return hole.id % self.count == self.index - 1


def open_part(journal: Journal, path: Path) -> Journal:
    """The journal of a shard at `path`: a new copy of the run's journal, or the copy that is there, to resume."""
    if not path.exists():
        young = path.with_name(f"{path.name}.new")
        try:
            young.unlink(missing_ok=True)
            with closing(sqlite3.connect(journal.path)) as run, closing(sqlite3.connect(young)) as copy:
                run.backup(copy)
            young.replace(path)
        except (OSError, sqlite3.Error) as error:
            raise MidfillError("journal_failed", f"{path} cannot be written ({error})") from None
    return _open(journal, path, read_only=False)


def _open(journal: Journal, path: Path, *, read_only: bool) -> Journal:
    """The journal of a shard. Raises `run_damaged` if it is of another run."""
    part, run = Journal(path, read_only=read_only), journal.get_meta("run")
    if part.get_meta("run") != run:
        part.close()
        raise MidfillError("run_damaged", f"{path} is not a part of run {run}", "name the run with --run")
    return part


def merge(journal: Journal, paths: Iterable[Path]) -> int:
    """Adds the results of shards, given their journals, to the run's journal. A hole that has a result keeps it.
    Returns the number of added results.
    """
    num_added = 0
    for path in paths:
        with _open(journal, path, read_only=True) as part:
            planned_ids = {hole.id for hole in journal.holes_in(State.PLANNED)}
            for hole in part.holes_in(State.GENERATED, State.FAILED, State.STALE):
                if hole.id not in planned_ids:
                    continue
                fill = part.fill(hole)
                source = part.snapshot(part.file(hole.file).planned_hash)
                fills = [(fill, source)] if fill is not None and source is not None else []
                failed = [] if hole.state is State.GENERATED else [StateChange(hole.id, hole.state, hole.reason)]
                journal.add_fills(fills, failed)
                num_added += 1
    return num_added
