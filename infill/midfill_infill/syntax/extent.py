"""How far a function of an indented language reaches, by its lines. Knows brackets and columns, no tree."""

import re

from midfill_infill.syntax.captures import Function
from midfill_infill.text.lines import Lines

_HEADER_TOKEN = re.compile(rb"""(\"{3}|'{3})(?s:.*?)\1|"[^"\r\n]*"|'[^'\r\n]*'|#[^\r\n]*|[()\[\]{}:]|\r?\n""")
_MAX_HEADER_LINES = 64


def find_header_end(lines: Lines, function: Function) -> int:
    """The offset behind the colon of a Python function's header, or behind its first line where that is broken."""
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
    """The last line of an indented body: the one before the next that is indented no deeper than the definition.

    Lines that a sound tree counts in, as those of a string, belong to it however they are indented. Comments at the
    body's indentation belong to it, blank lines at its end do not.
    """
    first, columns = lines.at(header_end), lines.columns(lines.at(function.head))
    trusted = 0 if function.is_broken else function.end
    last = first
    for line in range(first + 1, len(lines)):
        if lines.is_blank(line) and lines.start(line) >= trusted:
            continue
        if lines.columns(line) <= columns and lines.start(line) >= trusted:
            break
        last = line
    return last
