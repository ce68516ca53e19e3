"""An editor for the tests: speaks to a real server over stdio and refuses edits for another version than its own."""

import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from lsprotocol import types
from pygls.lsp.client import LanguageClient

from midfill_lsp.text import Text

Start = Callable[..., Awaitable["Editor"]]

ROOT = Path(__file__).parents[2]
ROOMS = ("lsp", "infill", "engine", "kernels")
SCRIPTED = (sys.executable, str(Path(__file__).with_name("scripted_server.py")))
REAL = (sys.executable, "-m", "midfill_lsp")
TIMEOUT_S = 120
SOURCE = "# 😀 ünï\nimport os\n\n\ndef first(a):\n    '''Doc.'''\n    ...\n\n\ndef second(b):\n    return b + 1\n"
BODY = "return b + 1"


def server_environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(str(ROOT / room) for room in ROOMS), **more}


@dataclass
class Buffer:
    """An open document, as the editor has it."""

    uri: str
    text: Text
    version: int = 1


@dataclass
class Seen:
    """What the server sent."""

    edits: list[types.ApplyWorkspaceEditParams] = field(default_factory=list)
    messages: list[types.ShowMessageParams] = field(default_factory=list)
    questions: list[types.ShowMessageRequestParams] = field(default_factory=list)
    progress: list[Any] = field(default_factory=list)
    previews: list[Any] = field(default_factory=list)
    status: list[Any] = field(default_factory=list)
    refreshes: int = 0
    pending: dict[str, list[Any]] = field(default_factory=dict)
    told: list[tuple[str, list[int]]] = field(default_factory=list)
    diagnostics: dict[str, list[types.Diagnostic]] = field(default_factory=dict)


