"""Finds the hole of a function body: its start, its end, and the text that must surround it. Knows no grammar.

The private functions return holes in bytes of the document's source.
"""

import re
from dataclasses import replace
from itertools import chain

from midfill_infill.syntax.captures import Function
from midfill_infill.syntax.margins import tells_indent
from midfill_infill.syntax.outline import find_header_end, find_last_line, require_syntax
from midfill_infill.syntax.stubs import TODO, is_stub
from midfill_infill.text.document import Document
from midfill_infill.text.encoding import is_decoded
from midfill_infill.text.lines import Lines
from midfill_infill.text.spans import Hole

_NOTE = re.compile(rb"[ \t\f]*(?:#.*|//.*|/\*(?:(?!\*/)[^\r\n])*\*/[ \t]*)?")
_DOCSTRING = re.compile(
    rb"""[rRuU]?(?:(\"{3}|'{3})(?s:.*?)\1|"(?:[^"\\\r\n]|\\.)*"|'(?:[^'\\\r\n]|\\.)*')(?=\s*(?:[#;\r\n]|$))"""
)
_OUTDENTED = re.compile(rb"#|//|/\*|\w+\s*:(?!:)")


def body_hole(document: Document, function: Function) -> Hole:
    """The hole between a function's docstring and its end, without surrounding white space. Comments before a stub's
    placeholder stay. A body on the header's line moves to lines of its own.
    """
    language, lines = require_syntax(document), document.source_lines
    stub = is_stub(document, function)
    if function.is_expression:
        region = Hole(*function.body, indent=_indent_of(lines, function.head))
    elif language.has_indented_blocks:
        region = _indented_region(document, function)
    else:
        region = _braced_region(document, function)
    if stub:
        region = _keep_notes(lines, region)
    start, end = document.to_raw(region.start_byte), document.to_raw(region.end_byte)
    return replace(region, start_byte=start, end_byte=end, kind="stub" if stub else "body", name=function.name)


def _indent_of(lines: Lines, offset: int) -> str:
    return lines.indent(lines.at(offset)).replace(b"\f", b"").decode("ascii")


def _find_inner(document: Document, function: Function, first: int, last: int) -> str:
    """The indentation of a body with the lines from `first` to `last`: that of its first line of code, otherwise that
    of a comment that is indented, otherwise one level.
    """
    lines, language = document.source_lines, require_syntax(document)
    if function.first is not None and not function.is_broken:
        return _indent_of(lines, function.first)
    columns = lines.columns(lines.at(function.head))
    inside = [n for n in range(first, last + 1) if not lines.is_blank(n) and lines.columns(n) > columns]
    coded = (number for number in inside if tells_indent(language, lines.content(number)))
    number = next(chain(coded, inside), None)
    return (
        _indent_of(lines, function.head) + document.indent_unit
        if number is None
        else _indent_of(lines, lines.start(number))
    )


def _begin(lines: Lines, line: int, end: int, inner: str, tail: str = "") -> Hole:
    """The hole from a line on. A line that is not indented as the body, such as a comment at the margin, is replaced as
    a whole.
    """
    is_inside = _indent_of(lines, lines.start(line)) == inner
    return Hole(
        lines.first_char(line) if is_inside else lines.start(line),
        end,
        indent=inner,
        lead="" if is_inside else inner,
        tail=tail,
    )


def _text_end(lines: Lines, line: int) -> int:
    return lines.start(line) + len(lines.content(line).rstrip())


def _next_line(lines: Lines, line: int, last: int) -> int | None:
    """The first nonblank line behind `line`, up to `last`; None if there is none."""
    return next((number for number in range(line + 1, last + 1) if not lines.is_blank(number)), None)


def _keep_notes(lines: Lines, region: Hole) -> Hole:
    """Moves the start of the hole behind its leading comment lines, except TODOs."""
    line, last = lines.at(region.start_byte), lines.at(region.end_byte)
    is_at_start = region.start_byte in (lines.first_char(line), lines.start(line))
    if region.start_byte == region.end_byte or not is_at_start or "\n" in region.lead:
        return region
    note = None
    for number in range(line, last + 1):
        content = lines.content(number)
        if not _NOTE.fullmatch(content) or TODO.search(content):
            begun = _begin(lines, number, region.end_byte, region.indent)
            return replace(region, start_byte=begun.start_byte, lead=begun.lead)
        note = note if lines.is_blank(number) else number
    assert note is not None
    return replace(region, start_byte=_text_end(lines, note), lead=f"\n{region.indent}")


