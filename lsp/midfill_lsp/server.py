"""Connects the requests and notifications of the client with the modules beside it, which do the work."""

import asyncio
import logging
import traceback
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from lsprotocol import types
from pygls.exceptions import JsonRpcException

from midfill_infill.errors import MidfillError
from midfill_lsp import messages
from midfill_lsp.edits import FillFailed, find_document
from midfill_lsp.engine import Filler
from midfill_lsp.filling import explain
from midfill_lsp.fills import Fills
from midfill_lsp.ghost import to_items
from midfill_lsp.host import Host
from midfill_lsp.messages import FillParams, parse
from midfill_lsp.next_edits import NextEdits
from midfill_lsp.offers import KINDS, REPEAT, UNTIL_KIND, is_wanted, offer_actions, offer_lenses, offer_repeats
from midfill_lsp.until import guess
from midfill_lsp.views import find_around, take_view

logger = logging.getLogger(__name__)

SECTION = "midfill"
MAX_FILLS = 8


class MidfillServer(Host):
    """A server whose fills come from `filler`, by default from the user's engines."""

    def __init__(self, filler: Filler | None = None) -> None:
        super().__init__()
        self.fills = Fills(self, filler or self.engines.fill, ThreadPoolExecutor(MAX_FILLS, thread_name_prefix="fill"))
        self.next_edits = NextEdits(self, self.fills)
        self._register()

    def _register(self) -> None:
        actions = types.CodeActionOptions(code_action_kinds=[*KINDS.values(), UNTIL_KIND, REPEAT])
        self.feature(types.TEXT_DOCUMENT_CODE_ACTION, actions)(_list_actions)
        self.feature(types.TEXT_DOCUMENT_CODE_LENS, types.CodeLensOptions())(_list_lenses)
        self.feature(types.TEXT_DOCUMENT_INLINE_COMPLETION, types.InlineCompletionOptions())(_suggest)
        self.feature(types.INITIALIZE)(_take_options)
        self.feature(types.INITIALIZED)(_ask_for_settings)
        self.feature(types.WORKSPACE_DID_CHANGE_CONFIGURATION)(_change_settings)
        self.feature(types.WORKSPACE_DID_CHANGE_WORKSPACE_FOLDERS)(_ask_for_settings)
        self.feature(types.TEXT_DOCUMENT_DID_OPEN)(_follow_changes)
        self.feature(types.TEXT_DOCUMENT_DID_CHANGE)(_follow_changes)
        self.feature(types.NOTEBOOK_DOCUMENT_DID_OPEN)(_follow_cells)
        self.feature(types.NOTEBOOK_DOCUMENT_DID_CHANGE)(_follow_changed_cells)
        self.feature(types.TEXT_DOCUMENT_DID_CLOSE)(_forget_document)
        self.feature(types.NOTEBOOK_DOCUMENT_DID_CLOSE)(_forget_cells)
        self.feature("midfill/fill")(_fill)
        self.feature("midfill/holes")(_list_holes)
        self.feature("midfill/tests")(_guess_tests)
        self.feature("midfill/status")(_tell_status)
        for name in messages.COMMANDS:
            self.command(name)(_run_command)


async def _list_actions(ls: MidfillServer, params: types.CodeActionParams) -> list[types.CodeAction | types.Command]:
    synced = ls.workspace.open_document(params.text_document.uri)
    if synced is None or synced.desynced or ls.fills.find_exclusion(synced.uri):
        return []
    view, version = take_view(ls.workspace, synced), synced.version
    actions = await asyncio.to_thread(offer_actions, view, version, params)
    if is_wanted(REPEAT, params.context.only):
        is_asked = params.context.trigger_kind is not types.CodeActionTriggerKind.Automatic
        repeats = await ls.next_edits.find(synced) if is_asked else ls.next_edits.recall(synced)
        actions += offer_repeats(synced, params.range.start, [repeat.span for repeat in repeats or ()])
    client = ls.client_capabilities.text_document
    capabilities = client.code_action if client else None
    if capabilities is None or capabilities.code_action_literal_support is None:
        return [action.command for action in actions if action.command]
    known_tags = capabilities.tag_support.value_set if capabilities.tag_support else ()
    for action in actions:
        action.tags = [types.CodeActionTag.LlmGenerated] if types.CodeActionTag.LlmGenerated in known_tags else None
    return [*actions]


def _list_lenses(ls: MidfillServer, params: types.CodeLensParams) -> list[types.CodeLens]:
    document = ls.workspace.get_text_document(params.text_document.uri)
    return [lens for fill in ls.fills.pending_in(document) for lens in offer_lenses(fill)]


async def _suggest(ls: MidfillServer, params: types.InlineCompletionParams) -> types.InlineCompletionList | None:
    """Makes ghost text. Shows no error, because that would disturb typing; the status shows it."""
    invoked = params.context.trigger_kind is types.InlineCompletionTriggerKind.Invoked
    settings = ls.settings_of(params.text_document.uri)
    if params.context.selected_completion_info:
        return None
    try:
        document = find_document(ls, params.text_document.uri, None)
        if not invoked and (ls.fills.is_snoozing or not settings.suggests_in(document.language_id)):
            return None
        offset = document.text.offset(params.position)
        suggestions = await ls.fills.suggest(document, offset, settings, invoked=invoked)
    except (MidfillError, JsonRpcException):
        return None
    return to_items(document, offset, suggestions)


