"""Reports pending fills, their new syntax errors, and better models. Changes no document."""

import asyncio
from typing import Any

from lsprotocol import types

from midfill_infill.candidates import DRAFTED
from midfill_infill.engines.offer import offer
from midfill_lsp.host import Host
from midfill_lsp.messages import OldText, PendingFill, PendingFills, PendingText, Range
from midfill_lsp.pending import Pending, PendingStore
from midfill_lsp.results import make_stats
from midfill_lsp.text import Span, SyncedDocument

REST_S = 0.05


class PendingTeller:
    """Use it on the event loop only. Sends only what changed."""

    def __init__(self, server: Host, pending: PendingStore) -> None:
        self._server, self._pending = server, pending
        self._told: dict[str, dict[str, Any]] = {}
        self._with_errors: set[str] = set()
        self._soon: dict[str, asyncio.TimerHandle] = {}

    def tell_soon(self, document: SyncedDocument) -> None:
        """Where fills only moved: the client's own marks move with its text meanwhile."""
        if document.uri not in self._soon:
            loop = asyncio.get_running_loop()
            self._soon[document.uri] = loop.call_later(REST_S, self.tell, document)

    def tell(self, document: SyncedDocument) -> None:
        if waiting := self._soon.pop(document.uri, None):
            waiting.cancel()
        fills = self._pending.of(document)
        self._tell_fills(document.uri, fills)
        self._tell_errors(document.uri, fills)

    def _tell_fills(self, uri: str, fills: list[Pending]) -> None:
        if not self._server.speaks_midfill:
            return
        message = PendingFills(uri=uri, fills=tuple(map(_describe, fills))).to_json()
        if message == self._told.get(uri) or not (fills or uri in self._told):
            return
        self._told[uri] = message
        if not fills:
            del self._told[uri]
        self._server.protocol.notify("midfill/didChangePending", message)

    def _tell_errors(self, uri: str, fills: list[Pending]) -> None:
        found = [_diagnose(fill, span) for fill in fills for span in fill.errors]
        if not found and uri not in self._with_errors:
            return
        (self._with_errors.add if found else self._with_errors.discard)(uri)
        self._server.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, found))


def tell_of_better_models(server: Host, chosen: str | None, filled_by: str) -> None:
    """Once for a user, in the command or here, and only where the model that ships filled without being chosen."""
    if chosen is None and (sentence := offer(filled_by)) is not None:
        server.show(f"Midfill: {sentence}.", types.MessageType.Info)


def _describe(fill: Pending) -> PendingFill:
    def place(span: Span) -> Range:
        return Range.of(fill.text.range(span))

    return PendingFill(
        id=fill.id,
        holes=tuple(
            PendingText(
                range=place(hole.inner),
                original=hole.original,
                hunks=tuple(OldText(range=place(span), text=old) for span, old in hole.hunks(fill.text.source)),
                is_guess=hole.fill.is_guess,
                origin="" if hole.fill.origin == DRAFTED else hole.fill.origin,
            )
            for hole in fill.holes
        ),
        weak=tuple(map(place, fill.weak)),
        errors=tuple(map(place, fill.errors)),
        new_errors=fill.filled.new_errors,
        passes=fill.filled.passes or None,
        alternatives=len(fill.filled.alternatives),
        stats=make_stats(fill.filled),
    )


def _diagnose(fill: Pending, span: Span) -> types.Diagnostic:
    message = "This fill is no syntax here: reroll it, mend it or discard it."
    severity = types.DiagnosticSeverity.Warning
    return types.Diagnostic(fill.text.range(span), message, severity=severity, source="midfill")
