"""Exports fills as git patches, JSON lines and SARIF. Writes no file of the tree."""

import base64
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import diff_bytes, unified_diff
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict

from midfill_infill.candidates import describe_certainty
from midfill_infill.engines.installed import distribution_version
from midfill_infill.errors import MidfillError
from midfill_infill.refactor.journal.journal import Journal
from midfill_infill.refactor.journal.records import WRITTEN, FileRow, FillRow, HoleRow, State
from midfill_infill.refactor.writing.edits import Regions
from midfill_infill.refactor.writing.imports import put_in, weave
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Edit

CHOSEN: Final = (State.ACCEPTED, *WRITTEN)
"""What `apply` would write or has written."""

_NO_NEWLINE: Final = b"\\ No newline at end of file\n"
_SPECIAL: Final = re.compile(rb'[\x00-\x1f"\\\x7f]')


@dataclass(frozen=True)
class Exported:
    """A planned file and its fills in document order."""

    file: FileRow
    before: bytes
    fills: tuple[tuple[HoleRow, FillRow], ...]

    @property
    def after(self) -> bytes:
        filled = Regions(
            self.before, {hole.id: (hole.start_byte, hole.end_byte - hole.start_byte) for hole, _ in self.fills}
        )
        imports = {statement for _, fill in self.fills for statement in fill.imports}
        return weave(self.document, filled.replace({hole.id: fill.new for hole, fill in self.fills}), imports).data

    @cached_property
    def document(self) -> Document:
        return Document(self.before, self.file.language, Path(self.file.path))


def exported(
    journal: Journal, states: Sequence[State] = CHOSEN, max_new_errors: int | None = None
) -> Iterator[Exported]:
    """Files with fills in one of `states`, in plan order."""
    for file in list(journal.files(*states)):
        before = journal.snapshot(file.planned_hash)
        if before is None:
            continue
        found = [
            (hole, fill) for hole in journal.holes(file.id) if hole.state in states and (fill := journal.fill(hole))
        ]
        fills = [(hole, fill) for hole, fill in found if max_new_errors is None or fill.new_errors <= max_new_errors]
        if fills:
            yield Exported(file, before, tuple(fills))


def patch(one: Exported, context: int = 3) -> bytes:
    """A patch of one file for `git apply`; empty if nothing differs."""
    old, new = _name("a/", one.file.path), _name("b/", one.file.path)
    lines = diff_bytes(unified_diff, _lines(one.before), _lines(one.after), b"", b"", n=context)
    body = b"".join(line if line.endswith(b"\n") else line + b"\n" + _NO_NEWLINE for line in list(lines)[2:])
    if not body:
        return b""
    return b"diff --git %b %b\n--- %b\n+++ %b\n%b" % (old, new, _tabbed(old), _tabbed(new), body)


