"""The journal of one run: a SQLite file with one writer. Knows rows; no trees, models or file writing.

Every method that writes is one durable transaction; `add_plan` alone makes several. The pragma `synchronous = EXTRA`
also syncs the folder after the rollback journal is deleted, which FULL does not, so that a power failure cannot undo a
commit. WAL is not used: before SQLite 3.51.3 two connections and a checkpoint could corrupt it, and `midfill refactor
status` reads beside the writer.
"""

import json
import os
import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import astuple, fields, replace
from importlib import resources
from itertools import islice
from pathlib import Path
from typing import Any, Final, Literal, Self

from midfill_infill.errors import MidfillError
from midfill_infill.refactor.journal import records
from midfill_infill.refactor.journal.records import FileRow, FillRow, HoleRow, State, StateChange, WriteRow
from midfill_infill.repository.content import digest
from midfill_infill.text.spans import Hole
from midfill_infill.text.visible import encodable

VERSION: Final = 3
BUSY_TIMEOUT_S: Final = 30.0
_PLAN_BATCH: Final = 2000

_HOLE_COLUMNS, _FILL_COLUMNS, _FILE_COLUMNS, _WRITE_COLUMNS = (
    ", ".join(field.name for field in fields(row)) for row in (HoleRow, FillRow, FileRow, WriteRow)
)