async def _fill(ls: MidfillServer, params: Any) -> dict[str, Any]:
    """Handles `midfill/fill`. Its errors are only answered, because a plugin shows them itself."""
    asked = parse(FillParams, params, "midfill/fill")
    return await _answer(ls, lambda: ls.fills.fill(asked.model_copy(update={"apply": bool(asked.apply)})), show=False)


async def _run_command(ls: MidfillServer, params: types.ExecuteCommandParams) -> dict[str, Any]:
    """Runs the method of Fills or NextEdits with the command's name. A MidfillError is also shown, because clients may
    not show the errors of commands.
    """
    kind, _ = messages.COMMANDS[params.command]
    asked = messages.parse_arguments(kind, params.arguments, params.command)
    if params.work_done_token is not None:
        asked = asked.model_copy(update={"work_done_token": params.work_done_token})
    if isinstance(asked, FillParams):
        asked = asked.model_copy(update={"apply": asked.apply is not False})
    name = params.command.rpartition(".")[2]
    run = getattr(ls.next_edits if name == "repeat" else ls.fills, name)
    return await _answer(ls, lambda: run(asked), show=True)


async def _answer(ls: MidfillServer, run: Callable[[], Awaitable[messages.Payload]], *, show: bool) -> dict[str, Any]:
    """The answer as JSON. Turns MidfillError, which it may also show, and unexpected errors into FillFailed."""
    try:
        return (await run()).to_json()
    except MidfillError as error:
        sentence = explain(error)
        if show:
            ls.show(sentence)
        raise FillFailed(sentence, data={"shown": True} if show else None) from error
    except JsonRpcException:
        raise
    except Exception as error:
        # The error's text may contain code, so only type and place are logged.
        logger.error("a fill failed: %s\n%s", type(error).__name__, "".join(traceback.format_tb(error.__traceback__)))
        raise FillFailed("Midfill: a fault of its own; please report it with the server's log.") from error


async def _list_holes(ls: MidfillServer, params: Any) -> dict[str, Any]:
    asked = parse(messages.HolesParams, params, "midfill/holes")
    document = find_document(ls, asked.uri, asked.version)
    view, asked_range = take_view(ls.workspace, document), asked.range.to_lsp()
    spans = [] if ls.fills.find_exclusion(asked.uri) else await asyncio.to_thread(find_around, view, asked_range)
    return messages.Holes(ranges=tuple(messages.Range.of(view.text.range(span)) for span in spans)).to_json()


async def _guess_tests(ls: MidfillServer, params: Any) -> dict[str, Any]:
    asked = parse(messages.TestsParams, params, "midfill/tests")
    return messages.Tests(commands=tuple(await asyncio.to_thread(guess, ls.workspace, asked.uri))).to_json()


def _tell_status(ls: MidfillServer, params: Any) -> dict[str, Any]:
    return ls.fills.status(parse(messages.StatusParams, params, "midfill/status").uri).to_json()


def _take_options(ls: MidfillServer, params: types.InitializeParams) -> None:
    ls.use_settings(params.initialization_options, at_start=True)


async def _ask_for_settings(ls: MidfillServer, params: object) -> None:
    """Requests the settings of the whole workspace and of each of its folders."""
    workspace = ls.client_capabilities.workspace
    if not (workspace and workspace.configuration):
        return
    folders = [folder.uri for folder in ls.workspace.folders.values()]
    items = [types.ConfigurationItem(scope_uri=folder or None, section=SECTION) for folder in ["", *folders]]
    values = await ls.workspace_configuration_async(types.ConfigurationParams(items))
    ls.keep_folders(folders)
    for folder, value in zip(["", *folders], values, strict=False):
        if value is not None:
            ls.use_settings(value, folder)


async def _change_settings(ls: MidfillServer, params: types.DidChangeConfigurationParams) -> None:
    """Some editors send the new settings in the message, others only announce that they changed."""
    if isinstance(params.settings, Mapping) and SECTION in params.settings:
        ls.keep_folders([])
        ls.use_settings(params.settings[SECTION])
    else:
        await _ask_for_settings(ls, params)


def _follow_changes(
    ls: MidfillServer, params: types.DidOpenTextDocumentParams | types.DidChangeTextDocumentParams
) -> None:
    _follow(ls, params.text_document.uri)


def _follow(ls: MidfillServer, uri: str) -> None:
    ls.fills.follow(uri)
    ls.next_edits.follow(uri)


def _follow_cells(ls: MidfillServer, params: types.DidOpenNotebookDocumentParams) -> None:
    for cell in params.cell_text_documents:
        _follow(ls, cell.uri)


def _follow_changed_cells(ls: MidfillServer, params: types.DidChangeNotebookDocumentParams) -> None:
    cells = params.change.cells
    if cells is None:
        return
    if cells.structure:
        for closed in cells.structure.did_close or ():
            _forget(ls, closed.uri)
        for opened in cells.structure.did_open or ():
            _follow(ls, opened.uri)
    for change in cells.text_content or ():
        _follow(ls, change.document.uri)


def _forget_document(ls: MidfillServer, params: types.DidCloseTextDocumentParams) -> None:
    _forget(ls, params.text_document.uri)


def _forget_cells(ls: MidfillServer, params: types.DidCloseNotebookDocumentParams) -> None:
    for cell in params.cell_text_documents:
        _forget(ls, cell.uri)


def _forget(ls: MidfillServer, uri: str) -> None:
    ls.fills.forget(uri)
    ls.next_edits.forget(uri)