class Editor:
    """Start it with `start`; `before_apply` may edit a buffer when an edit is under way.

    `answer_s` after an edit was made and told the server hears that it was taken. With `tell_s` it hears so first, and
    of the change so much later.
    """

    def __init__(self) -> None:
        self.client = LanguageClient("editor", "1")
        self.seen = Seen()
        self.buffers: dict[str, Buffer] = {}
        self.before_apply: list[Any] = []
        self.answer_s = 0.0
        self.tell_s = 0.0
        self.capabilities: types.ServerCapabilities
        self.configuration: object = None
        self.answer: str | None = None
        self.by_folder: dict[str, object] = {}
        # lsprotocol takes an action that carries a command for a bare command.
        self.client.protocol._converter.register_structure_hook(
            types.Command | types.CodeAction, self._structure_action
        )
        self.client.feature(types.WORKSPACE_APPLY_EDIT)(lambda params: self._apply(params))
        self.client.feature(types.WINDOW_SHOW_MESSAGE)(lambda params: self.seen.messages.append(params))
        self.client.feature(types.WINDOW_SHOW_MESSAGE_REQUEST)(lambda params: self._answer(params))
        self.client.feature(types.WINDOW_WORK_DONE_PROGRESS_CREATE)(lambda params: None)
        self.client.feature(types.PROGRESS)(lambda params: self.seen.progress.append(params.value))
        self.client.feature(types.WORKSPACE_CONFIGURATION)(lambda params: self._configure(params))
        self.client.feature("midfill/preview")(lambda params: self.seen.previews.append(params))
        self.client.feature("midfill/didChangePending")(lambda params: self._see_pending(params))
        self.client.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)(lambda params: self._see_diagnostics(params))
        self.client.feature("midfill/didChangeStatus")(lambda params: self.seen.status.append(params))
        self.client.feature(types.WORKSPACE_CODE_LENS_REFRESH)(lambda params: self._count_refresh())

    def _answer(self, params: types.ShowMessageRequestParams) -> types.MessageActionItem | None:
        self.seen.questions.append(params)
        return types.MessageActionItem(self.answer) if self.answer else None

    async def start(
        self, command: tuple[str, ...] = SCRIPTED, encodings: tuple[str, ...] = ("utf-16",), options: object = None,
        capabilities: types.ClientCapabilities | None = None, process_id: int | None = None,
        folders: tuple[str, ...] = (), **environment: str,
    ) -> "Editor":  # fmt: skip
        await self.client.start_io(*command, env=server_environment(**environment))
        capabilities = capabilities or describe_client(encodings)
        params = types.InitializeParams(capabilities, process_id=process_id or os.getpid())
        params.initialization_options = options
        params.workspace_folders = [types.WorkspaceFolder(uri, uri) for uri in folders]
        answer = await asyncio.wait_for(self.client.initialize_async(params), TIMEOUT_S)
        self.capabilities = answer.capabilities
        self.client.initialized(types.InitializedParams())
        return self

    async def stop(self) -> tuple[int | None, str]:
        """Leaves politely; the server's exit code and its log."""
        assert self.client._server is not None and self.client._server.stderr is not None
        await asyncio.wait_for(self.client.shutdown_async(None), TIMEOUT_S)
        self.client.exit(None)
        log = await asyncio.wait_for(self.client._server.stderr.read(), TIMEOUT_S)
        await asyncio.wait_for(self.client.stop(), TIMEOUT_S)
        return self.client._server.returncode, log.decode()

    async def kill(self) -> None:
        if self.client._server is not None:
            if self.client._server.returncode is None:
                self.client._server.kill()
            await asyncio.wait_for(self.client.stop(), TIMEOUT_S)
            self.client._server._transport.close()  # type: ignore[attr-defined]

    def reset(self) -> None:
        """Closes all documents, forgets what was seen and goes back to the default settings."""
        for uri in self.buffers:
            self.client.text_document_did_close(types.DidCloseTextDocumentParams(types.TextDocumentIdentifier(uri)))
        self.buffers.clear()
        self.before_apply.clear()
        self.answer_s = self.tell_s = 0.0
        self.answer = None
        self.seen = Seen()
        self.client.workspace_did_change_configuration(types.DidChangeConfigurationParams({"midfill": {}}))

    def open(self, source: str, language: str = "python", uri: str = "untitled:1") -> Buffer:
        encoding = self.capabilities.position_encoding
        text = Text(source, str(getattr(encoding, "value", encoding)))
        self.buffers[uri] = Buffer(uri, text)
        self.client.text_document_did_open(
            types.DidOpenTextDocumentParams(types.TextDocumentItem(uri, language, 1, source))
        )
        return self.buffers[uri]

    def edit(self, buffer: Buffer, start: int, end: int, new: str) -> None:
        """Replaces code points, here and in the server."""
        event = types.TextDocumentContentChangePartial(buffer.text.range((start, end)), new)
        buffer.version += 1
        buffer.text = Text(buffer.text.source[:start] + new + buffer.text.source[end:], buffer.text.encoding)
        identifier = types.VersionedTextDocumentIdentifier(buffer.version, buffer.uri)
        params = types.DidChangeTextDocumentParams(identifier, [event])
        tell = partial(self.client.text_document_did_change, params)
        asyncio.get_running_loop().call_later(self.tell_s, tell) if self.tell_s else tell()

    async def actions(self, buffer: Buffer, start: int, end: int | None = None, only: Any = None) -> dict[str, Any]:
        """The offered actions by the last word of their kind."""
        params = types.CodeActionParams(
            types.TextDocumentIdentifier(buffer.uri),
            buffer.text.range((start, start if end is None else end)),
            types.CodeActionContext([], only),
        )
        found = await asyncio.wait_for(self.client.text_document_code_action_async(params), TIMEOUT_S)
        return {
            str(action.kind).rpartition(".")[2]: action
            for action in found or ()
            if isinstance(action, types.CodeAction)
        }

    async def run(self, command: types.Command, token: str | None = None, msg_id: str | None = None) -> Any:
        params = types.ExecuteCommandParams(command.command, command.arguments, token)
        request = self.client.protocol.send_request_async(types.WORKSPACE_EXECUTE_COMMAND, params, msg_id)
        return await asyncio.wait_for(request, TIMEOUT_S)

    async def ask(self, method: str, params: object, msg_id: str | None = None) -> Any:
        return await asyncio.wait_for(self.client.protocol.send_request_async(method, params, msg_id), TIMEOUT_S)

    async def wait_for(self, condition: Callable[[], object]) -> None:
        """Returns when what the server sent makes it true."""
        async with asyncio.timeout(TIMEOUT_S):
            while not condition():
                await asyncio.sleep(0.005)

    async def settle(self) -> None:
        """Returns when the server has handled all that was sent so far."""
        await self.ask("midfill/status", {})

    async def wait_for_exclusion(self, uri: str) -> None:
        """Returns when the server has settings that leave the file out."""
        async with asyncio.timeout(TIMEOUT_S):
            while (await self.ask("midfill/status", {"uri": uri})).kind != "Inactive":
                await asyncio.sleep(0.005)

    async def do(self, name: str, msg_id: str | None = None, **argument: object) -> Any:
        """Runs one of the server's commands with one object."""
        return await self.run(types.Command("", f"midfill.{name}", arguments=[argument]), msg_id=msg_id)

    async def lenses(self, buffer: Buffer) -> list[str]:
        params = types.CodeLensParams(types.TextDocumentIdentifier(buffer.uri))
        found = await asyncio.wait_for(self.client.text_document_code_lens_async(params), TIMEOUT_S)
        return [lens.command.title for lens in found or () if lens.command]

    async def suggest(self, buffer: Buffer, offset: int, *, invoked: bool = False) -> list[str]:
        """The texts of the ghost text at a place, each with its range as the editor would replace it."""
        kind = types.InlineCompletionTriggerKind(1 if invoked else 2)
        params = types.InlineCompletionParams(
            types.InlineCompletionContext(kind), types.TextDocumentIdentifier(buffer.uri), buffer.text.position(offset)
        )
        request = self.client.text_document_inline_completion_async(params)
        answer = await asyncio.wait_for(request, TIMEOUT_S)
        items = getattr(answer, "items", answer) or ()
        assert all(buffer.text.span(item.range)[0] == offset for item in items)
        return [str(item.insert_text) for item in items]

    def _configure(self, params: types.ConfigurationParams) -> list[object]:
        return [self.by_folder.get(item.scope_uri or "", self.configuration) for item in params.items]

    def _see_pending(self, params: Any) -> None:
        self.seen.pending[params.uri] = list(params.fills)
        self.seen.told.append((params.uri, [fill.id for fill in params.fills]))

    def _see_diagnostics(self, params: types.PublishDiagnosticsParams) -> None:
        self.seen.diagnostics[params.uri] = list(params.diagnostics)

    def _count_refresh(self) -> None:
        self.seen.refreshes += 1

    def _structure_action(self, value: dict[str, Any], _: object) -> types.Command | types.CodeAction:
        kind = types.Command if isinstance(value.get("command"), str) else types.CodeAction
        return self.client.protocol._converter.structure(value, kind)

    def _apply(self, params: types.ApplyWorkspaceEditParams) -> types.ApplyWorkspaceEditResult:
        for hook in self.before_apply:
            hook()
        self.seen.edits.append(params)
        assert params.edit.changes is None and params.edit.document_changes is not None
        (change,) = params.edit.document_changes
        assert isinstance(change, types.TextDocumentEdit)
        buffer = self.buffers[change.text_document.uri]
        if change.text_document.version != buffer.version:
            return types.ApplyWorkspaceEditResult(applied=False)
        for edit in sorted(change.edits, key=lambda edit: buffer.text.offset(edit.range.start), reverse=True):
            assert isinstance(edit, types.TextEdit | types.AnnotatedTextEdit)
            self.edit(buffer, *buffer.text.span(edit.range), edit.new_text)
        time.sleep(self.answer_s)
        return types.ApplyWorkspaceEditResult(applied=True)


