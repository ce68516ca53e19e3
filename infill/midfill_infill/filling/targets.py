"""Reads the file that a user names, and chooses its holes by position, function or range. Knows no syntax tree."""

import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from midfill_infill.errors import MidfillError
from midfill_infill.repository.exclusions import find_exclusion
from midfill_infill.syntax import holes
from midfill_infill.text.document import Document
from midfill_infill.text.notebook import SUFFIX, Notebook
from midfill_infill.text.spans import Hole

_POSITION: Final = re.compile(r"(?P<path>.+?):(?P<line>\d+)(?::(?P<column>\d+))?")
_LINE: Final = re.compile(r"(?P<path>.+):(?P<line>\d+)")
_CELL: Final = re.compile(
    r"(?P<path>.+\.ipynb|-(?=(?::\d+){3}$)):(?P<cell>\d+)(?::(?P<line>\d+)(?::(?P<column>\d+))?)?"
)
_STDIN: Final = Path("-")
_RANGE: Final = re.compile(r"(\d+):(\d+)-(\d+):(\d+)")


@dataclass(frozen=True)
class Target:
    """A file and perhaps a position in it. The `cell` of a notebook, lines and columns count from 1."""

    path: Path
    line: int | None = None
    column: int | None = None
    cell: int | None = None


def parse_target(text: str) -> Target:
    """Parses FILE, FILE:LINE or FILE:LINE:COL; for a notebook FILE:CELL, FILE:CELL:LINE or FILE:CELL:LINE:COL.

    If the whole text names an existing file, it is that file, because names may contain colons. Raises MidfillError
    `bad_position` if an existing file is followed by something that is no position.
    """
    if os.path.exists(text):  # unlike Path.exists, False for names that may not be looked up
        return Target(Path(text))
    if cell := _CELL.fullmatch(text):
        return _read_match(cell)
    # The shortest path whose file exists wins: `a:1:2` is a position in `a`, or line 2 of `a:1` if only that exists.
    matches = [match for match in (_POSITION.fullmatch(text), _LINE.fullmatch(text)) if match]
    readings = [_read_match(match) for match in matches]
    for target in readings:
        if os.path.exists(target.path):
            return target
    before, _, after = text.partition(":")
    if after and os.path.exists(before):
        raise MidfillError("bad_position", f"{after!r} after {before} is not a position")
    return readings[0] if readings else Target(Path(text))


def _read_match(match: re.Match[str]) -> Target:
    """The target of a match: its `path`, and those of `cell`, `line` and `column` that it has."""
    position = {name: int(number) for name, number in match.groupdict().items() if name != "path" and number}
    return Target(Path(match["path"]), **position)


@dataclass(frozen=True)
class Source:
    """The document to fill. For standard input `target.path` is the name that the user gave it, or `stdin`."""

    target: Target
    document: Document
    is_stdin: bool = False


def open_source(
    target: Target, language: str | None = None, stdin_name: str | None = None, *, data: bytes | None = None
) -> Source:
    """Reads the file of a target, or standard input for `-`, which gets the name `stdin_name`. `data`, if given, is
    used in place of what the file holds. Raises MidfillError; `file_excluded` for a file that Midfill skips in editors
    too.
    """
    is_stdin = target.path == _STDIN
    if stdin_name and not is_stdin:
        raise MidfillError("bad_request", "--stdin-filename names standard input", "give - as FILE")
    named = replace(target, path=Path(stdin_name or "stdin")) if is_stdin else target
    path = named.path
    if (stdin_name or not is_stdin) and (reason := find_exclusion(path)):
        raise MidfillError("file_excluded", f"{path} is left out: {reason}")
    kind: type[Document] = Notebook if path.suffix == SUFFIX else Document
    if is_stdin:
        piped = sys.stdin.buffer.read(kind.max_bytes + 1)
        if kind is Document and named.cell is not None:
            raise MidfillError("bad_position", "standard input is no notebook", "write -:LINE:COL")
        # `-:1:2` was read as LINE:COL, and means CELL:LINE in a notebook.
        if kind is Notebook and named.line is not None and named.cell is None:
            named = Target(path, line=named.column, cell=named.line)
        return Source(named, kind.from_bytes(piped, path, language), is_stdin=True)
    if data is None:
        return Source(named, kind.read(path, language))
    return Source(named, kind.from_bytes(data, path, language))


