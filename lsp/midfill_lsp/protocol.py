"""Moves messages between the client's pipe and their handlers, and survives invalid messages. Knows no fill."""

import asyncio
import json
import logging
import os
import re
import threading
from collections.abc import Generator
from typing import Any

import attrs
from lsprotocol import types
from pygls.exceptions import JsonRpcException, JsonRpcInvalidParams
from pygls.io_ import StdoutWriter
from pygls.lsp.server import LanguageServer
from pygls.protocol import LanguageServerProtocol, lsp_method

from midfill_lsp.frames import BadFrame, FrameParser
from midfill_lsp.text import SyncedWorkspace

logger = logging.getLogger(__name__)

PARENT_POLL_S = 1.0
CHUNK_BYTES = 64 * 1024
OWN_METHODS = "midfill/"
_URI = re.compile(r'"uri": ("(?:[^"\\]|\\.)*")')


@attrs.define
class RawRequest:
    """A request for one of Midfill's own methods; its parameters stay JSON for the handler to parse."""

    id: int | str
    method: str
    params: Any
    jsonrpc: str


class MidfillProtocol(LanguageServerProtocol):
    """pygls' protocol with our documents, in which every request is answered, however malformed."""

    client_pid: int | None = None
    """The client's process id; None if no such process was seen at the start, as for a client in another container."""

    @lsp_method(types.INITIALIZE)
    def lsp_initialize(self, params: types.InitializeParams) -> Generator[Any, Any, types.InitializeResult]:
        result = yield from super().lsp_initialize(params)
        if result.capabilities.execute_command_provider:
            result.capabilities.execute_command_provider.work_done_progress = True
        if params.process_id is not None and _is_alive(params.process_id):
            self.client_pid = params.process_id
        encoding = result.capabilities.position_encoding
        self._workspace = SyncedWorkspace(
            self.workspace.root_uri, types.TextDocumentSyncKind.Incremental, params.workspace_folders, encoding
        )
        return result

    @lsp_method(types.WORKSPACE_EXECUTE_COMMAND)
    async def lsp_workspace__execute_command(self, params: types.ExecuteCommandParams) -> Any:  # type: ignore[override]
        """Runs a command as a coroutine: pygls' generator loses the progress token, and ignores `$/cancelRequest`."""
        handler = self.fm.commands.get(params.command)
        if handler is None:
            known = ", ".join(self.fm.commands)
            raise JsonRpcInvalidParams(f"The command {params.command} is not known; known are {known}.")
        return await handler(params)

    def _execute_handler(
        self, msg_id: int | str, handler: Any, callback: Any, args: Any = None, kwargs: Any = None
    ) -> None:
        """Forgets the future of a handler at its end: pygls keeps those of notifications, 1.4 to 1.9 KiB per change."""
        super()._execute_handler(msg_id, handler, callback, args, kwargs)
        future = self._request_futures.get(msg_id)
        if future is not None:
            # The callback runs at once if the future is done.
            future.add_done_callback(lambda _: self._request_futures.pop(msg_id, None))

    def notify(self, method: str, params: Any = None) -> None:
        """Sends dicts as they are: pygls' converter takes 0.2 ms per preview and changes nothing."""
        if isinstance(params, dict):
            self._send_data({"jsonrpc": self.VERSION, "method": method, "params": params})
        else:
            super().notify(method, params)

    def structure_message(self, data: dict[str, Any]) -> Any:
        """Turns a JSON object into a message: a RawRequest for Midfill's own methods."""
        if "id" in data and str(data.get("method", "")).startswith(OWN_METHODS):
            return RawRequest(data["id"], data["method"], data["params"], data["jsonrpc"])
        return super().structure_message(data)

    def receive(self, message: Any) -> None:
        """Handles one decoded message or bad frame. Raises SystemExit on `exit`, otherwise only BrokenPipeError."""
        if isinstance(message, BadFrame):
            self._refuse(None, types.ErrorCodes.ParseError, f"Not a message: {message.reason}.")
        elif (problem := self._find_problem(message)) is not None:
            self._refuse_message(message, *problem)
        else:
            try:
                whole = {"params": None, **message} if "method" in message else message
                self.handle_message(self.structure_message(whole))
            except BrokenPipeError:
                raise
            except JsonRpcException as error:
                reason = f"{error.message}: the parameters do not fit."
                self._refuse_message(message, types.ErrorCodes.InvalidParams, reason)
            except Exception as error:  # noqa: BLE001 - whatever one message does, the server lives
                logger.error("a message could not be handled: %s", type(error).__name__)

    def _handle_response(
        self, msg_id: int | str, result: Any | None = None, error: types.ResponseError | None = None
    ) -> None:
        """Ignores the response if nobody waits for it any more; pygls would raise."""
        future = self._request_futures.get(msg_id)
        if future is not None and future.done():
            del self._request_futures[msg_id]
            self._result_types.pop(msg_id, None)
        else:
            super()._handle_response(msg_id, result, error)

    def _find_problem(self, message: Any) -> tuple[types.ErrorCodes, str] | None:
        """The error code and the reason why a message is invalid at this time; None if it is valid."""
        invalid = types.ErrorCodes.InvalidRequest
        if not isinstance(message, dict) or message.get("jsonrpc") != self.VERSION:
            return invalid, "A message is one JSON-RPC 2.0 object."
        if "id" in message and (isinstance(message["id"], bool) or not isinstance(message["id"], int | str)):
            return invalid, "An id is a whole number or a string."
        if "method" not in message and "id" not in message:
            return invalid, "A message without an id has a method."
        if "method" not in message:
            return None
        method = message["method"]
        if not isinstance(method, str):
            return invalid, "A method is a string."
        if self._shutdown and method != types.EXIT:
            return invalid, "The server is shutting down."
        if self._workspace is None and method not in (types.INITIALIZE, types.EXIT):
            return types.ErrorCodes.ServerNotInitialized, "The first request is initialize."
        if self._workspace is not None and method == types.INITIALIZE:
            return invalid, "The server is initialized already."
        return None

    def _refuse_message(self, message: Any, code: types.ErrorCodes, reason: str) -> None:
        """Handles an invalid message: answers a request, fails the request of a response, only logs a notification."""
        msg_id = message.get("id") if isinstance(message, dict) else None
        if not isinstance(message, dict) or isinstance(msg_id, bool) or not isinstance(msg_id, int | str | None):
            self._refuse(None, code, reason)
        elif "method" not in message and msg_id is not None:
            self._handle_response(msg_id, error=types.ResponseError(code=code, message=reason))
        elif "id" in message or "method" not in message:
            self._refuse(msg_id, code, reason)
        else:
            logger.warning("ignored a notification: %s", reason)
            self._lose_track(message)

    def _lose_track(self, message: dict[str, Any]) -> None:
        """Marks the documents that a refused change names as out of sync."""
        changes = (types.TEXT_DOCUMENT_DID_CHANGE, types.NOTEBOOK_DOCUMENT_DID_CHANGE)
        if message["method"] not in changes or not isinstance(self._workspace, SyncedWorkspace):
            return
        for uri in _URI.findall(json.dumps(message)):
            document = self._workspace.open_document(json.loads(uri))
            if document is not None:
                document.lose_track("it was refused")

    def _refuse(self, msg_id: int | str | None, code: types.ErrorCodes, reason: str) -> None:
        logger.warning("refused a message: %s", reason)
        error = {"code": code.value, "message": reason}
        self._send_data({"jsonrpc": self.VERSION, "id": msg_id, "error": error})


