"""Exports a run: its fills as git patches, its holes as JSON lines, and what is left to do. Writes no file."""

import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf
from pathlib import Path
from typing import Any, Final

from midfill_infill.refactor.journal.journal import Journal
from midfill_infill.refactor.journal.records import WRITTEN, FileRow, FillRow, HoleRow, State
from midfill_infill.refactor.journal.runs import find_run, list_runs
from midfill_infill.refactor.planning.plan import Planning, Request, find_holes
from midfill_infill.refactor.writing.edits import Regions
from midfill_infill.refactor.writing.imports import weave
from midfill_infill.repository.content import read_content
from midfill_infill.repository.roots import Repository
from midfill_infill.text.diffs import unified_diff
from midfill_infill.text.document import Document
from midfill_infill.text.visible import encodable, plural, visible

CHOSEN: Final = (State.ACCEPTED, *WRITTEN)
"""The states of holes that `apply` would write or has written."""

_ESCAPED_BYTES: Final = re.compile(rb'[\x00-\x1f"\\\x7f]')


@dataclass(frozen=True)
class Exported:
    """A planned file, its planned bytes, and its fills in document order."""

    file: FileRow
    before: bytes
    fills: tuple[tuple[HoleRow, FillRow], ...]

    @property
    def after(self) -> bytes:
        """The planned bytes with the fills and their imports."""
        places = {hole.id: (hole.start_byte, hole.end_byte - hole.start_byte) for hole, _ in self.fills}
        filled = Regions(self.before, places).replace({hole.id: fill.new for hole, fill in self.fills})
        return weave(self.document, filled, {line for _, fill in self.fills for line in fill.imports}).data

    @cached_property
    def document(self) -> Document:
        return Document(self.before, self.file.language, Path(self.file.path))


def exported(journal: Journal, states: Sequence[State] = CHOSEN, max_new_errors: float = inf) -> Iterator[Exported]:
    """The files that have fills of holes in one of `states` with at most `max_new_errors`, in plan order."""
    for file in list(journal.files(*states)):
        before = journal.snapshot(file.planned_hash)
        if before is None:
            continue
        fills: list[tuple[HoleRow, FillRow]] = []
        for hole in journal.holes(file.id):
            fill = journal.fill(hole) if hole.state in states else None
            if fill is not None and fill.new_errors <= max_new_errors:
                fills.append((hole, fill))
        if fills:
            yield Exported(file, before, tuple(fills))


def patch(exported_file: Exported, context: int = 3) -> bytes:
    """A patch of one file for `git apply`, with `context` lines around changes; empty if nothing differs."""
    old, new = _git_name("a/", exported_file.file.path), _git_name("b/", exported_file.file.path)
    diff = unified_diff(exported_file.before, exported_file.after, context=context)
    *_, hunks = diff.split(b"\n", 2)  # without the lines of the names
    if not hunks:
        return b""
    return b"diff --git %b %b\n--- %b\n+++ %b\n%b" % (old, new, _with_tab(old), _with_tab(new), hunks)


def _git_name(prefix: str, path: str) -> bytes:
    """A path as git writes it in a patch: in quotes with escapes if it has special bytes."""
    name = os.fsencode(prefix + path)
    if not _ESCAPED_BYTES.search(name):
        return name
    return b'"%b"' % _ESCAPED_BYTES.sub(lambda match: b"\\%03o" % match.group()[0], name)


def _with_tab(name: bytes) -> bytes:
    """A name for the lines `---` and `+++`, where git ends a name that has a space with a tab."""
    if b" " in name and not name.startswith(b'"'):
        return name + b"\t"
    return name


def json_lines(journal: Journal) -> Iterator[str]:
    """One JSON object per hole of the run, with its latest fill."""
    run = str(journal.get_meta("run"))
    for file in list(journal.files()):
        document: Document | None = None
        source = journal.snapshot(file.planned_hash)
        if source is not None:
            document = Document(source, file.language, Path(file.path))
        for hole in journal.holes(file.id):
            line = _describe(file, hole, journal.fill(hole), document)
            yield json.dumps({"version": 1, "run": run, **line}, ensure_ascii=False)


def _describe(file: FileRow, hole: HoleRow, fill: FillRow | None, document: Document | None) -> dict[str, Any]:
    """A hole for JSON. `line` and `column` count from 1, in code points; bytes refer to the planned file."""
    line, column = document.position_at(hole.start_byte) if document else (None, None)
    encoding = document.encoding if document else "utf-8"
    values = {
        "hole": hole.id,
        "file": encodable(file.path),
        "file_sha256": file.planned_hash.hex(),
        "kind": hole.kind,
        "start_byte": hole.start_byte,
        "end_byte": hole.end_byte,
        "language": file.language,
        "name": encodable(hole.name) if hole.name else None,
        "line": line,
        "column": column,
        "state": hole.state,
        "reason": hole.reason,
    }
    if fill is not None:
        values |= {name: getattr(fill, name) for name in ("seed", "attempt", "new_errors", "certainty", "ms")}
        values |= {"old": fill.old.decode(encoding, "replace"), "new": fill.new.decode(encoding, "replace")}
        values["imports"] = fill.imports or None
    return {name: value for name, value in values.items() if value is not None}


def check(repository: Repository, request: Request, planning: Planning) -> list[str]:
    """The findings of `midfill refactor check`: a line for each hole in the files of `request`, and a line for each
    file with accepted fills that the latest run has not written. Raises MidfillError, also for an unreadable journal.
    """
    findings = []
    for planned in find_holes(repository, request, planning):
        path = repository.root / planned.path
        document = Document(path.read_bytes(), planned.language, path)
        for hole in planned.holes:
            line, column = document.position_at(hole.start_byte)
            findings.append(visible(f"{planned.path}:{line}:{column}: {hole.name or 'this'} waits to be filled"))
    return findings + _list_unwritten(repository, request.names)


def _list_unwritten(repository: Repository, names: Sequence[str] | None) -> list[str]:
    """A line for each file (of `names`, if given) with accepted fills that the latest run has not written."""
    if not list_runs(repository):
        return []
    chosen = None if names is None else {os.path.realpath(name) for name in names}
    findings: list[str] = []
    with Journal(find_run(repository), read_only=True) as journal:
        for file in journal.files(State.ACCEPTED):
            path = file.below(repository.root)
            if chosen is not None and os.path.realpath(path) not in chosen:
                continue
            num_fills = sum(hole.state is State.ACCEPTED for hole in journal.holes(file.id))
            verb = "is" if num_fills == 1 else "are"
            finding = f"{file.path}: {plural(num_fills, 'accepted fill')} {verb} not written"
            try:
                is_changed = read_content(Path(os.path.realpath(path))).hash != file.known_hash
            except OSError:
                is_changed = True
            if is_changed:
                finding += ", and the file was changed"
            findings.append(visible(finding))
    return findings