@dataclass(frozen=True)
class HoleOptions:
    """What a user names as holes, all of which are filled jointly: functions by name, ranges as L:C-L:C, `stubs` for
    every stub. `outer` is for a position: how many functions farther out than the innermost one around it is meant.
    """

    functions: Sequence[str] = ()
    ranges: Sequence[str] = ()
    stubs: bool = False
    outer: int = 0


def choose_holes(document: Document, target: Target, choice: HoleOptions) -> tuple[Hole, ...]:
    """The requested holes in document order; the only stub of the file if none is requested. Raises MidfillError."""
    if choice.outer and target.line is None:
        raise MidfillError("bad_request", "--outer does nothing without a place", "give FILE:LINE, or leave it out")
    chosen = [holes.body_named(document, name) for name in choice.functions]
    chosen += [_find_range(document, target, text) for text in choice.ranges]
    if choice.stubs:
        stubs = _find_stubs(document, target)
        if not stubs:
            raise MidfillError("no_stubs", f"{document.name} has no function that is only a stub")
        chosen += stubs
    if target.line is not None:
        hole = holes.hole_at_place(document, _find_offset(document, target), choice.outer)
        chosen.append(_with_line_end(document, hole))
    if not chosen:
        chosen = [_find_only_stub(document, target)]
    if isinstance(document, Notebook):
        chosen = [document.fit_to_cell(hole) for hole in chosen]
    return holes.sort_holes(document, tuple(dict.fromkeys(chosen)))


def _with_line_end(document: Document, hole: Hole) -> Hole:
    """A line behind the last line break of a file gets one too, so that the file still ends with one."""
    is_last = hole.kind == "line" and hole.start_byte == len(document.data)
    if not is_last or hole.tail or isinstance(document, Notebook):
        return hole
    return replace(hole, tail="\n")


def _to_document_line(document: Document, target: Target, line: int) -> int:
    """Converts a line that the user gave, which counts from its cell's start in a notebook, to one of the document."""
    if not isinstance(document, Notebook):
        return line
    if target.cell is None:
        raise MidfillError("bad_position", f"{document.name} is a notebook", "write FILE:CELL:LINE")
    return document.line_of(target.cell, line)


def _find_offset(document: Document, target: Target) -> int:
    """The byte offset of a target's position; a line alone means its first character that is not white space."""
    assert target.line is not None
    line = _to_document_line(document, target, target.line)
    if target.column is not None:
        return document.offset_at(line, target.column)
    start_byte = document.offset_at(line, 1)
    lines = document.data[start_byte:].splitlines()
    if lines:
        start_byte += len(lines[0]) - len(lines[0].lstrip(b" \t\f"))
    return start_byte


def _find_range(document: Document, target: Target, text: str) -> Hole:
    """The hole of a range `L:C-L:C`. Raises MidfillError."""
    match = _RANGE.fullmatch(text.strip())
    if not match:
        next_step = "write --hole L:C-L:C, counted from 1, the end not included"
        raise MidfillError("bad_position", f"{text!r} is not a range", next_step)
    start_line, start_column, end_line, end_column = map(int, match.groups())
    first_line = _to_document_line(document, target, start_line)
    last_line = _to_document_line(document, target, end_line)
    start_byte = document.offset_at(first_line, start_column)
    end_byte = document.offset_at(last_line, end_column)
    return holes.hole_at_range(document, start_byte, end_byte)


def _find_stubs(document: Document, target: Target) -> list[Hole]:
    """The stubs of the document, or of the target's cell."""
    stubs = holes.find_stubs(document)
    if not isinstance(document, Notebook) or target.cell is None:
        return list(stubs)
    cell = document.find_cell(target.cell)
    return [hole for hole in stubs if cell.holds(hole.start_byte, hole.end_byte)]


def _find_only_stub(document: Document, target: Target) -> Hole:
    """The only stub of the document, or of the target's cell. Raises MidfillError if there are none or several."""
    stubs = _find_stubs(document, target)
    if len(stubs) == 1:
        return stubs[0]
    if not stubs:
        raise MidfillError("no_hole", f"{document.name} has no stub, and no position was given")
    lines = [document.where(hole.start_byte).rpartition(f"{document.name}:")[2] for hole in stubs[:5]]
    if len(stubs) > 5:
        lines.append("...")
    raise MidfillError("ambiguous_hole", f"{document.name} has {len(stubs)} stubs, at lines {', '.join(lines)}")
