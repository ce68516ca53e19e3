"""Finds the hole of a function body: its start, its end, and the text that must surround it. Knows no grammar.

The private functions return holes in bytes of the document's source.
"""

import re
from dataclasses import replace

from midfill_infill.syntax.captures import Function
from midfill_infill.syntax.margins import tells_indent
from midfill_infill.syntax.outline import find_header_end, find_last_line, require_syntax
from midfill_infill.syntax.stubs import TODO, is_stub
from midfill_infill.text.document import Document
from midfill_infill.text.encoding import is_decoded
from midfill_infill.text.lines import Lines
from midfill_infill.text.spans import Hole, HoleKind

_NOTE = re.compile(rb"[ \t\f]*(?:#.*|//.*|/\*(?:(?!\*/)[^\r\n])*\*/[ \t]*)?")
_DOCSTRING = re.compile(
    rb"""[rRuU]?(?:(\"{3}|'{3})(?s:.*?)\1|"(?:[^"\\\r\n]|\\.)*"|'(?:[^'\\\r\n]|\\.)*')(?=\s*(?:[#;\r\n]|$))"""
)
_OUTDENTED = re.compile(rb"#|//|/\*|\w+\s*:(?!:)")


def body_hole(document: Document, function: Function) -> Hole:
    """The hole between a function's docstring and its end, without surrounding white space. Comments before a stub's
    placeholder stay. A body on the header's line moves to lines of its own.
    """
    lines = document.source_lines
    if function.is_expression:
        region = Hole(*function.body, indent=_indent_of(lines, function.head))
    elif require_syntax(document).has_indented_blocks:
        region = _indented_region(document, function)
    else:
        region = _braced_region(document, function)
    kind: HoleKind = "body"
    if is_stub(document, function):
        kind = "stub"
        region = _keep_notes(lines, region)
    return replace(
        region,
        start_byte=document.to_raw(region.start_byte),
        end_byte=document.to_raw(region.end_byte),
        kind=kind,
        name=function.name,
    )


def _indent_of(lines: Lines, offset: int) -> str:
    return lines.indent(lines.at(offset)).replace(b"\f", b"").decode("ascii")


def _find_inner(document: Document, function: Function, first: int, last: int) -> str:
    """The indentation of a body with the lines from `first` to `last`: that of its first line of code, otherwise that
    of a comment that is indented, otherwise one level.
    """
    lines = document.source_lines
    language = require_syntax(document)
    if function.first is not None and not function.is_broken:
        return _indent_of(lines, function.first)
    columns = lines.columns(lines.at(function.head))
    filled = (number for number in range(first, last + 1) if not lines.is_blank(number))
    inside = [number for number in filled if lines.columns(number) > columns]
    if not inside:
        return _indent_of(lines, function.head) + document.indent_unit
    coded = (number for number in inside if tells_indent(language, lines.content(number)))
    number = next(coded, inside[0])
    return _indent_of(lines, lines.start(number))


def _begin(lines: Lines, line: int, end: int, inner: str, tail: str = "") -> Hole:
    """The hole from a line on. A line that is not indented as the body, such as a comment at the margin, is replaced as
    a whole.
    """
    if _indent_of(lines, lines.start(line)) == inner:
        return Hole(lines.first_char(line), end, indent=inner, tail=tail)
    return Hole(lines.start(line), end, indent=inner, lead=inner, tail=tail)


def _text_end(lines: Lines, line: int) -> int:
    """Where the text of a line ends, without white space behind it."""
    return lines.start(line) + len(lines.content(line).rstrip())


def _next_line(lines: Lines, line: int, last: int) -> int | None:
    """The first nonblank line behind `line`, up to `last`; None if there is none."""
    for number in range(line + 1, last + 1):
        if not lines.is_blank(number):
            return number
    return None


def _keep_notes(lines: Lines, region: Hole) -> Hole:
    """Moves the start of the hole behind its leading comment lines, except TODOs."""
    first = lines.at(region.start_byte)
    last = lines.at(region.end_byte)
    if region.start_byte == region.end_byte or "\n" in region.lead:
        return region
    if region.start_byte not in (lines.first_char(first), lines.start(first)):
        return region
    note = None
    for number in range(first, last + 1):
        content = lines.content(number)
        if not _NOTE.fullmatch(content) or TODO.search(content):
            begun = _begin(lines, number, region.end_byte, region.indent)
            return replace(region, start_byte=begun.start_byte, lead=begun.lead)
        if not lines.is_blank(number):
            note = number
    assert note is not None
    return replace(region, start_byte=_text_end(lines, note), lead=f"\n{region.indent}")


