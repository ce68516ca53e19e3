"""Splits a run among machines that share only files: each fills its shard of the holes in a copy of the journal.

A hole's id decides its shard, so every machine finds the same shards.
"""

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from midfill_infill.errors import MidfillError
from midfill_infill.refactor.journal.journal import Journal
from midfill_infill.refactor.journal.records import HoleRow, State, StateChange

_BATCH: Final = 500  # results that one transaction takes: each is synced


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
            young.touch(0o600)  # it will hold code
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
            results = part.holes_in(State.GENERATED, State.FAILED, State.STALE)
            wanted = (hole for hole in results if hole.id in planned_ids)
            while batch := list(islice(wanted, _BATCH)):
                filled = [(part.fill(hole), part.snapshot(part.file(hole.file).planned_hash)) for hole in batch]
                fills = [(fill, source) for fill, source in filled if fill is not None and source is not None]
                failed = [hole for hole in batch if hole.state is not State.GENERATED]
                journal.add_fills(fills, [StateChange(hole.id, hole.state, hole.reason) for hole in failed])
                num_added += len(batch)
    return num_added