class Journal(AbstractContextManager["Journal"]):
    """Opens the journal at `path`. Raises `run_damaged`, `run_version`, `tree_locked` and `journal_failed`."""

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self.path = path
        uri = f"file:{os.fsdecode(path).replace('%', '%25').replace('?', '%3f').replace('#', '%23')}?mode=rw"
        with self._explained_failures(), ExitStack() as stack:
            self._db = sqlite3.connect(uri, uri=True, timeout=BUSY_TIMEOUT_S, isolation_level=None)
            stack.callback(self._db.close)
            self._db.execute("PRAGMA synchronous = EXTRA")
            version = self._db.execute("PRAGMA user_version").fetchone()[0]
            if version != VERSION:
                raise MidfillError("run_version", f"{path} has version {version}, not {VERSION}")
            # Not mode=ro, which cannot roll back a killed writer's transaction.
            self._db.execute(f"PRAGMA query_only = {int(read_only)}")
            stack.pop_all()  # nothing failed: the connection stays open

    @classmethod
    def create(cls, path: Path, meta: dict[str, Any]) -> Self:
        """A new journal; it appears under its name only when it is complete."""
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        unfinished = path.with_suffix(".new")
        unfinished.unlink(missing_ok=True)
        rows = [(key, json.dumps(value)) for key, value in meta.items()]
        try:
            unfinished.touch(0o600)  # it will hold code
            with closing(sqlite3.connect(unfinished, isolation_level=None)) as db:
                db.executescript(resources.files(__package__).joinpath("schema.sql").read_text("utf-8"))
                db.execute(f"PRAGMA user_version = {VERSION}")
                db.executemany("INSERT INTO meta VALUES (?, ?)", rows)
        except (OSError, sqlite3.Error) as error:
            raise MidfillError("journal_failed", f"{unfinished} cannot be written ({error})") from None
        unfinished.replace(path)
        return cls(path)

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self._db.close()

    @contextmanager
    def _explained_failures(self) -> Iterator[None]:
        """Turns SQLite's errors into MidfillErrors."""
        try:
            yield
        except sqlite3.DatabaseError as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY:
                next_step = "continue that process or wait until it ends"
                raise MidfillError("tree_locked", f"another process writes {self.path}", next_step) from None
            code = "journal_failed" if isinstance(error, sqlite3.OperationalError) else "run_damaged"
            raise MidfillError(code, f"the journal {self.path} fails ({error})") from None

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._explained_failures():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    def _rows(self, query: str, values: Sequence[object] = ()) -> Iterator[Any]:
        """Yields the rows of a query's result. Raises MidfillError."""
        with self._explained_failures():
            yield from self._db.execute(query, values)

    def get_meta(self, key: str) -> Any:
        row = next(self._rows("SELECT value FROM meta WHERE key = ?", (key,)), None)
        return None if row is None else json.loads(row[0])

    def set_meta(self, **values: Any) -> None:
        rows = [(key, json.dumps(value)) for key, value in values.items()]
        with self._transaction() as db:
            db.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", rows)

    def add_plan(self, planned: Iterable[records.PlannedFile]) -> tuple[int, int]:
        """Stores the plan in order; returns the numbers of files and holes. Streams, in several transactions: when the
        whole plan is stored, the caller gives the journal its name.
        """
        num_files = num_holes = 0
        stream = iter(planned)
        while batch := list(islice(stream, _PLAN_BATCH)):
            with self._transaction() as db:
                for file in batch:
                    num_files += 1
                    file_id = num_files
                    row = (file_id, os.fsencode(file.path), file.language, file.hash, file.hash)
                    db.execute(f"INSERT INTO files ({_FILE_COLUMNS}) VALUES (?, ?, ?, ?, ?)", row)
                    for hole in file.holes:
                        num_holes += 1
                        _add_hole(db, num_holes, file_id, hole)
        return num_files, num_holes

    def counts(self) -> dict[State, int]:
        """The number of holes in each state that any hole is in."""
        rows = self._rows("SELECT state, count(*) FROM holes GROUP BY state")
        return {State(state): number for state, number in rows}

    def files(self, *states: State) -> Iterator[FileRow]:
        """Files in plan order; with `states`, those with a hole in one of them."""
        chosen = f" WHERE id IN (SELECT file FROM holes WHERE state IN ({_placeholders(states)}))" if states else ""
        for row in self._rows(f"SELECT {_FILE_COLUMNS} FROM files{chosen} ORDER BY id", [*states]):
            yield _file(row)

    def file(self, file_id: int) -> FileRow:
        return _file(next(self._rows(f"SELECT {_FILE_COLUMNS} FROM files WHERE id = ?", (file_id,))))

    def holes(self, file_id: int) -> list[HoleRow]:
        """All holes of a file in document order."""
        return list(self._holes("WHERE file = ? ORDER BY start_byte, id", file_id))

    def hole(self, hole_id: int) -> HoleRow:
        """Raises MidfillError `no_such_hole`."""
        for hole in self._holes("WHERE id = ?", hole_id):
            return hole
        raise MidfillError("no_such_hole", f"the run has no hole {hole_id}")

    def _holes(self, clauses: str, *values: object) -> Iterator[HoleRow]:
        for row in self._rows(f"SELECT {_HOLE_COLUMNS} FROM holes {clauses}", values):
            hole = HoleRow(*row)
            yield replace(hole, state=State(hole.state))

    def holes_in(self, *states: State) -> Iterator[HoleRow]:
        """Holes in one of `states`, at least one, in plan order. Concurrent changes may or may not be seen."""
        last = 0
        while True:
            query = f"WHERE id > ? AND state IN ({_placeholders(states)}) ORDER BY id LIMIT 1000"
            batch = list(self._holes(query, last, *states))
            if not batch:
                return
            yield from batch
            last = batch[-1].id

    def fill(self, hole: HoleRow) -> FillRow | None:
        """The hole's latest attempt."""
        query = f"SELECT {_FILL_COLUMNS} FROM fills WHERE hole = ? AND attempt = ?"
        row = next(self._rows(query, (hole.id, hole.attempt)), None)
        if row is None:
            return None
        columns = (*row[:-1], tuple(json.loads(row[-1])))  # the last one has the imports
        fill = FillRow(*columns)
        return replace(fill, is_suggestion=bool(fill.is_suggestion))

    def next_attempt(self, hole: HoleRow) -> int:
        """The number of a new attempt at a hole: one more than of any before, also of one that was not taken."""
        row = next(self._rows("SELECT max(attempt) FROM fills WHERE hole = ?", (hole.id,)))
        return hole.attempt if row[0] is None else int(row[0]) + 1

    def texts_of(self, hole_ids: Iterable[int], state: State) -> list[str]:
        """The text of the latest fill of each of these holes that is now in `state`."""
        fills = [self.fill(hole) for hole in map(self.hole, hole_ids) if hole.state is state]
        return [fill.new.decode("utf-8", "replace") for fill in fills if fill is not None]

    def add_fills(self, fills: Sequence[tuple[FillRow, bytes]], changes: Sequence[StateChange] = ()) -> None:
        """Stores fills with the files they were made for, and the new states of holes that got no fill."""
        with self._transaction() as db:
            for fill, source in fills:
                values = (*astuple(fill)[:-1], json.dumps(fill.imports))  # the last field has the imports
                db.execute(f"INSERT OR REPLACE INTO fills ({_FILL_COLUMNS}) VALUES ({_placeholders(values)})", values)
                _keep_snapshot(db, source)
                changed = (State.GENERATED, fill.attempt, fill.hole)
                db.execute("UPDATE holes SET state = ?, reason = '', attempt = ? WHERE id = ?", changed)
            _set_states(db, changes)

    def set_states(self, changes: Sequence[StateChange]) -> None:
        with self._transaction() as db:
            _set_states(db, changes)

    def acceptable(self, *states: State, min_certainty: float | None = 0.0) -> list[HoleRow]:
        """Holes in one of `states` (default: GENERATED) whose fill changes something and adds no syntax error. A fill
        is left out below `min_certainty`; of unknown certainty, a suggestion counts as 0 and any other fill as 1. With
        None, suggestions are left out.
        """
        states = states or (State.GENERATED,)
        values: list[float] = []
        condition = "NOT fills.is_suggestion"
        if min_certainty is not None:
            values.append(min_certainty)
            condition = "coalesce(fills.certainty, 1.0 - fills.is_suggestion) >= ?"
        query = (
            f"WHERE state IN ({_placeholders(states)})"
            " AND EXISTS (SELECT 1 FROM fills WHERE fills.hole = holes.id AND fills.attempt = holes.attempt"
            f" AND fills.new_errors = 0 AND fills.new != fills.old AND {condition}) ORDER BY id"
        )
        return list(self._holes(query, *states, *values))

    def unfilled_holes(self) -> list[HoleRow]:
        """Holes that failed or are stale, and those whose fill nobody has reviewed and is not `acceptable`."""
        sound = {hole.id for hole in self.acceptable()}
        generated = (hole for hole in self.holes_in(State.GENERATED) if hole.id not in sound)
        return [*self.holes_in(State.FAILED, State.STALE), *generated]

    def accept(self, holes: Sequence[HoleRow]) -> None:
        self.set_states([StateChange(hole.id, State.ACCEPTED) for hole in holes])

    def snapshot(self, content_hash: bytes) -> bytes | None:
        """The stored content of a file by its hash; None if it was not stored."""
        row = next(self._rows("SELECT data FROM snapshots WHERE hash = ?", (content_hash,)), None)
        return None if row is None else zlib.decompress(row[0])

    # The states of writes: refactor/writing/writes.py brings a write from `reserved` to `intent` and `done`. A write
    # that fails is `retracted` as long as its temporary file exists, and then `dropped`.

    def reserve(self, rewrites: Sequence[records.Rewrite], run_id: str) -> list[WriteRow]:
        """Stores the names of temporary files before they are created, so that a crash leaves no unknown file."""
        with self._transaction() as db:
            reserved = []
            for rewrite in rewrites:
                changes = [[change.hole, change.state, change.reason] for change in rewrite.changes]
                effect = json.dumps({"regions": rewrite.regions, "changes": changes, "target": str(rewrite.target)})
                old, new = digest(rewrite.before), digest(rewrite.after)
                columns = "file, temporary, old_hash, new_hash, effect, state"
                query = f"INSERT INTO writes ({columns}) VALUES (?, '', ?, ?, ?, 'reserved')"
                write_id = db.execute(query, (rewrite.file.id, old, new, effect)).lastrowid
                assert write_id is not None
                name = f".midfill-{run_id}-{write_id}"
                db.execute("UPDATE writes SET temporary = ? WHERE id = ?", (name, write_id))
                reserved.append(WriteRow(write_id, rewrite.file.id, name, old, new, "reserved"))
            return reserved

    def intend(
        self, writes: Sequence[WriteRow], contents: Sequence[tuple[bytes, bytes]], not_staged: Sequence[int]
    ) -> None:
        """Stores old and new bytes of each file; from here on the files may change. `not_staged` are the ids of writes
        whose temporary file could not be made.
        """
        with self._transaction() as db:
            for write, (before, after) in zip(writes, contents, strict=True):
                _keep_snapshot(db, before)
                _keep_snapshot(db, after)
                db.execute("UPDATE writes SET state = 'intent' WHERE id = ?", (write.id,))
            db.executemany("UPDATE writes SET state = 'dropped' WHERE id = ?", [(write_id,) for write_id in not_staged])

    def finish(self, write_ids: Sequence[int]) -> list[StateChange]:
        """Updates the holes' rows for writes that succeeded. Returns the holes' new states."""
        finished: list[StateChange] = []
        with self._transaction() as db:
            for write_id in write_ids:
                query = "SELECT file, new_hash, effect FROM writes WHERE id = ?"
                file_id, new_hash, stored = db.execute(query, (write_id,)).fetchone()
                effect = json.loads(stored)
                moved = [(at, length, hole_id) for hole_id, at, length in effect["regions"]]
                db.executemany("UPDATE holes SET at = ?, length = ? WHERE id = ?", moved)
                changes = [StateChange(hole_id, State(state), why) for hole_id, state, why in effect["changes"]]
                _set_states(db, changes)
                finished += changes
                db.execute("UPDATE files SET known_hash = ? WHERE id = ?", (new_hash, file_id))
                db.execute("UPDATE writes SET state = 'done' WHERE id = ?", (write_id,))
        return finished

    def cancel(self, write_id: int, state: Literal["retracted", "dropped"]) -> None:
        """Marks a write whose bytes never reached its file, or were taken back. `retracted`: its temporary file is
        still to be deleted; `dropped`: nothing is left of it.
        """
        with self._transaction() as db:
            db.execute("UPDATE writes SET state = ? WHERE id = ?", (state, write_id))

    def unsettled_writes(self) -> list[tuple[WriteRow, Path]]:
        """Writes that are neither done nor dropped, in progress or left by a crash, and the paths of their targets."""
        states = "'reserved', 'intent', 'retracted'"
        query = f"SELECT {_WRITE_COLUMNS}, effect FROM writes WHERE state IN ({states}) ORDER BY id"
        return [(WriteRow(*row[:-1]), Path(json.loads(row[-1]).get("target", ""))) for row in self._rows(query)]

    def rewrites_of(self, file_id: int) -> Iterator[tuple[bytes, bytes]]:
        """The bytes of a file before and after each time that this run wrote it, the last time first."""
        query = "SELECT old_hash, new_hash FROM writes WHERE file = ? AND state = 'done' ORDER BY id DESC"
        for hashes in list(self._rows(query, (file_id,))):
            before, after = map(self.snapshot, hashes)
            assert before is not None and after is not None, "an intent has snapshots"
            yield before, after

    def regions_written(self, file_id: int, content_hash: bytes) -> list[records.Region]:
        """Where the holes of a file are in bytes that this run wrote to it; empty if it did not write these."""
        query = "SELECT effect FROM writes WHERE file = ? AND new_hash = ? AND state = 'done' ORDER BY id DESC LIMIT 1"
        row = next(self._rows(query, (file_id, content_hash)), None)
        return [] if row is None else [(hole, at, length) for hole, at, length in json.loads(row[0])["regions"]]


