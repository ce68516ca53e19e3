"""Runs one fill from command to applied edit, in a document that moves meanwhile. How a fill is made is `infill`'s."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import closing
from functools import partial
from typing import Any

from lsprotocol import types
from pygls.exceptions import JsonRpcContentModified, JsonRpcException
from pygls.lsp.server import LanguageServer

from midfill_infill.errors import MidfillError
from midfill_infill.fill import Filled
from midfill_infill.spans import Edit, Hole
from midfill_lsp.engine import Filler
from midfill_lsp.progress import FillProgress, show_progress
from midfill_lsp.requests import TITLES, FillArguments, find_holes, read_document
from midfill_lsp.settings import Settings
from midfill_lsp.text import Moves, Span, SyncedDocument, SyncedWorkspace, Text, trim

MAX_APPLY_TRIES = 3
MOVED_WAIT_S = 0.2

# What to do next where the table's advice is for the command line.
_NEXT_STEPS = {
    "no_hole": "put the cursor into a function or select the text to fill",
    "no_stubs": "put the cursor into a function or select the text to fill",
    "unknown_language": "select the text to fill",
    "overlapping_holes": "select ranges that do not touch each other",
    "hole_too_large": "select less text",
    "engine_died": "fill again: a new engine is started",
    "out_of_memory": "choose a smaller model or the device cpu in the settings",
    "unknown_model": "choose another model in the settings",
}


class FillFailed(JsonRpcException):
    """LSP's RequestFailed: the message is one sentence, shown as it is."""

    CODE = types.LSPErrorCodes.RequestFailed.value


def explain(error: MidfillError) -> str:
    """The error's sentence, with advice that makes sense in an editor."""
    return f"Midfill: {error.message}; {_NEXT_STEPS.get(error.code, error.next_step)}."


class FillJob:
    """One fill of one document. Only `_make` runs in a worker thread; it changes nothing here."""

    def __init__(self, server: LanguageServer, arguments: FillArguments, filler: Filler, settings: Settings) -> None:
        """Raises FillFailed or JsonRpcContentModified where the document cannot be filled now."""
        self._server = server
        self._arguments = arguments
        self._filler = filler
        self._settings = settings
        self._document = _find_document(server, arguments)
        self._text = self._document.text
        self._title = f"Midfill: {TITLES[arguments.what].lower()}"
        self._stop = threading.Event()
        self._moves = Moves()

    async def run(self, executor: Executor, token: int | str | None) -> dict[str, Any]:
        """Fills, applies one versioned edit and describes what went in. `token` is the client's progress, if any.

        Raises MidfillError, FillFailed, JsonRpcContentModified when a hole changed meanwhile, CancelledError.
        """
        with self._document.recording() as self._moves:
            async with show_progress(self._server, token, self._title) as progress:
                filled = await self._run_make(executor, progress)
                version = await self._apply(filled)
        return _describe(filled, version)

    async def _run_make(self, executor: Executor, progress: FillProgress) -> Filled:
        loop = asyncio.get_running_loop()

        def tell(report: Callable[..., None], *values: Any) -> None:
            if not self._stop.is_set():
                loop.call_soon_threadsafe(report, *values)

        try:
            return await loop.run_in_executor(executor, self._make, progress, tell)
        finally:
            self._stop.set()

    def _make(self, progress: FillProgress, tell: Callable[..., None]) -> Filled:
        document = read_document(self._document.uri, self._document.language_id, self._text.source)
        holes = find_holes(document, self._text, self._arguments.what, self._arguments.ranges)
        spans = [self._span(hole) for hole in holes]
        say = partial(tell, progress.say)
        with closing(self._filler(document, holes, self._settings, say)) as events:
            for event in events:
                if self._stop.is_set():
                    raise MidfillError("cancelled", "the fill was cancelled")
                for span in spans:
                    self._carry(span)
                if isinstance(event, Filled):
                    return event
                masked = sum(hole.masked for hole in event.holes)
                tell(progress.step, event.step, event.num_steps, masked)
        raise AssertionError("a fill ends with Filled or an error")

    def _span(self, place: Hole | Edit) -> Span:
        return self._text.offset_of_byte(place.start_byte), self._text.offset_of_byte(place.end_byte)

    def _carry(self, span: Span) -> Span:
        carried = self._moves.carry(span)
        if carried is None:
            raise JsonRpcContentModified("Midfill: the text to fill changed meanwhile; nothing was filled.")
        return carried

    async def _apply(self, filled: Filled) -> int | None:
        """Sends the edit for the document as it is now; again if the editor was ahead. Returns the version edited."""
        for _ in range(MAX_APPLY_TRIES):
            version, text = self._document.version, self._document.text
            edits = [edit for edit in (self._text_edit(edit, text) for edit in filled.patch.edits) if edit is not None]
            if not edits or await self._send(edits, version):
                return version
            await asyncio.sleep(MOVED_WAIT_S)
            if self._document.version == version:
                raise FillFailed("Midfill: the editor did not take the edit; try again.")
        raise JsonRpcContentModified("Midfill: the document changes too fast; nothing was filled.")

    async def _send(self, edits: list[types.TextEdit], version: int | None) -> bool:
        current = self._server.workspace.get_text_document(self._document.uri)
        if current is not self._document or current.desynced:
            raise JsonRpcContentModified("Midfill: the document was closed meanwhile; nothing was filled.")
        identifier = types.OptionalVersionedTextDocumentIdentifier(self._document.uri, version)
        edit = types.WorkspaceEdit(document_changes=[types.TextDocumentEdit(identifier, edits)])
        answer = await self._server.workspace_apply_edit_async(types.ApplyWorkspaceEditParams(edit, self._title))
        return answer.applied

    def _text_edit(self, edit: Edit, now: Text) -> types.TextEdit | None:
        """The part of an edit that changes something, in the document as it is now."""
        span = self._span(edit)
        old, new = self._text.source[slice(*span)], edit.replacement.decode()
        if old == new:
            return None
        offset = self._carry(span)[0]
        start, end = trim(old, new)
        return types.TextEdit(now.range((offset + start, offset + end)), new[start : len(new) - len(old) + end])


def _find_document(server: LanguageServer, arguments: FillArguments) -> SyncedDocument:
    client = server.client_capabilities.workspace
    edits = client.workspace_edit if client and client.apply_edit else None
    if edits is None or not edits.document_changes:
        raise FillFailed("Midfill: this editor does not take versioned edits (workspace/applyEdit, documentChanges).")
    assert isinstance(server.workspace, SyncedWorkspace)
    document = server.workspace.open_document(arguments.uri)
    if document is None:
        raise FillFailed("Midfill: the document is not open; open it in the editor first.")
    if document.desynced:
        raise FillFailed("Midfill: the server lost track of this document; close it and open it again.")
    if arguments.version not in (None, document.version):
        raise JsonRpcContentModified("Midfill: the document changed since this fill was offered; ask again.")
    return document


def _describe(filled: Filled, version: int | None) -> dict[str, Any]:
    """The command's result, as JSON. `tokens` are ranges of `text` in code points."""
    fills = [
        {"text": fill.text, "tokens": fill.tokens, "confidence": fill.confidence, "name": fill.hole.name}
        for fill in filled.fills
    ]
    stats = filled.stats
    return {
        "version": version,
        "model": filled.model,
        "holes": fills,
        "newErrors": filled.new_errors,
        "stats": {"steps": stats.steps, "forwards": stats.forwards, "tokens": stats.tokens, "ms": stats.ms},
    }
