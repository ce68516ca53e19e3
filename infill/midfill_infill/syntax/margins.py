"""Tells which lines may stand at the margin, whatever block is around them. Knows no tree."""

import re
from typing import Final

from midfill_infill.languages import Language

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
