"""What a document consists of, read once: its functions, those that an error swallowed too, scopes and imports."""

import threading
from functools import lru_cache

from midfill_infill.errors import MidfillError
from midfill_infill.languages import Language
from midfill_infill.syntax.broken import recover
from midfill_infill.syntax.captures import Function, Outline, read_outline
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Hole


def require_syntax(document: Document) -> Language:
    """The document's language. Raises MidfillError `unknown_language` where there is none."""
    if document.syntax is None:
        raise MidfillError("unknown_language", f"{document.name} is in no language that Midfill knows functions of")
    return document.syntax


_reading = threading.Lock()


def outline(document: Document) -> Outline:
    """All that a document has, its functions in the order of the text.

    A thread that asks for what another one is reading waits for it. Raises MidfillError `unknown_language` where there
    is no grammar.
    """
    with _reading:
        return _read(document)


@lru_cache(maxsize=8)
def _read(document: Document) -> Outline:
    language = require_syntax(document)
    return recover(language, document.source_lines, read_outline(language, document.source))


def find_own(document: Document, hole: Hole) -> Function | None:
    """The function that a body hole is the inside of."""
    if not hole.is_body:
        return None
    start = document.to_source(hole.start_byte)
    inside = (f for f in reversed(outline(document).functions) if f.head < start and f.name == hole.name)
    return next(inside, None)