def _indented_region(document: Document, function: Function) -> Hole:
    """The body of a Python function."""
    lines = document.source_lines
    header_end = find_header_end(lines, function)
    header = lines.at(header_end)
    inner = _indent_of(lines, function.head) + document.indent_unit
    if _has_code(lines.data[header_end : lines.end(header)]):
        return _one_line_region(document, function, header_end, inner)
    last = find_last_line(lines, header_end, function)
    first = _next_line(lines, header, last)
    if first is not None:
        inner = _find_inner(document, function, first, last)
    keep = _docstring(lines, function, first)
    if keep is not None:
        header = lines.at(keep)
        rest = lines.data[keep : lines.end(header)]
        if _has_code(rest):
            code = rest.lstrip(b" \t;")
            start = keep + len(rest) - len(code)
            return Hole(start, _text_end(lines, last), indent=inner)
        first = _next_line(lines, header, last)
    if first is None:
        columns = lines.columns(lines.at(function.head))
        return _empty_region(lines, header, inner, columns)
    return _begin(lines, first, _text_end(lines, last), inner)


def _has_code(rest: bytes) -> bool:
    """True if the rest of a Python line is more than a comment."""
    code, _, _ = rest.partition(b"#")
    return bool(code.strip())


def _one_line_region(document: Document, function: Function, header_end: int, inner: str) -> Hole:
    """The body of a function whose code is on the line of its header."""
    lines = document.source_lines
    last = header_end if function.is_broken else max(header_end, function.end)
    end = _text_end(lines, lines.at(last))
    lead = f"\n{inner}"
    if function.keep:
        keep_start, keep_end = function.keep
        docstring = document.tell(document.to_raw(keep_start), document.to_raw(keep_end))
        if not is_decoded(docstring):  # it cannot move
            rest = lines.data[keep_end:end]
            start = end - len(rest.lstrip(b" \t;"))
            return Hole(start, end, indent=inner, lead="" if b";" in rest else "; ")
        if docstring:
            lead += f"{docstring}\n{inner}"
    return Hole(header_end, end, indent=inner, lead=lead)


def _empty_region(lines: Lines, line: int, inner: str, columns: int) -> Hole:
    """An empty hole behind `line`. It includes the blank, indented line that an editor may have started there."""
    start = end = _text_end(lines, line)
    following = line + 1
    if following < len(lines) and lines.is_blank(following) and lines.columns(following) > columns:
        end = lines.end(following)
    return Hole(start, end, indent=inner, lead=f"\n{inner}")


def _docstring(lines: Lines, function: Function, first: int | None) -> int | None:
    """The end of the docstring; in a broken tree, the end of its quotes."""
    if first is None:
        return None
    if function.is_broken:
        match = _DOCSTRING.match(lines.data, lines.first_char(first))
        return match.end() if match else None
    if function.keep is None:
        return None
    _, end = function.keep
    return end


def _braced_region(document: Document, function: Function) -> Hole:
    """The body between braces."""
    lines = document.source_lines
    base = _indent_of(lines, function.head)
    opening = function.body[0] + 1
    closing, is_closed = _find_closing(lines, function)
    header = lines.at(opening)
    last = lines.at(closing)
    has_own_line = is_closed and last > header and lines.first_char(last) == closing
    if has_own_line:
        last -= 1
    first = _next_line(lines, header, last)
    inner = base + document.indent_unit
    if first is not None:
        inner = _find_inner(document, function, first, last)
    if function.keep and not function.is_broken:
        keep_start, keep_end = function.keep
        if lines.at(keep_start) > header:
            opening = keep_end
            first = _next_line(lines, lines.at(opening), last)
    line_end = lines.end(lines.at(opening))
    opened = lines.data[opening : min(closing, line_end)]
    if _NOTE.fullmatch(opened) and not TODO.search(opened):
        opening += len(opened.rstrip())
        opened = b""
    inside = lines.data[opening:closing]
    tail = f"\n{base}" if is_closed else ""
    if first is None and not inside.strip():
        return Hole(opening, closing, indent=inner, lead=f"\n{inner}", tail=tail)
    end = closing
    if has_own_line or not is_closed:
        end = opening + len(inside.rstrip())
        tail = ""
    if opened.strip() or first is None:
        return Hole(opening, end, indent=inner, lead=f"\n{inner}", tail=tail)
    return _begin(lines, first, end, inner, tail)


def _find_closing(lines: Lines, function: Function) -> tuple[int, bool]:
    """The position of a body's closing brace, and whether it exists; by indentation if the tree is broken."""
    start, end = function.body
    first = lines.at(start)
    is_closed = lines.data[end - 1 : end] == b"}"
    if is_closed and (not function.is_broken or lines.at(end - 1) == first):
        return end - 1, True
    if not function.is_broken:
        return end, False
    outer = lines.at(function.head)
    if lines.first_char(first) == start:
        outer = first
    columns = lines.columns(outer)
    last = first
    for line in range(first + 1, len(lines)):
        content = lines.content(line).lstrip()
        if not content:
            continue
        if lines.columns(line) <= columns and not _OUTDENTED.match(content):
            if content.startswith(b"}"):
                return lines.first_char(line), True
            break
        last = line
    return _text_end(lines, last), False
