"""Reads the outline of a document once: functions, scopes and imports, also functions that a syntax error hides."""

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from midfill_infill.errors import MidfillError
from midfill_infill.languages import Language
from midfill_infill.syntax.captures import Function, Outline, Span, read_outline
from midfill_infill.text.document import Document
from midfill_infill.text.lines import Lines
from midfill_infill.text.spans import Hole


def require_syntax(document: Document) -> Language:
    """The document's language. Raises MidfillError `unknown_language` if there is none."""
    if document.syntax is None:
        raise MidfillError("unknown_language", f"{document.name} is in no language that Midfill knows functions of")
    return document.syntax


_HEADER_TOKEN = re.compile(rb"""(\"{3}|'{3})(?s:.*?)\1|"[^"\r\n]*"|'[^'\r\n]*'|#[^\r\n]*|[()\[\]{}:]|\r?\n""")
_MAX_HEADER_LINES = 64


def outline(document: Document) -> Outline:
    """The outline of a document, read once. Raises MidfillError `unknown_language` if there is no grammar."""
    return document.derive(_read)


def _read(document: Document) -> Outline:
    """The outline of a document, with the functions that its syntax errors hide."""
    language = require_syntax(document)
    tree = language.parse_once(document.source)
    return recover(language, document.source_lines, read_outline(language, document.source, tree))


def find_own(document: Document, hole: Hole) -> Function | None:
    """The function that a body hole belongs to; None for other holes."""
    if not hole.is_body:
        return None
    start = document.to_source(hole.start_byte)
    for function in reversed(outline(document).functions):
        if function.head < start and function.name == hole.name:
            return function
    return None


def recover(language: Language, lines: Lines, broken: Outline) -> Outline:
    """The outline with the functions that a broken tree lost or damaged. Finds these by their header lines and parses
    each alone, because an open bracket pulls the next definition into an ERROR node (tree-sitter-python 0.25).
    """
    if not broken.has_error or language.header is None:
        return broken
    sound = [function for function in broken.functions if not function.is_broken]
    kept = sound if language.has_indented_blocks else broken.functions
    functions = {function.head: function for function in kept}
    sound_names = {lines.at(function.head): function.path[-1] for function in sound if function.path}
    closings = {} if language.has_indented_blocks else _list_closings(lines)
    for line in range(len(lines)):
        match = re.match(language.header, lines.content(line))
        if match is None:
            continue
        name = match.group(1).decode("utf-8", "replace")
        head = lines.first_char(line)
        if sound_names.get(line) == name or any(function.head < head < function.end for function in sound):
            continue
        if language.has_indented_blocks:
            found: Function | None = _read_indented(language, lines, line, name)
        else:
            found = _read_block(language, lines, line, closings)
        if found is not None:
            functions[found.head] = found
    return replace(broken, functions=tuple(functions[head] for head in sorted(functions)))


def _read_indented(language: Language, lines: Lines, line: int, name: str) -> Function:
    """The function `name` whose header is on `line`, read from its own lines alone; broken if it does not parse."""
    head = lines.first_char(line)
    end = lines.end(line)
    path = (*_outer_names(language, lines, line), name)
    broken = Function(path, start=head, head=head, end=end, body=(end, end), statements=1, is_broken=True)
    header_end = find_header_end(lines, broken)
    first = _first_decorator(lines, line)
    last = find_last_line(lines, header_end, broken)
    offset = lines.start(first)
    end = lines.end(last)
    for function in read_outline(language, lines.data[offset:end]).functions:
        if function.head + offset == head and not function.is_broken:
            return _move(replace(function, path=path), offset)
    return replace(broken, start=lines.first_char(first), end=end)


def _list_closings(lines: Lines) -> Mapping[int, Sequence[int]]:
    """The numbers of the lines that begin with a closing brace, by their columns."""
    closings: dict[int, list[int]] = defaultdict(list)
    for line in range(len(lines)):
        if lines.content(line).lstrip().startswith(b"}"):
            closings[lines.columns(line)].append(line)
    return closings


def _read_block(language: Language, lines: Lines, line: int, closings: Mapping[int, Sequence[int]]) -> Function | None:
    """The function whose header is on `line`, read from there to the line that closes its block; None if these lines do
    not parse.
    """
    last = line
    if not lines.content(line).rstrip().endswith(b"}"):
        ends = [
            numbers[index]
            for columns, numbers in closings.items()
            if columns <= lines.columns(line) and (index := bisect_right(numbers, line)) < len(numbers)
        ]
        if not ends:
            return None
        last = min(ends)
    offset = lines.start(line)
    read = read_outline(language, lines.data[offset : lines.end(last)])
    if read.has_error or not read.functions:
        return None
    function = read.functions[0]
    return _move(replace(function, path=(*_outer_names(language, lines, line), *function.path)), offset)


def _first_decorator(lines: Lines, line: int) -> int:
    """The first line of the decorators above a function's header `line`; the header itself without decorators."""
    indent = lines.indent(line)
    first = line
    while first > 0 and lines.indent(first - 1) == indent and lines.content(first - 1).lstrip().startswith(b"@"):
        first -= 1
    return first


def _outer_names(language: Language, lines: Lines, line: int) -> tuple[str, ...]:
    """The names of the functions and classes around a line, by their header lines."""
    assert language.scope_header is not None
    names: list[str] = []
    for opener in lines.list_openers(line, lines.columns(line)):
        header = re.match(language.scope_header, lines.content(opener))
        if header is not None:
            names.append(header.group(1).decode("utf-8", "replace"))
    return tuple(reversed(names))


def _move(function: Function, offset: int) -> Function:
    """The function with `offset` added to all its offsets."""

    def move_span(span: Span) -> Span:
        start, end = span
        return start + offset, end + offset

    return replace(
        function,
        start=function.start + offset,
        head=function.head + offset,
        end=function.end + offset,
        body=move_span(function.body),
        docstring=move_span(function.docstring) if function.docstring else None,
        first_opener=None if function.first_opener is None else function.first_opener + offset,
    )


def find_header_end(lines: Lines, function: Function) -> int:
    """The offset behind the colon of a Python function's header; if the header is broken, behind its first line."""
    line = lines.at(function.head)
    stripped = lines.content(line).partition(b"#")[0].rstrip()
    if function.is_broken and stripped.endswith(b":"):
        return lines.start(line) + len(stripped)
    depth = 0
    for token in _HEADER_TOKEN.finditer(lines.data, function.head):
        text = token.group()
        if text in b"([{":
            depth += 1
        elif text in b")]}":
            depth -= 1
        elif text == b":" and depth <= 0:
            return token.end()
        elif text in b"\r\n" and (depth <= 0 or lines.at(token.end()) - line > _MAX_HEADER_LINES):
            break
    return lines.start(line) + len(stripped)


def find_last_line(lines: Lines, header_end: int, function: Function) -> int:
    """The last line of an indented body. The body ends before a line that is not indented deeper than the definition,
    unless the sound tree has that line in the function, as in a multiline string. Blank lines at the end do not belong
    to the body; comments that are no deeper than the definition do not end the body of a broken function.
    """
    columns = lines.columns(lines.at(function.head))
    certain_end = 0 if function.is_broken else function.end
    last = lines.at(header_end)
    for line in range(last + 1, len(lines)):
        is_certain = lines.start(line) < certain_end
        if lines.is_blank(line) and not is_certain:
            continue
        if lines.columns(line) <= columns and not is_certain:
            if function.is_broken and lines.content(line).lstrip().startswith(b"#"):
                continue
            break
        last = line
    return last
