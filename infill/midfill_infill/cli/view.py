"""Shows the progress of a fill where nothing can be drawn. Does not import rich."""

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, TextIO

import typer

from midfill_infill.engines.notes import note

if TYPE_CHECKING:
    from midfill_infill.filling.fill import Preview
    from midfill_infill.text.document import Document
    from midfill_infill.text.spans import Hole


def can_draw(stream: TextIO) -> bool:
    """True if a stream is a terminal that can move its cursor."""
    return stream.isatty() and os.environ.get("TERM", "").lower() not in ("dumb", "unknown")


def describe_place(document: "Document", hole: "Hole") -> str:
    """File, line and name of a hole."""
    place = document.where(hole.start_byte)
    return f"{place} {hole.name}" if hole.name else place


def read_key(read_char: Callable[[], str] = typer.getchar) -> str:
    """The next key that the user presses. Raises KeyboardInterrupt for Ctrl-C and Ctrl-D."""
    try:
        key = read_char()
    except EOFError:
        raise KeyboardInterrupt from None
    if key in ("\x03", "\x04"):
        raise KeyboardInterrupt
    return key


class FillView(AbstractContextManager["FillView"]):
    """A display of a fill's progress. This base class shows no step; it names slow work if stderr is a terminal."""

    def __exit__(self, *_: object) -> None:
        return None

    def note(self, phrase: str) -> None:
        note(phrase)

    def show(self, preview: "Preview") -> None:
        return None
