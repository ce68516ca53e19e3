"""Finds the fill that a command refers to: by id, by cursor, or the latest. Knows places, no state of fills."""

from collections.abc import Iterable
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
T = TypeVar("T")


def find_meant(workspace: SyncedWorkspace, params: PendingParams, fills: Iterable[P]) -> P | None:
    """By id; otherwise the latest at the cursor or on its line; otherwise the latest of the document, or of all."""
    ordered = sorted(fills, key=lambda fill: fill.id)
    if params.id is not None:
        ordered = [fill for fill in ordered if fill.id == params.id]
    elif params.uri is not None:
        document = workspace.open_document(params.uri)
        ordered = [fill for fill in ordered if fill.document is document]
        if document and params.position is not None:
            offset = document.text.offset(params.position.to_lsp())
            ordered = (
                find_at(document.text, offset, ((span, fill) for fill in ordered for span in fill.spans)) or ordered
            )
    return ordered[-1] if ordered else None


def find_at(text: Text, offset: int, placed: Iterable[tuple[Span, T]]) -> list[T]:
    """The item at an offset; otherwise one on its line."""
    listed = list(placed)
    found = (
        [each for (first, last), each in listed if first <= end and start <= last]
        for start, end in ((offset, offset), _line(text, offset))
    )
    return next(found) or next(found)


def _line(text: Text, offset: int) -> Span:
    number = text.position(offset).line
    return text.line_starts[number], text.line_starts[number] + len(text.line(number))
