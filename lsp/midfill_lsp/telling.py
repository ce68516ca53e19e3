"""Describes fills in messages of PROTOCOL.md and sends those of pending fills. Changes no document."""

import asyncio
from collections.abc import Iterable
from functools import partial

from lsprotocol import types

from midfill_infill.engines.offer import offer
from midfill_infill.filling.candidates import DRAFTED, PlacedFill
from midfill_infill.filling.fill import Filled
from midfill_infill.filling.wishes import can_lengthen
from midfill_lsp.host import Host
from midfill_lsp.messages import FillResult, FillStats, HoleFill, OldText, PendingFill, PendingFills, PendingText, Range
from midfill_lsp.pending import Pending, PendingStore
from midfill_lsp.text import Span, SyncedDocument, to_units

REST_S = 0.05
NO_SYNTAX = "This fill is no syntax here: reroll it, mend it or discard it."


class PendingTeller:
    """Sends the pending fills of a document and their syntax errors. Use it on the event loop only."""

    def __init__(self, server: Host, pending: PendingStore) -> None:
        self._server, self._pending = server, pending
        self._with_errors: set[str] = set()
        self._soon: dict[str, asyncio.TimerHandle] = {}

    def tell_soon(self, document: SyncedDocument) -> None:
        """For fills that only moved: the client moves its own marks with the text meanwhile."""
        if document.uri not in self._soon:
            loop = asyncio.get_running_loop()
            self._soon[document.uri] = loop.call_later(REST_S, self.tell, document)

    def tell(self, document: SyncedDocument) -> None:
        if waiting := self._soon.pop(document.uri, None):
            waiting.cancel()
        fills = self._pending.of(document)
        message = PendingFills(uri=document.uri, fills=tuple(map(_describe_pending, fills)))
        self._server.tell("midfill/didChangePending", message, document.uri, is_empty=not fills)
        said = partial(types.Diagnostic, message=NO_SYNTAX, severity=types.DiagnosticSeverity.Warning, source="midfill")
        errors = [said(fill.text.range(span)) for fill in fills for span in fill.errors]
        if errors or document.uri in self._with_errors:
            (self._with_errors.add if errors else self._with_errors.discard)(document.uri)
            self._server.text_document_publish_diagnostics(types.PublishDiagnosticsParams(document.uri, errors))


def tell_of_better_models(server: Host, chosen: str | None, filled_by: str) -> None:
    """Tells each user once, in the command or here, and only if the shipped model filled without being chosen."""
    if chosen is not None:
        return
    sentence = offer(filled_by)
    if sentence is not None:
        server.show(f"Midfill: {sentence}.", types.MessageType.Info)


def _describe_pending(fill: Pending) -> PendingFill:
    def place(span: Span) -> Range:
        return Range.of(fill.text.range(span))

    return PendingFill(
        id=fill.id,
        holes=tuple(
            PendingText(
                range=place(hole.inner),
                original=hole.original,
                hunks=tuple(OldText(range=place(span), text=old) for span, old in hole.hunks(fill.text.source)),
                is_suggestion=hole.fill.is_suggestion,
                origin="" if hole.fill.origin == DRAFTED else hole.fill.origin,
            )
            for hole in fill.holes
        ),
        weak=tuple(map(place, fill.weak)),
        errors=tuple(map(place, fill.errors)),
        new_errors=fill.filled.new_errors,
        passes=fill.filled.passes or None,
        alternatives=len(fill.filled.alternatives),
        lengths=("same", "shorter", "longer") if can_lengthen(fill.filled.heeds) else ("same", "shorter"),
        stats=_describe_stats(fill.filled),
    )


def describe(fill: PlacedFill, range: types.Range, encoding: str, text: str | None = None) -> HoleFill:
    """`text` is the replacement of `range` if that differs from the fill by a lead, a tail or line endings."""
    shown = fill.text if text is None else text
    shift = shown.find(fill.text)
    tokens: Iterable[Span] = [(start + shift, end + shift) for start, end in fill.tokens] if shift >= 0 else []
    return HoleFill(
        range=Range.of(range),
        text=shown,
        name=fill.hole.name,
        tokens=to_units(shown, tokens, encoding),
        confidence=fill.confidence if shift >= 0 else (),
        certainty=fill.certainty,
        is_suggestion=fill.is_suggestion,
        origin=fill.origin,
    )


def make_result(filled: Filled, holes: Iterable[HoleFill], *, version: int | None, applied: bool) -> FillResult:
    return FillResult(
        version=version,
        applied=applied,
        holes=tuple(holes),
        alternatives=tuple(tuple(fill.text for fill in row.fills) for row in filled.alternatives),
        new_errors=filled.new_errors,
        passes=filled.passes or None,
        model=filled.model,
        stats=_describe_stats(filled),
    )


def _describe_stats(filled: Filled) -> FillStats:
    return FillStats.model_validate(filled.stats, from_attributes=True)
