"""Offers what all parts of the server need: settings, engines, messages to the user. Handles no request."""

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from lsprotocol import types
from pygls.lsp.server import LanguageServer

from midfill_infill.engines.installed import distribution_version
from midfill_lsp.engine import Engines
from midfill_lsp.messages import Payload
from midfill_lsp.protocol import MidfillProtocol
from midfill_lsp.settings import Settings, parse_settings
from midfill_lsp.text import SyncedWorkspace
from midfill_lsp.views import find_innermost

logger = logging.getLogger(__name__)

CELLS = types.NotebookDocumentFilterWithCells(cells=[types.NotebookCellLanguage(language="*")], notebook="*")


class Host(LanguageServer):
    """The base of the server. Documents are synced incrementally, which shows where text moved."""

    def __init__(self) -> None:
        # pygls defaults to incremental sync; full texts are accepted too.
        notebooks = types.NotebookDocumentSyncOptions(notebook_selector=[CELLS])
        version = distribution_version()
        super().__init__("midfill", version, protocol_cls=MidfillProtocol, notebook_document_sync=notebooks)
        self.engines = Engines()
        self._last_sent: dict[tuple[str, str], dict[str, Any]] = {}  # notifications, by method and URI
        self._settings: dict[str, Settings] = {"": Settings()}  # by URI of a folder; "" is the whole workspace
        self._options: object = None  # the settings at the start, which later ones complete

    @property
    def workspace(self) -> SyncedWorkspace:
        workspace = super().workspace
        assert isinstance(workspace, SyncedWorkspace)
        return workspace

    def show(self, sentence: str, kind: types.MessageType = types.MessageType.Error) -> None:
        self.window_show_message(types.ShowMessageParams(type=kind, message=sentence))

    async def ask(
        self, sentence: str, *answers: str, kind: types.MessageType = types.MessageType.Warning
    ) -> str | None:
        """Shows a question with one button for each answer. Returns the answer, None if the user closed it."""
        actions = [types.MessageActionItem(answer) for answer in answers]
        question = types.ShowMessageRequestParams(kind, sentence, actions)
        answer = await self.window_show_message_request_async(question)
        return answer.title if answer else None

    @property
    def speaks_midfill(self) -> bool:
        """True if the client supports our own notifications."""
        experimental = self.client_capabilities.experimental
        is_in_dict = isinstance(experimental, dict) and experimental.get("midfill")
        return bool(getattr(experimental, "midfill", None) or is_in_dict)

    def tell(self, method: str, message: Payload, uri: str = "", *, is_empty: bool = False) -> None:
        """Sends one of our own notifications to a client that supports them, unless it repeats the last one of this
        method and URI. An empty message is sent only after one that was not empty.
        """
        if not self.speaks_midfill:
            return
        content, last = message.to_json(), self._last_sent.pop((method, uri), None)
        if not is_empty:
            self._last_sent[method, uri] = content
        if content != last and not (is_empty and last is None):
            self.protocol.notify(method, content)

    def settings_of(self, uri: str) -> Settings:
        """Settings of the innermost workspace folder that contains the document, or the notebook of a cell."""
        return _choose_settings(self._settings, uri)

    def freeze_settings(self) -> Callable[[str], Settings]:
        """A thread-safe snapshot of `settings_of`."""
        return partial(_choose_settings, dict(self._settings))

    def use_settings(self, values: object, folder: str = "", *, at_start: bool = False) -> None:
        """Stores the editor's settings of the workspace or of one of its folders. Invalid settings get their defaults,
        and the user is told of those of the workspace. Settings `at_start` hold where later ones do not name them.
        """
        completed = values
        if at_start:
            self._options = values
        elif isinstance(values, Mapping | None) and isinstance(self._options, Mapping):
            completed = {**self._options, **(values or {})}
        self._settings[folder], problems = parse_settings(completed)
        if folder:
            return
        for problem in problems:
            self.show(problem, types.MessageType.Warning)

    def keep_folders(self, folders: list[str]) -> None:
        """Forgets the settings of all folders but these."""
        self._settings = {folder: self._settings[folder] for folder in ["", *folders] if folder in self._settings}

    def report_server_error(self, error: Exception, source: type[Exception]) -> None:
        """Logs only the error's type, because its text may contain code; a popup would not help."""
        logger.error("a message could not be handled: %s", type(error).__name__)


def _choose_settings(settings: Mapping[str, Settings], uri: str) -> Settings:
    return settings[find_innermost(settings, uri)]
