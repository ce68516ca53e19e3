"""Tells by indentation what blocks are around a line, and which lines may stand at the margin. Knows no tree."""

import re
from collections.abc import Iterator
from typing import Final

from midfill_infill.languages import Language
from midfill_infill.text.lines import Lines

_COMMENT: Final = re.compile(rb"\s*(?://|/\*|\*/|\*\s|\*$)")
_MARGINAL: Final = re.compile(
    rb"\s*(?:#[ \t]*(?:if|ifdef|ifndef|elif|else|endif|define|undef|include|pragma|error|warning|line)\b"
    rb"|(?!(?:default|public|private|protected|signals|else|try|do|finally)\b)[A-Za-z_]\w*[ \t]*:(?!:)[ \t]*(?://.*|/\*.*)?$)"
)


def tells_indent(language: Language, content: bytes) -> bool:
    """True for a line of code that is indented as its block is: no comment, directive or label."""
    if language.has_indented_blocks:
        return not content.lstrip().startswith(language.comment.encode())
    return is_at_level(language, content) and not _COMMENT.match(content)


def is_at_level(language: Language, content: bytes) -> bool:
    """True unless a line is a directive or a label, which stand at the margin whatever is around them."""
    return language.has_indented_blocks or not _MARGINAL.match(content)


def list_openers(lines: Lines, line: int, columns: int) -> Iterator[int]:
    """The numbers of the lines above `line` that open the blocks around it, innermost first. It is indented by
    `columns`.
    """
    outer = columns
    for above in range(line - 1, -1, -1):
        if outer == 0:
            return
        if not lines.is_blank(above) and lines.columns(above) < outer:
            outer = lines.columns(above)
            yield above