async def serve(server: LanguageServer, stdin_fd: int) -> int:
    """Handles messages until the client leaves. Returns the exit code; `exit` raises SystemExit."""
    assert isinstance(server.protocol, MidfillProtocol)
    chunks: asyncio.Queue[bytes] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    threading.Thread(target=_pump, args=(stdin_fd, loop, chunks), daemon=True).start()
    watcher = loop.create_task(_watch_client(server.protocol, chunks))
    parser = FrameParser()
    while chunk := await chunks.get():
        for message in parser.feed(chunk):
            server.protocol.receive(message)
            # Lets the handler of a request start first: it must see the documents as they were when the request came.
            await asyncio.sleep(0)
    watcher.cancel()
    return 1


def _pump(stdin_fd: int, loop: asyncio.AbstractEventLoop, chunks: asyncio.Queue[bytes]) -> None:
    """Reads chunks up to b"" at the end of the input or after an error. It runs in a daemon thread, because this works
    for pipes, files and consoles on every system and never delays the exit.
    """
    while True:
        try:
            chunk = os.read(stdin_fd, CHUNK_BYTES)
        except OSError:  # such as a terminal that is gone
            chunk = b""
        if loop.is_closed():
            return
        loop.call_soon_threadsafe(chunks.put_nowait, chunk)
        if not chunk:
            return


async def _watch_client(protocol: MidfillProtocol, chunks: asyncio.Queue[bytes]) -> None:
    """Ends the input when the client's process is gone."""
    while True:
        await asyncio.sleep(PARENT_POLL_S)
        if protocol.client_pid is not None and not _is_alive(protocol.client_pid):
            logger.warning("the client is gone")
            chunks.put_nowait(b"")


def _is_alive(pid: int) -> bool:
    if os.name != "posix":
        return True  # os.kill would end the process on Windows; the closed pipe is enough
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


class StdoutPipe(StdoutWriter):
    """The pipe to the client. If the client has closed it, the first write ends the process at once."""

    def write(self, data: bytes) -> None:
        try:
            super().write(data)
        except OSError:
            logging.shutdown()
            os._exit(1)


def run_stdio(server: LanguageServer) -> int:
    """Serves over stdin and stdout. Returns the exit code: 0 after shutdown and exit, 1 if the client left without."""
    # Output of print and of child processes goes to stderr, because it must not mix with messages.
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    server.protocol.set_writer(StdoutPipe(out))
    try:
        # Not asyncio.run, which waits for worker threads at its end, such as one whose disk does not answer.
        return asyncio.new_event_loop().run_until_complete(serve(server, 0))
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 1
    except (BrokenPipeError, KeyboardInterrupt):
        return 1
