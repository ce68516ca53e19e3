"""Lets the client apply one versioned edit, and tries again if its document was newer. Knows no fill."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from lsprotocol import types
from pygls.exceptions import JsonRpcContentModified, JsonRpcException

from midfill_lsp.host import Host
from midfill_lsp.text import Span, SyncedDocument, cuts_line_end, trim

MAX_APPLY_TRIES = 3
LOST = "Midfill: the server lost track of this document; close it and open it again."
REPORT_WAIT_S = 2.0  # after an edit was applied, for an editor that reports its changes later
MOVED_WAIT_S = 0.2  # after a refused edit, for the change that the client may have made before

Replacement = tuple[Span, str]


class FillFailed(JsonRpcException):
    """LSP's error RequestFailed. Editors show its message, one sentence, as it is."""

    CODE = types.LSPErrorCodes.RequestFailed.value


def find_document(server: Host, uri: str, version: int | None) -> SyncedDocument:
    """The open document. Raises FillFailed if it cannot be filled, JsonRpcContentModified if it has another version."""
    document = server.workspace.open_document(uri)
    if document is None:
        raise FillFailed("Midfill: the document is not open; open it in the editor first.")
    if document.desynced:
        raise FillFailed(LOST)
    if version not in (None, document.version):
        raise JsonRpcContentModified("Midfill: the document changed since this fill was offered; ask again.")
    return document


def check_unlost(server: Host, document: SyncedDocument) -> None:
    """Raises JsonRpcContentModified if the document was closed meanwhile, or the server lost track of it."""
    if not _is_open(server, document):
        raise JsonRpcContentModified("Midfill: the document was closed meanwhile; nothing was changed.")
    if document.desynced:
        raise JsonRpcContentModified(LOST)


def check_takes_edits(server: Host) -> None:
    """Raises FillFailed if the client takes no versioned edits (documentChanges). A client that lists resource
    operations takes them too, because these come only in documentChanges; Neovim lists nothing else.
    """
    client = server.client_capabilities.workspace
    edits = client.workspace_edit if client and client.apply_edit else None
    if edits is None or not (edits.document_changes or edits.resource_operations):
        raise FillFailed("Midfill: this editor does not take versioned edits (workspace/applyEdit, documentChanges).")


async def apply_edits(
    server: Host,
    document: SyncedDocument,
    find_edits: Callable[[], Sequence[Replacement]],
    title: str,
    *,
    confirm: bool = False,
) -> tuple[int | None, str]:
    """Sends the edit for the current document. Returns the version that was edited and the resulting text. `find_edits`
    returns the replacements in the current text, in order. With `confirm` the user confirms each replacement. A cancel
    that comes while the client takes the edit is too late; the task's `cancelling` tells of it. Raises FillFailed or
    JsonRpcContentModified if nothing was changed.
    """
    for _ in range(MAX_APPLY_TRIES):
        version, text = document.version, document.text
        check_unlost(server, document)
        changes = [(span, new) for span, new in find_edits() if text.source[slice(*span)] != new]
        if not changes:
            return version, text.source
        edits = [_text_edit(document, change, confirm) for change in changes]
        identifier = types.OptionalVersionedTextDocumentIdentifier(document.uri, version)
        edit = types.WorkspaceEdit(document_changes=[types.TextDocumentEdit(identifier, edits)])
        if confirm:
            edit.change_annotations = {"fill": types.ChangeAnnotation(title, needs_confirmation=True)}
        asked = asyncio.ensure_future(_send(server, document, types.ApplyWorkspaceEditParams(edit, title)))
        try:
            answer = await asyncio.shield(asked)
        except asyncio.CancelledError:
            answer = await asked
            if not answer.applied:
                raise
        if answer.applied:
            return version, _replace(text.source, changes)
        if confirm:
            raise JsonRpcContentModified("Midfill: the edit was not confirmed; nothing was changed.")
        await asyncio.sleep(MOVED_WAIT_S)
        if document.version == version:
            raise FillFailed(f"Midfill: {answer.failure_reason or 'the editor did not take the edit; try again'}.")
    raise JsonRpcContentModified("Midfill: the document changes too fast; nothing was changed.")


def _is_open(server: Host, document: SyncedDocument) -> bool:
    return server.workspace.open_document(document.uri) is document


async def _send(
    server: Host, document: SyncedDocument, params: types.ApplyWorkspaceEditParams
) -> types.ApplyWorkspaceEditResult:
    """The client's answer: for an edit that it applied, once it has reported the change, which may come later."""
    text = document.text
    document.num_edits += 1
    try:
        answer = await server.workspace_apply_edit_async(params)
        with suppress(TimeoutError):
            async with asyncio.timeout(REPORT_WAIT_S):
                while answer.applied and document.text is text and _is_open(server, document):
                    await asyncio.sleep(0.005)
        return answer
    finally:
        document.num_edits -= 1


def _text_edit(
    document: SyncedDocument, change: Replacement, confirm: bool
) -> types.TextEdit | types.AnnotatedTextEdit:
    """The part of a replacement that differs, or the whole replacement if the user is to `confirm` it."""
    (start, end), new = _keep_line_ends(document.source, change)
    first, last = (0, end - start) if confirm else trim(document.source[start:end], new)
    range = document.text.range((start + first, start + last))
    part = new[first : len(new) - (end - start) + last]
    return types.AnnotatedTextEdit("fill", range, part) if confirm else types.TextEdit(range, part)


def _keep_line_ends(source: str, change: Replacement) -> Replacement:
    r"""The change, extended to both halves of a `\r\n` at its ends: no LSP position lies between them."""
    (start, end), new = change
    if cuts_line_end(source, start):
        start, new = start - 1, "\r" + new
    if cuts_line_end(source, end):
        end, new = end + 1, new + "\n"
    return (start, end), new


def _replace(source: str, changes: Sequence[Replacement]) -> str:
    """The text after all changes, which are in order."""
    parts, position = [], 0
    for (start, end), new in changes:
        parts += [source[position:start], new]
        position = end
    return "".join([*parts, source[position:]])
