"""Keeps what a measurement made on disk as it comes, so that an interrupted one goes on where it was. Knows no engine.

The first line of a file names what all of its rows share, such as suite, model and code; a file with others is refused.
"""

import json
import threading
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

from bench.quality.complete import Completion

Facts = Mapping[str, str | float | None]


class KeptError(ValueError):
    """A file of another measurement; the message is one sentence."""


class KeptFile:
    """The JSON objects of a file, and those that are added; without a path nothing is kept. Threads may share it."""

    def __init__(self, path: Path | None, facts: Facts) -> None:
        """Raises KeptError if the file belongs to another measurement."""
        self.rows: list[dict[str, Any]] = []
        self._lock = threading.Lock()
        self._file: TextIO | None = None
        if path is None:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        is_new = not path.exists() or not path.stat().st_size
        if not is_new:
            shared, self.rows = read_rows(path)
            if shared != facts:
                raise KeptError(f"{path} is of another suite or model, or of other code; name another file or folder.")
        self._file = path.open("a", encoding="utf-8")
        if is_new:
            self.add({"of": dict(facts)})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()

    def add(self, row: dict[str, Any]) -> None:
        if self._file is not None:
            with self._lock:
                self._file.write(json.dumps(row) + "\n")
                self._file.flush()


def read_rows(path: Path) -> tuple[Facts, list[dict[str, Any]]]:
    """What the rows of a file share, and the rows; takes off half a last line. Raises KeptError."""
    text = path.read_text(encoding="utf-8")
    whole, _, torn = text.rpartition("\n")  # a killed writer leaves half a line
    try:
        first, *rows = map(json.loads, whole.split("\n"))
        facts = first["of"]
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise KeptError(f"{path} is no file of kept rows: {type(error).__name__}: {error}.") from error
    if torn:
        path.write_text(whole + "\n", encoding="utf-8")
    return facts, rows


class Kept(KeptFile):
    """Completions by condition and task."""

    def __init__(self, path: Path | None, facts: Facts) -> None:
        super().__init__(path, facts)
        self._known: dict[tuple[str, str], Completion] = {}
        for row in self.rows:
            key = row.pop("condition"), row.pop("id")
            for name in ("pieces", "confidence", "true_pieces"):
                row[name] = tuple(row[name])
            self._known[key] = Completion(**row)

    def get(self, condition: str, task_id: str) -> Completion | None:
        return self._known.get((condition, task_id))

    def put(self, condition: str, task_id: str, completion: Completion) -> None:
        self._known[condition, task_id] = completion
        self.add({"condition": condition, "id": task_id, **asdict(completion)})
