"""Chooses what a fill is shown on; nothing is drawn where no person looks. Knows terminals, no rich."""

import os
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Final

from midfill_infill.cli.quiet import FillView, QuietView
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Hole

DUMB: Final = ("dumb", "unknown")


def open_view(
    document: Document, holes: Sequence[Hole], *, live: bool, frame_s: float = 0.0
) -> AbstractContextManager[FillView]:
    """The live view on a terminal, else one that notes on stderr what takes long, if a person reads it.

    Every step stays for at least `frame_s`; if that is asked for, it is printed where there is no terminal too.
    """
    is_drawn = live and sys.stdout.isatty() and os.environ.get("TERM", "").lower() not in DUMB
    if not is_drawn and not (live and frame_s):
        return QuietView()
    from midfill_infill.cli.live import PrintedView, draw  # imports rich: a sixth of all that a warm fill costs

    return draw(document, holes, frame_s) if is_drawn else PrintedView(document, holes)
