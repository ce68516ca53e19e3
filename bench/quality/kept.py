"""Keeps completions on disk as they come, so that an interrupted measurement goes on where it was. Knows no engine.

The first line names the suite, model and decoding of the completions; a file with others is refused.
"""

import json
import threading
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Self, TextIO

from bench.quality.complete import Completion


class KeptError(ValueError):
    """A file of other completions; the message is one sentence."""


class Kept:
    """A file of completions by condition and task; None keeps nothing. May be used from several threads."""

    def __init__(self, path: Path | None, of: dict[str, str | float | None]) -> None:
        """Raises KeptError if the file belongs to another measurement."""
        self._lock = threading.Lock()
        self._known: dict[tuple[str, str], Completion] = {}
        self._file: TextIO | None = None
        if path is None:
            return
        if path.exists() and path.stat().st_size:
            self._read(path, of)
            self._file = path.open("a", encoding="utf-8")
        else:
            self._file = path.open("w", encoding="utf-8")
            self._write({"of": of})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()

    def get(self, condition: str, task_id: str) -> Completion | None:
        return self._known.get((condition, task_id))

    def put(self, condition: str, task_id: str, completion: Completion) -> None:
        with self._lock:
            self._known[condition, task_id] = completion
            self._write({"condition": condition, "id": task_id, **asdict(completion)})

    def _write(self, row: dict[str, object]) -> None:
        if self._file is not None:
            self._file.write(json.dumps(row) + "\n")
            self._file.flush()

    def _read(self, path: Path, of: dict[str, str | float | None]) -> None:
        text = path.read_text(encoding="utf-8")
        whole, _, torn = text.rpartition("\n")  # a killed writer leaves half a line
        try:
            first, *rows = map(json.loads, whole.split("\n"))
            if first["of"] != of:
                raise KeptError(f"The completions in {path} are of another suite or model; name another file.")
            for row in rows:
                key = row.pop("condition"), row.pop("id")
                for name in ("pieces", "confidence", "true_pieces"):
                    row[name] = tuple(row[name])
                self._known[key] = Completion(**row)
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            raise KeptError(f"{path} is no file of completions: {type(error).__name__}: {error}") from error
        if torn:
            path.write_text(whole + "\n", encoding="utf-8")