def _indented_region(document: Document, function: Function) -> Hole:
    lines = document.source_lines
    header_end = find_header_end(lines, function)
    header = lines.at(header_end)
    inner = _indent_of(lines, function.head) + document.indent_unit
    if lines.data[header_end : lines.end(header)].partition(b"#")[0].strip():
        return _one_line_region(document, function, header_end, inner)
    last = find_last_line(lines, header_end, function)
    first = _next_line(lines, header, last)
    if first is not None:
        inner = _find_inner(document, function, first, last)
    keep = _docstring(lines, function, first)
    if keep is not None:
        rest = lines.data[keep : lines.end(lines.at(keep))]
        if rest.partition(b"#")[0].strip():
            start = keep + len(rest) - len(rest.lstrip(b" \t;"))
            return Hole(start, _text_end(lines, last), indent=inner)
        header = lines.at(keep)
        first = _next_line(lines, header, last)
    if first is None:
        return _empty_region(lines, header, inner, lines.columns(lines.at(function.head)))
    return _begin(lines, first, _text_end(lines, last), inner)


def _one_line_region(document: Document, function: Function, header_end: int, inner: str) -> Hole:
    lines = document.source_lines
    end = _text_end(lines, lines.at(header_end if function.is_broken else max(header_end, function.end)))
    kept = document.tell(*map(document.to_raw, function.keep)) if function.keep else ""
    if function.keep and not is_decoded(kept):  # a docstring that cannot move
        rest = lines.data[function.keep[1] : end]
        return Hole(end - len(rest.lstrip(b" \t;")), end, indent=inner, lead="" if b";" in rest else "; ")
    return Hole(header_end, end, indent=inner, lead=f"\n{inner}{kept}\n{inner}" if kept else f"\n{inner}")


def _empty_region(lines: Lines, line: int, inner: str, columns: int) -> Hole:
    """An empty hole behind `line`. It includes the blank, indented line that an editor may have started there."""
    end = _text_end(lines, line)
    begun = line + 1 < len(lines) and lines.is_blank(line + 1) and lines.columns(line + 1) > columns
    return Hole(end, lines.end(line + 1) if begun else end, indent=inner, lead=f"\n{inner}")


def _docstring(lines: Lines, function: Function, first: int | None) -> int | None:
    """The end of the docstring; in a broken tree, the end of its quotes."""
    if first is None:
        return None
    if not function.is_broken:
        return function.keep[1] if function.keep else None
    match = _DOCSTRING.match(lines.data, lines.first_char(first))
    return match.end() if match else None


def _braced_region(document: Document, function: Function) -> Hole:
    lines = document.source_lines
    opening, base = function.body[0] + 1, _indent_of(lines, function.head)
    closing, is_closed = _find_closing(lines, function)
    first_line, last_line = lines.at(opening), lines.at(closing)
    on_own_line = is_closed and last_line > first_line and lines.first_char(last_line) == closing
    first = _next_line(lines, first_line, last_line - on_own_line)
    inner = base + document.indent_unit
    if first is not None:
        inner = _find_inner(document, function, first, last_line - on_own_line)
    tail = f"\n{base}" if is_closed else ""
    if function.keep and not function.is_broken and lines.at(function.keep[0]) > first_line:
        opening = function.keep[1]
        first = _next_line(lines, lines.at(opening), last_line - on_own_line)
    opened = lines.data[opening : min(closing, lines.end(lines.at(opening)))]
    if _NOTE.fullmatch(opened) and not TODO.search(opened):
        opening += len(opened.rstrip())
        opened = b""
    end = opening + len(lines.data[opening:closing].rstrip()) if on_own_line or not is_closed else closing
    if first is None and not opened.strip() and not lines.data[opening:closing].strip():
        return Hole(opening, closing, indent=inner, lead=f"\n{inner}", tail=tail)
    tail = "" if on_own_line else tail
    if opened.strip() or first is None:
        return Hole(opening, end, indent=inner, lead=f"\n{inner}", tail=tail)
    return _begin(lines, first, end, inner, tail)


def _find_closing(lines: Lines, function: Function) -> tuple[int, bool]:
    """The position of a body's closing brace, and whether it exists; by indentation if the tree is broken."""
    start, end = function.body
    closed = lines.data[end - 1 : end] == b"}"
    first = lines.at(start)
    if not function.is_broken or (closed and lines.at(end - 1) == first):
        return (end - 1, True) if closed else (end, False)
    on_own_line = lines.first_char(first) == start
    columns, last = lines.columns(first if on_own_line else lines.at(function.head)), first
    for line in range(first + 1, len(lines)):
        content = lines.content(line).lstrip()
        if not content:
            continue
        if lines.columns(line) <= columns and not _OUTDENTED.match(content):
            return (lines.first_char(line), True) if content.startswith(b"}") else (_text_end(lines, last), False)
        last = line
    return _text_end(lines, last), False