def _placeholders(values: Sequence[object]) -> str:
    """The question marks that stand for `values` in a statement."""
    return ", ".join("?" * len(values))


def _add_hole(db: sqlite3.Connection, hole_id: int, file_id: int, hole: Hole) -> None:
    """`at` and `length` follow the hole through later writes; `start_byte` and `end_byte` stay as planned."""
    at, length = hole.start_byte, hole.end_byte - hole.start_byte
    spec = records.spec_of(hole)
    db.execute(
        "INSERT INTO holes (id, file, start_byte, end_byte, name, kind, spec, at, length)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (hole_id, file_id, hole.start_byte, hole.end_byte, hole.name, hole.kind, spec, at, length),
    )


def _file(row: Any) -> FileRow:
    return FileRow(row[0], os.fsdecode(row[1]), *row[2:])


def _keep_snapshot(db: sqlite3.Connection, data: bytes) -> None:
    key = digest(data)
    if db.execute("SELECT 1 FROM snapshots WHERE hash = ?", (key,)).fetchone() is None:
        db.execute("INSERT INTO snapshots VALUES (?, ?)", (key, zlib.compress(data, 1)))


def _set_states(db: sqlite3.Connection, changes: Sequence[StateChange]) -> None:
    values = [(change.state, encodable(change.reason), change.hole) for change in changes]
    db.executemany("UPDATE holes SET state = ?, reason = ? WHERE id = ?", values)