def _lines(data: bytes) -> list[bytes]:
    lines = [line + b"\n" for line in data.split(b"\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]


def _name(prefix: str, path: str) -> bytes:
    name = os.fsencode(prefix + path)
    if not _SPECIAL.search(name):
        return name
    return b'"%b"' % _SPECIAL.sub(lambda match: b"\\%03o" % match.group()[0], name)


def _tabbed(name: bytes) -> bytes:
    return name + b"\t" if b" " in name and not name.startswith(b'"') else name


class HoleLine(BaseModel):
    """One line of the JSON export. `line` and `column` count from 1, in code points; bytes refer to the
    planned file.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: Literal[1] = 1
    run: str
    hole: int
    file: str
    file_sha256: str
    kind: str
    start_byte: int
    end_byte: int
    language: str | None = None
    name: str | None = None
    line: int | None = None
    column: int | None = None
    state: State
    reason: str = ""
    seed: int | None = None
    attempt: int | None = None
    old: str | None = None
    new: str | None = None
    new_errors: int | None = None
    certainty: float | None = None
    ms: float | None = None
    imports: tuple[str, ...] | None = None


def json_lines(journal: Journal) -> Iterator[str]:
    """Every hole of the run with its latest fill."""
    run = str(journal.get_meta("run"))
    for file in list(journal.files()):
        source = journal.snapshot(file.planned_hash)
        document = Document(source, file.language, Path(file.path)) if source is not None else None
        for hole in journal.holes(file.id):
            yield _hole_line(run, file, hole, journal.fill(hole), document).model_dump_json(exclude_none=True)


def _hole_line(run: str, file: FileRow, hole: HoleRow, fill: FillRow | None, document: Document | None) -> HoleLine:
    line, column = document.position_at(hole.start_byte) if document else (None, None)
    encoding = document.encoding if document else "utf-8"
    return HoleLine(
        run=run,
        hole=hole.id,
        file=_clean(file.path),
        file_sha256=file.planned_hash.hex(),
        language=file.language,
        name=_clean(hole.name) if hole.name else None,
        kind=hole.kind,
        start_byte=hole.start_byte,
        end_byte=hole.end_byte,
        line=line,
        column=column,
        state=hole.state,
        reason=hole.reason,
        seed=fill.seed if fill else None,
        attempt=fill.attempt if fill else None,
        old=fill.old.decode(encoding, "replace") if fill else None,
        new=fill.new.decode(encoding, "replace") if fill else None,
        new_errors=fill.new_errors if fill else None,
        certainty=fill.certainty if fill else None,
        ms=fill.ms if fill else None,
        imports=fill.imports or None if fill else None,
    )


def _clean(text: str) -> str:
    return text.encode(errors="replace").decode()


def sarif(journal: Journal, states: Sequence[State] = CHOSEN) -> dict[str, Any]:
    """A SARIF 2.1.0 log: one result per hole, its fill as a fix. Regions are given in lines and in bytes.

    As in patches, fills that add syntax errors are left out.
    """
    rules: dict[str, dict[str, Any]] = {}
    results = []
    for one in exported(journal, states, 0):
        waiting = {statement for _, fill in one.fills for statement in fill.imports}
        for hole, fill in one.fills:
            added = [edit for text in sorted(waiting & {*fill.imports}) if (edit := put_in(one.document, text))]
            waiting -= {*fill.imports}
            rule = f"midfill/{hole.kind}"
            rules.setdefault(rule, {"id": rule, "shortDescription": {"text": f"a {hole.kind} hole has a fill"}})
            results.append(_result(one, hole, fill, rule, added))
    driver = {
        "name": "midfill",
        "version": distribution_version(),
        "informationUri": "https://pypi.org/project/midfill/",
        "rules": list(rules.values()),
    }
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    schema = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
    return {"$schema": schema, "version": "2.1.0", "runs": [run]}


def _result(one: Exported, hole: HoleRow, fill: FillRow, rule: str, imports: Sequence[Edit]) -> dict[str, Any]:
    """`imports` are edits that earlier fixes do not add already."""
    artifact = {"uri": _uri(one.file.path)}
    region = _region(one.document, hole.start_byte, hole.end_byte)
    replacements = [
        {
            "deletedRegion": _region(one.document, edit.start_byte, edit.end_byte),
            "insertedContent": _content(one.document, edit.replacement),
        }
        for edit in (*imports, Edit(hole.start_byte, hole.end_byte, fill.new))
    ]
    known = describe_certainty(fill.certainty)
    what = f"{hole.name or hole.kind}: {known or 'fill'}"
    return {
        "ruleId": rule,
        "level": "note",
        "message": {"text": _clean(what)},
        "locations": [{"physicalLocation": {"artifactLocation": artifact, "region": region}}],
        "fixes": [
            {
                "description": {"text": "put the fill in"},
                "artifactChanges": [{"artifactLocation": artifact, "replacements": replacements}],
            }
        ],
        "partialFingerprints": {"midfillHole/v1": f"{one.file.planned_hash.hex()[:16]}:{hole.start_byte}"},
        "properties": {"hole": hole.id, "state": hole.state, "newErrors": fill.new_errors},
    }


def _region(document: Document, start_byte: int, end_byte: int) -> dict[str, int]:
    (line, column), (end_line, end_column) = document.position_at(start_byte), document.position_at(end_byte)
    lines = {"startLine": line, "startColumn": column, "endLine": end_line, "endColumn": end_column}
    return {**lines, "byteOffset": start_byte, "byteLength": end_byte - start_byte}


def _content(document: Document, data: bytes) -> dict[str, str]:
    try:
        return {"text": data.decode(document.encoding)}
    except UnicodeDecodeError:
        return {"binary": base64.b64encode(data).decode("ascii")}


def _uri(path: str) -> str:
    return quote(os.fsencode(path), safe="/")


def write_patches(journal: Journal, folder: Path, states: Sequence[State] = CHOSEN) -> int:
    """Writes one patch per file below `folder`; returns how many. Raises MidfillError `write_broken`."""
    count = 0
    for one in exported(journal, states, 0):
        target = folder / f"{one.file.path}.patch"
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(patch(one))
        except OSError as error:
            raise MidfillError("write_broken", f"{target} cannot be written ({error.strerror})") from None
        count += 1
    return count
