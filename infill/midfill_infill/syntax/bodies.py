"""Finds the hole of a function's body: its start, its end, and the text that must surround the fill. Knows no grammar.

The private functions that return a `Hole` count in bytes of the document's source, and `body_hole` converts these.
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

_BLANK_OR_COMMENT = re.compile(rb"[ \t\f]*(?:#.*|//.*|/\*(?:(?!\*/)[^\r\n])*\*/[ \t]*)?")
_DOCSTRING = re.compile(
    rb"""[rRuU]?(?:(\"{3}|'{3})(?s:.*?)\1|"(?:[^"\\\r\n]|\\.)*"|'(?:[^'\\\r\n]|\\.)*')(?=\s*(?:[#;\r\n]|$))"""
)
_MAY_BE_AT_MARGIN = re.compile(rb"#|//|/\*|\w+\s*:(?!:)")  # directives, comments, labels


def body_hole(document: Document, function: Function) -> Hole:
    """The hole between a function's docstring and its end, without surrounding white space. Comments before a stub's
    placeholder stay. The fill of a body on the header's line begins on a line of its own.
    """
    lines = document.source_lines
    if function.is_expression:
        hole = Hole(*function.body, indent=_indent_of(lines, function.head))
    elif require_syntax(document).has_indented_blocks:
        hole = _indented_hole(document, function)
    else:
        hole = _braced_hole(document, function)
    kind: HoleKind = "body"
    if is_stub(document, function):
        kind = "stub"
        hole = _keep_comments(lines, hole)
    return replace(
        hole,
        start_byte=document.to_data(hole.start_byte),
        end_byte=document.to_data(hole.end_byte),
        kind=kind,
        name=function.name,
    )


def _indent_of(lines: Lines, offset: int) -> str:
    """The indentation of the line that holds `offset`, without form feeds."""
    return lines.indent(lines.at(offset)).replace(b"\f", b"").decode("ascii")


def _find_body_indent(document: Document, function: Function, first: int, last: int) -> str:
    """The indentation of a body with the lines from `first` to `last`: that of its first line of code, otherwise that
    of its first indented line, such as a comment, otherwise one level more than the definition's.
    """
    lines = document.source_lines
    language = require_syntax(document)
    if function.first_opener is not None and not function.is_broken:
        return _indent_of(lines, function.first_opener)
    columns = lines.columns(lines.at(function.head))
    filled = (number for number in range(first, last + 1) if not lines.is_blank(number))
    inside = [number for number in filled if lines.columns(number) > columns]
    if not inside:
        return _indent_of(lines, function.head) + document.indent_unit
    code = (number for number in inside if tells_indent(language, lines.content(number)))
    number = next(code, inside[0])
    return _indent_of(lines, lines.start(number))


def _hole_from_line(lines: Lines, line: int, end: int, indent: str, tail: str = "") -> Hole:
    """The hole from the text of `line` to `end`. If the line is not indented as the body, such as a comment at the
    margin, the hole takes its indentation too and has the body's `indent` as lead.
    """
    if _indent_of(lines, lines.start(line)) == indent:
        return Hole(lines.first_char(line), end, indent=indent, tail=tail)
    return Hole(lines.start(line), end, indent=indent, lead=indent, tail=tail)


def _text_end(lines: Lines, line: int) -> int:
    """Where the text of a line ends, without white space behind it."""
    return lines.start(line) + len(lines.content(line).rstrip())


def _next_filled_line(lines: Lines, line: int, last: int) -> int | None:
    """The first line behind `line` that is not blank, up to `last`; None if there is none."""
    for number in range(line + 1, last + 1):
        if not lines.is_blank(number):
            return number
    return None


def _keep_comments(lines: Lines, hole: Hole) -> Hole:
    """The hole without its leading lines of comments; a comment with a TODO stays in the hole."""
    first = lines.at(hole.start_byte)
    last = lines.at(hole.end_byte)
    if hole.start_byte == hole.end_byte or "\n" in hole.lead:
        return hole
    if hole.start_byte not in (lines.first_char(first), lines.start(first)):
        return hole
    last_comment = None
    for number in range(first, last + 1):
        content = lines.content(number)
        if not _BLANK_OR_COMMENT.fullmatch(content) or TODO.search(content):
            from_line = _hole_from_line(lines, number, hole.end_byte, hole.indent)
            return replace(hole, start_byte=from_line.start_byte, lead=from_line.lead)
        if not lines.is_blank(number):
            last_comment = number
    assert last_comment is not None
    return replace(hole, start_byte=_text_end(lines, last_comment), lead=f"\n{hole.indent}")


def _indented_hole(document: Document, function: Function) -> Hole:
    """The hole of a Python function's body."""
    lines = document.source_lines
    header_end = find_header_end(lines, function)
    kept_line = lines.at(header_end)  # the last line that stays before the body
    indent = _indent_of(lines, function.head) + document.indent_unit
    if _has_code(lines.data[header_end : lines.end(kept_line)]):
        return _one_line_hole(document, function, header_end, indent)
    last = find_last_line(lines, header_end, function)
    first = _next_filled_line(lines, kept_line, last)
    if first is not None:
        indent = _find_body_indent(document, function, first, last)
    docstring_end = _find_docstring_end(lines, function, first)
    if docstring_end is not None:
        kept_line = lines.at(docstring_end)
        rest = lines.data[docstring_end : lines.end(kept_line)]
        if _has_code(rest):
            code = rest.lstrip(b" \t;")
            start = docstring_end + len(rest) - len(code)
            return Hole(start, _text_end(lines, last), indent=indent)
        first = _next_filled_line(lines, kept_line, last)
    if first is None:
        columns = lines.columns(lines.at(function.head))
        return _empty_hole(lines, kept_line, indent, columns)
    return _hole_from_line(lines, first, _text_end(lines, last), indent)


def _has_code(rest: bytes) -> bool:
    """True if the rest of a Python line is more than a comment."""
    code, _, _ = rest.partition(b"#")
    return bool(code.strip())


def _one_line_hole(document: Document, function: Function, header_end: int, indent: str) -> Hole:
    """The hole of a Python body whose code is on the line of its header. Its docstring moves into the lead."""
    lines = document.source_lines
    last = header_end if function.is_broken else max(header_end, function.end)
    end = _text_end(lines, lines.at(last))
    lead = f"\n{indent}"
    if function.docstring:
        keep_start, keep_end = function.docstring
        docstring = document.normalized_text(document.to_data(keep_start), document.to_data(keep_end))
        if not is_decoded(docstring):  # undecodable bytes cannot move into the lead
            rest = lines.data[keep_end:end]
            start = end - len(rest.lstrip(b" \t;"))
            return Hole(start, end, indent=indent, lead="" if b";" in rest else "; ")
        if docstring:
            lead += f"{docstring}\n{indent}"
    return Hole(header_end, end, indent=indent, lead=lead)


def _empty_hole(lines: Lines, line: int, indent: str, columns: int) -> Hole:
    """The hole of a missing body behind `line`. It takes the next line too if that is blank and indented by more than
    `columns`, those of the definition: an editor may have started it.
    """
    start = end = _text_end(lines, line)
    following = line + 1
    if following < len(lines) and lines.is_blank(following) and lines.columns(following) > columns:
        end = lines.end(following)
    return Hole(start, end, indent=indent, lead=f"\n{indent}")


def _find_docstring_end(lines: Lines, function: Function, first: int | None) -> int | None:
    """The end of the docstring of a body whose first line is `first`, or None. In a broken tree, its quotes tell."""
    if first is None:
        return None
    if function.is_broken:
        match = _DOCSTRING.match(lines.data, lines.first_char(first))
        return match.end() if match else None
    if function.docstring is None:
        return None
    _, end = function.docstring
    return end


def _braced_hole(document: Document, function: Function) -> Hole:
    """The hole of a body between braces."""
    lines = document.source_lines
    head_indent = _indent_of(lines, function.head)
    opening = function.body[0] + 1
    closing, is_closed = _find_closing(lines, function)
    header = lines.at(opening)
    last = lines.at(closing)
    has_own_line = is_closed and last > header and lines.first_char(last) == closing
    if has_own_line:
        last -= 1
    first = _next_filled_line(lines, header, last)
    indent = head_indent + document.indent_unit
    if first is not None:
        indent = _find_body_indent(document, function, first, last)
    start = opening
    if function.docstring and not function.is_broken:
        keep_start, keep_end = function.docstring
        if lines.at(keep_start) > header:
            start = keep_end
            first = _next_filled_line(lines, lines.at(start), last)
    line_end = lines.end(lines.at(start))
    rest = lines.data[start : min(closing, line_end)]
    if _BLANK_OR_COMMENT.fullmatch(rest) and not TODO.search(rest):
        start += len(rest.rstrip())
        rest = b""
    inside = lines.data[start:closing]
    tail = f"\n{head_indent}" if is_closed else ""
    if first is None and not inside.strip():
        return Hole(start, closing, indent=indent, lead=f"\n{indent}", tail=tail)
    end = closing
    if has_own_line or not is_closed:
        end = start + len(inside.rstrip())
        tail = ""
    if rest.strip() or first is None:
        return Hole(start, end, indent=indent, lead=f"\n{indent}", tail=tail)
    return _hole_from_line(lines, first, end, indent, tail)


def _find_closing(lines: Lines, function: Function) -> tuple[int, bool]:
    """The position of a body's closing brace and True, or the end of a body without one and False. Indentation tells in
    a broken tree, because after an unclosed bracket the tree includes what follows the function.
    """
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
        if lines.columns(line) <= columns and not _MAY_BE_AT_MARGIN.match(content):
            if content.startswith(b"}"):
                return lines.first_char(line), True
            break
        last = line
    return _text_end(lines, last), False
