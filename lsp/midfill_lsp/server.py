"""The server: which requests it answers and how they are wired. The work is in the modules beside it."""

import asyncio
import logging
import traceback
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from lsprotocol import types
from pygls.exceptions import JsonRpcException
from pygls.lsp.server import LanguageServer

from midfill_infill.errors import MidfillError
from midfill_lsp.engine import Filler, fill_with_engine
from midfill_lsp.filling import FillFailed, FillJob, explain
from midfill_lsp.protocol import MidfillProtocol
from midfill_lsp.requests import FILL_COMMAND, KINDS, offer_actions, parse_arguments, read_document
from midfill_lsp.settings import Settings, parse_settings
from midfill_lsp.text import SyncedWorkspace

logger = logging.getLogger(__name__)

SECTION = "midfill"
MAX_FILLS = 8


class MidfillServer(LanguageServer):
    """A server whose fills come from `filler`. Edits arrive incrementally: they say where the text moved."""

    def __init__(self, filler: Filler = fill_with_engine) -> None:
        # pygls has incremental sync as its default; whole texts are taken as well.
        super().__init__("midfill", _find_version(), protocol_cls=MidfillProtocol)
        self.filler = filler
        self.settings = Settings()
        self._options: object = None
        self.executor = ThreadPoolExecutor(MAX_FILLS, thread_name_prefix="fill")
        self._register()

    def _register(self) -> None:
        actions = types.CodeActionOptions(code_action_kinds=list(KINDS.values()))
        self.feature(types.TEXT_DOCUMENT_CODE_ACTION, actions)(_list_actions)
        self.feature(types.INITIALIZE)(_take_options)
        self.feature(types.INITIALIZED)(_ask_for_settings)
        self.feature(types.WORKSPACE_DID_CHANGE_CONFIGURATION)(_change_settings)
        self.command(FILL_COMMAND)(_fill)

    def show(self, sentence: str, kind: types.MessageType = types.MessageType.Error) -> None:
        self.window_show_message(types.ShowMessageParams(type=kind, message=sentence))

    def use_settings(self, values: object, *, at_start: bool = False) -> None:
        """Takes the editor's settings over those of its start; says what is wrong and uses the defaults there."""
        if at_start:
            self._options = values
        elif isinstance(values, Mapping) and isinstance(self._options, Mapping):
            values = {**self._options, **values}
        self.settings, problems = parse_settings(values)
        for problem in problems:
            self.show(problem, types.MessageType.Warning)

    def report_server_error(self, error: Exception, source: type[Exception]) -> None:
        """Only logged, and without the error's words, which may hold code: a popup would help nobody."""
        logger.error("a message could not be handled: %s", type(error).__name__)


async def _list_actions(ls: MidfillServer, params: types.CodeActionParams) -> list[types.CodeAction | types.Command]:
    assert isinstance(ls.workspace, SyncedWorkspace)
    synced = ls.workspace.open_document(params.text_document.uri)
    if synced is None or synced.desynced:
        return []
    try:
        document = read_document(synced.uri, synced.language_id, synced.source)
    except MidfillError:  # no text that could be filled
        return []
    actions = await asyncio.to_thread(offer_actions, document, synced.text, synced.version, params)
    client = ls.client_capabilities.text_document
    capabilities = client.code_action if client else None
    if capabilities is None or capabilities.code_action_literal_support is None:
        return [action.command for action in actions if action.command]
    tags = capabilities.tag_support.value_set if capabilities.tag_support else ()
    for action in actions:
        action.tags = [tag for tag in (types.CodeActionTag.LlmGenerated,) if tag in tags] or None
    return [*actions]


async def _fill(ls: MidfillServer, params: types.ExecuteCommandParams) -> dict[str, Any]:
    try:
        job = FillJob(ls, parse_arguments(params.arguments), ls.filler, ls.settings)
        return await job.run(ls.executor, params.work_done_token)
    except MidfillError as error:
        ls.show(explain(error))
        raise FillFailed(explain(error)) from error
    except JsonRpcException:
        raise
    except Exception as error:
        # The error's words may hold code, so only its kind and place are logged.
        logger.error("a fill failed: %s\n%s", type(error).__name__, "".join(traceback.format_tb(error.__traceback__)))
        raise FillFailed("Midfill: a fault of its own; please report it with the server's log.") from error


def _take_options(ls: MidfillServer, params: types.InitializeParams) -> None:
    ls.use_settings(params.initialization_options, at_start=True)


async def _ask_for_settings(ls: MidfillServer, params: types.InitializedParams) -> None:
    workspace = ls.client_capabilities.workspace
    if not (workspace and workspace.configuration):
        return
    items = [types.ConfigurationItem(section=SECTION)]
    values = await ls.workspace_configuration_async(types.ConfigurationParams(items))
    if values and values[0] is not None:
        ls.use_settings(values[0])


async def _change_settings(ls: MidfillServer, params: types.DidChangeConfigurationParams) -> None:
    """The new settings are in the message with some editors, with others it only says to ask again."""
    if isinstance(params.settings, Mapping) and SECTION in params.settings:
        ls.use_settings(params.settings[SECTION])
    else:
        await _ask_for_settings(ls, types.InitializedParams())


def _find_version() -> str:
    try:
        return version("midfill")
    except PackageNotFoundError:  # run from a source tree that is not installed
        return "0+source"
