"""Which fill a command means: the one it names, the one under the cursor, the latest. Knows places, no fill's state."""

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

from midfill_lsp.messages import PendingParams
from midfill_lsp.text import Span, SyncedDocument, SyncedWorkspace, Text


class Placed(Protocol):
    """A fill that stands, or will stand, in a document."""

    @property
    def id(self) -> int: ...

    @property
    def document(self) -> SyncedDocument: ...

    @property
    def spans(self) -> list[Span]: ...


P = TypeVar("P", bound=Placed)


def find_meant(workspace: SyncedWorkspace, params: PendingParams, fills: Iterable[P]) -> P | None:
    """By id; else the latest that holds the cursor, or a line of it; else the latest of the document, or of all."""
    ordered = sorted(fills, key=lambda fill: fill.id)
    if params.id is not None:
        ordered = [fill for fill in ordered if fill.id == params.id]
    elif params.uri is not None:
        document = workspace.open_document(params.uri)
        ordered = [fill for fill in ordered if fill.document is document]
        if document and params.position is not None:
            offset = document.text.offset(params.position.to_lsp())
            ordered = _holding(ordered, (offset, offset)) or _holding(ordered, _line(document.text, offset)) or ordered
    return ordered[-1] if ordered else None


def _holding(fills: Sequence[P], place: Span) -> list[P]:
    return [fill for fill in fills if any(first <= place[1] and place[0] <= last for first, last in fill.spans)]


def _line(text: Text, offset: int) -> Span:
    number = text.position(offset).line
    return text.line_starts[number], text.line_starts[number] + len(text.line(number))
