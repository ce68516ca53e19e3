"""Splits a run among machines that share only files: each fills its part, then the parts are merged.

Knows a run's holes and JSON lines with checksums. Holes are assigned by number, so shards are the same wherever they
are made.
"""

import base64
import json
import os
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from midfill_infill.errors import MidfillError
from midfill_infill.refactor.generating.generate import Made
from midfill_infill.refactor.journal.journal import Journal
from midfill_infill.refactor.journal.records import FillRow, HoleRow, State, StateChange


@dataclass(frozen=True)
class Shard:
    """The `index`-th of `count` parts, from 1."""

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


class ShardFile:
    """The file of one shard's answers: one line each, appended and synced."""

    def __init__(self, path: Path, run: str) -> None:
        self.done = {made.hole for made, _ in read_part(path, run)} if path.exists() else set()
        self._run = run
        try:
            self._file = open(path, "ab")
            if self._file.tell() and not path.read_bytes().endswith(b"\n"):
                self._file.write(b"\n")  # a line that a crash cut short
        except OSError as error:
            raise MidfillError("journal_failed", f"{path} cannot be written ({error.strerror})") from None

    def write(self, batch: Iterable[Made]) -> None:
        for made in batch:
            self._file.write(_line(self._run, made))
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


def _line(run: str, made: Made) -> bytes:
    body: dict[str, object] = {"run": run, "hole": made.hole.id}
    if made.fill is not None:
        fill = asdict(made.fill)
        body["fill"] = {**fill, "old": _pack(made.fill.old), "new": _pack(made.fill.new)}
        body["source"] = _pack(zlib.compress(made.source, 1))
    if made.change is not None:
        body["change"] = [made.change.state, made.change.reason]
    text = json.dumps(body, separators=(",", ":")).encode()
    return b"%08x %b\n" % (zlib.crc32(text), text)


def _pack(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


@dataclass(frozen=True)
class ShardAnswer:
    """One line: the result for one hole."""

    hole: int
    fill: FillRow | None
    change: StateChange | None


def read_part(path: Path, run: str) -> Iterator[tuple[ShardAnswer, bytes]]:
    """A part's answers with the bytes they were made for; skips a line that a crash truncated.

    Raises `run_damaged` for a part of another run.
    """
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise MidfillError("file_unreadable", f"{path} cannot be read ({error.strerror})") from None
    for line in lines:
        body = _parse(line)
        if body is None:
            continue
        if body["run"] != run:
            message = f"{path} is a part of run {body['run']}, not {run}"
            raise MidfillError("run_damaged", message, next_step="name the run with --run")
        hole = int(body["hole"])
        fill = None
        if "fill" in body:
            packed = {key: base64.b64decode(body["fill"][key]) for key in ("old", "new")}
            fill = FillRow(**{**body["fill"], **packed, "imports": tuple(body["fill"].get("imports", ()))})
        change = StateChange(hole, State(body["change"][0]), body["change"][1]) if "change" in body else None
        yield (
            ShardAnswer(hole, fill, change),
            zlib.decompress(base64.b64decode(body.get("source", ""))) if fill else b"",
        )


def _parse(line: bytes) -> dict[str, Any] | None:
    checksum, _, text = line.partition(b" ")
    if not text or b"%08x" % zlib.crc32(text) != checksum:
        return None
    body: dict[str, Any] = json.loads(text)
    return body


def merge(journal: Journal, paths: Iterable[Path]) -> int:
    """Adds answers of parts to the journal; skips holes that have one."""
    run, count = str(journal.get_meta("run")), 0
    for path in paths:
        fills: list[tuple[FillRow, bytes]] = []
        changes: list[StateChange] = []
        taken: set[int] = set()
        for answer, source in read_part(path, run):
            if answer.hole in taken or journal.hole(answer.hole).state is not State.PLANNED:
                continue
            taken.add(answer.hole)
            if answer.fill is not None:
                fills.append((answer.fill, source))
            if answer.change is not None:
                changes.append(answer.change)
        journal.add_fills(fills, changes)
        count += len(taken)
    return count
