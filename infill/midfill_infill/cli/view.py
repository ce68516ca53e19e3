"""Chooses how the progress of a fill is shown; draws only on terminals. Does not import rich itself."""

import os
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Final, Protocol, Self

from midfill_infill.fill import Preview
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Hole

DUMB: Final = ("dumb", "unknown")


class FillView(Protocol):
    """A display of a fill's progress."""

    def note(self, phrase: str) -> None: ...

    def show(self, preview: Preview) -> None: ...


class QuietView:
    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def note(self, phrase: str) -> None:
        if sys.stderr.isatty():
            print(f"{phrase} ...", file=sys.stderr)

    def show(self, preview: Preview) -> None:
        return None


class PrintedView(QuietView):
    """Prints every step on stderr, where nothing can be redrawn."""

    def __init__(self, document: Document, holes: Sequence[Hole]) -> None:
        self._document, self._holes = document, holes

    def show(self, preview: Preview) -> None:
        from rich.console import Console

        from midfill_infill.cli.live import render_preview

        Console(stderr=True).print(render_preview(self._document, self._holes, preview))


def open_view(
    document: Document, holes: Sequence[Hole], *, live: bool, frame_s: float = 0.0
) -> AbstractContextManager[FillView]:
    """The live view on a terminal, otherwise one that only names slow work on stderr.

    Every step stays for at least `frame_s`; if that is set, steps are printed without a terminal too.
    """
    is_drawn = live and sys.stdout.isatty() and os.environ.get("TERM", "").lower() not in DUMB
    if not is_drawn:
        return PrintedView(document, holes) if live and frame_s else QuietView()
    from midfill_infill.cli.live import LiveView  # rich takes a sixth of a warm fill's CPU time

    return LiveView(document, holes, frame_s=frame_s)
