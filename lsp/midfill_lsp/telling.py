"""Describes fills as messages of PROTOCOL.md, and sends the client its pending fills. Changes no document."""

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

TELL_DELAY_S = 0.05
NO_SYNTAX = "This fill is no syntax here: reroll it, mend it or discard it."


class PendingTeller:
    """Sends the pending fills of a document and their syntax errors. Use it on the event loop only."""

    def __init__(self, server: Host, pending: PendingStore) -> None:
        self._server, self._pending = server, pending
        self._with_errors: set[str] = set()
        self._soon: dict[str, asyncio.TimerHandle] = {}

    def tell_soon(self, document: SyncedDocument) -> None:
        """Sends after a delay. For fills that only moved: the client moves its own marks with the text meanwhile."""
        if document.uri not in self._soon:
            loop = asyncio.get_running_loop()
            self._soon[document.uri] = loop.call_later(TELL_DELAY_S, self.tell, document)

    def tell(self, document: SyncedDocument) -> None:
        """Sends the pending fills now, and their syntax errors as diagnostics; an empty list removes earlier ones."""
        timer = self._soon.pop(document.uri, None)
        if timer is not None:
            timer.cancel()
        fills = self._pending.of(document)
        message = PendingFills(uri=document.uri, fills=tuple(map(_describe_pending, fills)))
        self._server.tell("midfill/didChangePending", message, document.uri, is_empty=not fills)
        warn = partial(types.Diagnostic, message=NO_SYNTAX, severity=types.DiagnosticSeverity.Warning, source="midfill")
        errors = [warn(fill.text.range(span)) for fill in fills for span in fill.errors]
        if errors or document.uri in self._with_errors:
            self._with_errors.discard(document.uri)
            if errors:
                self._with_errors.add(document.uri)
            self._server.text_document_publish_diagnostics(types.PublishDiagnosticsParams(document.uri, errors))


def tell_of_better_models(server: Host, chosen: str | None, filled_by: str) -> None:
    """Offers better models if the shipped model filled without being chosen, once to each user, also in the command."""
    if chosen is not None:
        return
    sentence = offer(filled_by)
    if sentence is not None:
        server.show(f"Midfill: {sentence}.", types.MessageType.Info)


def _describe_pending(fill: Pending) -> PendingFill:
    def to_range(span: Span) -> Range:
        return Range.of(fill.text.range(span))

    return PendingFill(
        id=fill.id,
        holes=tuple(
            PendingText(
                range=to_range(hole.inner),
                original=hole.original,
                hunks=tuple(OldText(range=to_range(span), text=old) for span, old in hole.hunks(fill.text.source)),
                is_suggestion=hole.fill.is_suggestion,
                origin="" if hole.fill.origin == DRAFTED else hole.fill.origin,
            )
            for hole in fill.holes
        ),
        weak=tuple(map(to_range, fill.weak)),
        errors=tuple(map(to_range, fill.errors)),
        new_errors=fill.filled.new_errors,
        passes=fill.filled.passed_command or None,
        alternatives=len(fill.filled.alternatives),
        lengths=("same", "shorter", "longer") if can_lengthen(fill.filled.heeds) else ("same", "shorter"),
        stats=_describe_stats(fill.filled),
    )


def describe_fill(fill: PlacedFill, range: types.Range, encoding: str, text: str | None = None) -> HoleFill:
    """The fill of a hole as a message. `text` is what replaces `range` if that has a lead, a tail or other line ends.
    Tokens are left out if the text does not contain the fill as it is.
    """
    replacement = fill.text if text is None else text
    shift = replacement.find(fill.text)
    tokens: Iterable[Span] = [(start + shift, end + shift) for start, end in fill.tokens] if shift >= 0 else []
    return HoleFill(
        range=Range.of(range),
        text=replacement,
        name=fill.hole.name,
        tokens=to_units(replacement, tokens, encoding),
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
        alternatives=tuple(tuple(fill.text for fill in candidate.fills) for candidate in filled.alternatives),
        new_errors=filled.new_errors,
        passes=filled.passed_command or None,
        model=filled.model,
        stats=_describe_stats(filled),
    )


def _describe_stats(filled: Filled) -> FillStats:
    return FillStats.model_validate(filled.stats, from_attributes=True)