def describe_client(encodings: tuple[str, ...] = ("utf-16",)) -> types.ClientCapabilities:
    kinds = types.ClientCodeActionKindOptions(value_set=[types.CodeActionKind.RefactorRewrite])
    tags = types.CodeActionTagOptions([types.CodeActionTag.LlmGenerated])
    literals = types.ClientCodeActionLiteralOptions(code_action_kind=kinds)
    return types.ClientCapabilities(
        general=types.GeneralClientCapabilities(position_encodings=list(encodings)),
        window=types.WindowClientCapabilities(work_done_progress=True),
        workspace=types.WorkspaceClientCapabilities(
            apply_edit=True,
            workspace_edit=types.WorkspaceEditClientCapabilities(document_changes=True),
            configuration=True,
            code_lens=types.CodeLensWorkspaceClientCapabilities(refresh_support=True),
        ),
        experimental={"midfill": True},
        notebook_document=types.NotebookDocumentClientCapabilities(types.NotebookDocumentSyncClientCapabilities()),
        text_document=types.TextDocumentClientCapabilities(
            code_action=types.CodeActionClientCapabilities(code_action_literal_support=literals, tag_support=tags)
        ),
    )


def at(buffer: Buffer, text: str) -> int:
    return buffer.text.source.index(text)


def span(buffer: Buffer, start: int, end: int | None = None) -> dict[str, Any]:
    range = buffer.text.range((start, start if end is None else end))
    ends = {"start": range.start, "end": range.end}
    return {name: {"line": end.line, "character": end.character} for name, end in ends.items()}


def body(buffer: Buffer, inside: str = BODY, **more: object) -> dict[str, Any]:
    return {"uri": buffer.uri, "what": "body", "ranges": [span(buffer, at(buffer, inside))], **more}


def configure(editor: Editor, **values: object) -> None:
    editor.client.workspace_did_change_configuration(types.DidChangeConfigurationParams({"midfill": values}))
