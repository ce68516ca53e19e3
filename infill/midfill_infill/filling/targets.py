"""Reads the file that a user names and chooses its holes by position, function or range. Does not know how holes are
found.
"""

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
_CELL: Final = re.compile(r"(?P<path>.+\.ipynb):(?P<cell>\d+)(?::(?P<line>\d+)(?::(?P<column>\d+))?)?")
_STDIN: Final = Path("-")
_RANGE: Final = re.compile(r"(\d+):(\d+)-(\d+):(\d+)")


@dataclass(frozen=True)
class Target:
    """A file and perhaps a position in it; cells of a notebook, lines and columns count from 1."""

    path: Path
    line: int | None = None
    column: int | None = None
    cell: int | None = None


def parse_target(text: str) -> Target:
    """Parses FILE, FILE:LINE or FILE:LINE:COL; in a notebook FILE:CELL:LINE:COL. An existing file of exactly that name
    wins, because names may contain colons.

    Raises MidfillError `bad_position` where a file is followed by something else.
    """
    if os.path.exists(text):  # unlike Path.exists, False for names that may not be looked up
        return Target(Path(text))
    if cell := _CELL.fullmatch(text):
        return _target(cell)
    # The shortest position first: `a:1.py:2` and `a:1:2` where `a:1` exists are positions in those files.
    candidates = [match for match in (_POSITION.fullmatch(text), _LINE.fullmatch(text)) if match]
    parsed = [_target(match) for match in candidates]
    for target in parsed:
        if os.path.exists(target.path):
            return target
    before, _, after = text.partition(":")
    if after and os.path.exists(before):
        raise MidfillError("bad_position", f"{after!r} after {before} is not a position")
    return parsed[0] if parsed else Target(Path(text))


def _target(match: re.Match[str]) -> Target:
    place = {name: int(number) for name, number in match.groupdict().items() if name != "path" and number}
    return Target(Path(match["path"]), **place)


@dataclass(frozen=True)
class Source:
    """The document to fill. For standard input `target.path` is the name that the user gave it."""

    target: Target
    document: Document
    is_stdin: bool = False


def open_source(
    target: Target, language: str | None = None, stdin_name: str | None = None, *, data: bytes | None = None
) -> Source:
    """Reads a target, `-` is standard input; `data` stands for a file's content. Raises MidfillError, `file_excluded`
    for files that editors skip too.
    """
    is_stdin = target.path == _STDIN
    if stdin_name and not is_stdin:
        raise MidfillError("bad_request", "--stdin-filename names standard input", "give - as FILE")
    if is_stdin:
        target = replace(target, path=Path(stdin_name or "stdin"))
    if (stdin_name or not is_stdin) and (reason := find_exclusion(target.path)):
        raise MidfillError("file_excluded", f"{target.path} is left out: {reason}")
    kind: type[Document] = Notebook if target.path.suffix == SUFFIX else Document
    if not is_stdin:
        read = kind.read(target.path, language) if data is None else kind.from_bytes(data, target.path, language)
        return Source(target, read)
    data = sys.stdin.buffer.read(kind.max_bytes + 1)
    if kind is Notebook and target.line is not None:
        target = Target(target.path, target.column, None, target.line)
    return Source(target, kind.from_bytes(data, target.path, language), is_stdin=True)


@dataclass(frozen=True)
class HoleOptions:
    """The options that choose holes. Several of them are filled jointly."""

    functions: Sequence[str] = ()
    ranges: Sequence[str] = ()
    stubs: bool = False
    outer: int = 0


def choose_holes(document: Document, target: Target, choice: HoleOptions) -> tuple[Hole, ...]:
    """The requested holes in document order; by default the only stub of the file."""
    chosen = [holes.body_named(document, name) for name in choice.functions]
    chosen += [_range_hole(document, target, text) for text in choice.ranges]
    if choice.stubs:
        chosen += (stubs := _find_stubs(document, target))
        if not stubs:
            raise MidfillError("no_stubs", f"{document.name} has no function that is only a stub")
    if target.line is not None:
        chosen.append(holes.hole_at_place(document, _offset(document, target), choice.outer))
    if not chosen:
        chosen = [_only_stub(document, target)]
    if isinstance(document, Notebook):
        chosen = [document.settle(hole) for hole in chosen]
    return holes.sort_holes(document, tuple(dict.fromkeys(chosen)))


def _line(document: Document, target: Target, line: int) -> int:
    """Converts a line of the target, which a notebook counts per cell, to a line of the document."""
    if not isinstance(document, Notebook):
        return line
    if target.cell is None:
        raise MidfillError("bad_position", f"{document.name} is a notebook", "write FILE:CELL:LINE")
    return document.line_of(target.cell, line)


def _offset(document: Document, target: Target) -> int:
    """The byte of a position; a line alone means its first character that is not white space."""
    assert target.line is not None
    line = _line(document, target, target.line)
    if target.column is not None:
        return document.offset_at(line, target.column)
    start_byte = document.offset_at(line, 1)
    for text in document.data[start_byte:].splitlines()[:1]:
        start_byte += len(text) - len(text.lstrip(b" \t\f"))
    return start_byte


def _range_hole(document: Document, target: Target, text: str) -> Hole:
    match = _RANGE.fullmatch(text.strip())
    if not match:
        next_step = "write --hole L:C-L:C, counted from 1, the end not included"
        raise MidfillError("bad_position", f"{text!r} is not a range", next_step)
    start_line, start_column, end_line, end_column = map(int, match.groups())
    first, last = _line(document, target, start_line), _line(document, target, end_line)
    start, end = document.offset_at(first, start_column), document.offset_at(last, end_column)
    return holes.hole_at_range(document, start, end)


def _find_stubs(document: Document, target: Target) -> list[Hole]:
    """The stubs of the document, or of the target's cell."""
    stubs = holes.find_stubs(document)
    if not isinstance(document, Notebook) or target.cell is None:
        return list(stubs)
    cell = document.find_cell(target.cell)
    return [hole for hole in stubs if cell.holds(hole.start_byte, hole.end_byte)]


def _only_stub(document: Document, target: Target) -> Hole:
    stubs = _find_stubs(document, target)
    if len(stubs) == 1:
        return stubs[0]
    if not stubs:
        raise MidfillError("no_hole", f"{document.name} has no stub, and no position was given")
    lines = [document.where(hole.start_byte).rpartition(f"{document.name}:")[2] for hole in stubs[:5]]
    if len(stubs) > 5:
        lines.append("...")
    raise MidfillError("ambiguous_hole", f"{document.name} has {len(stubs)} stubs, at lines {', '.join(lines)}")
