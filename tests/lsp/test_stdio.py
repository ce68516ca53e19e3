"""The server's process and malformed input: it answers the next request, or ends at once with an error."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from tests.lsp.editor import REAL, TIMEOUT_S, server_environment
from tests.lsp.frames import MALFORMED, frame

from midfill_lsp.protocol import _pump

INITIALIZE = {"processId": None, "rootUri": None, "capabilities": {}}
# Messages that are JSON, but not what the protocol allows, and the error code of the answer.
WRONG = [
    (b"[]", -32600), (b"7", -32600), (b'"x"', -32600), (b"{}", -32600), (b'{"jsonrpc": "2.0"}', -32600),
    (b'{"jsonrpc": "1.0", "id": 1, "method": "shutdown"}', -32600), (b'{"id": 1, "method": "shutdown"}', -32600),
    (b'{"jsonrpc": "2.0", "id": true, "method": "shutdown"}', -32600),
    (b'{"jsonrpc": "2.0", "id": [1], "method": "shutdown"}', -32600),
    (b'{"jsonrpc": "2.0", "id": 1, "method": 5}', -32600),
    (b'{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"capabilities": {}}}', -32600),
    (b'{"jsonrpc": "2.0", "id": 1, "method": "no/such"}', -32601),
    (b'{"jsonrpc": "2.0", "id": 1, "method": "textDocument/codeAction"}', -32602),
    (b'{"jsonrpc": "2.0", "id": 1, "method": "textDocument/codeAction", "params": 5}', -32602),
    (b'{"jsonrpc": "2.0", "id": 1, "method": "textDocument/codeAction", "params": {"textDocument": 5}}', -32602),
    (b'{"jsonrpc": "2.0", "id": 1, "method": "workspace/executeCommand", "params": {"command": "x"}}', -32602),
]  # fmt: skip
# Notifications and responses that nobody asked for: no answer, no harm.
IGNORED = [
    b'{"jsonrpc": "2.0", "method": "no/such"}', b'{"jsonrpc": "2.0", "method": "textDocument/didOpen"}',
    b'{"jsonrpc": "2.0", "method": "textDocument/didOpen", "params": []}',
    b'{"jsonrpc": "2.0", "method": "textDocument/didChange", "params": {"textDocument": {"uri": "a:b", "version": 1},'
    b' "contentChanges": [{"text": ""}]}}',
    b'{"jsonrpc": "2.0", "method": "textDocument/didClose", "params": {"textDocument": {"uri": "a:b"}}}',
    b'{"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": 99}}',
    b'{"jsonrpc": "2.0", "method": "$/cancelRequest"}',
    b'{"jsonrpc": "2.0", "method": "window/workDoneProgress/cancel", "params": {"token": "x"}}',
    b'{"jsonrpc": "2.0", "id": "stray", "result": 1}',
    b'{"jsonrpc": "2.0", "id": "stray", "error": {"code": 1, "message": ""}}',
    b'{"jsonrpc": "2.0", "id": "stray", "error": 5}',
]  # fmt: skip


class Wire:
    """A server process, spoken to in bytes."""

    def __init__(self, *, initialize: bool = True, command: tuple[str, ...] = REAL) -> None:
        self.process = subprocess.Popen(
            command, env=server_environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self.ids = count(1000)
        if initialize:
            assert "result" in self.ask("initialize", INITIALIZE)

    def send(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def read(self) -> Any:
        assert self.process.stdout is not None
        length = 0
        while (line := self.process.stdout.readline()) != b"\r\n":
            assert line, "the server ended"
            name, _, value = line.partition(b":")
            length = int(value) if name == b"Content-Length" else length
        return json.loads(self.process.stdout.read(length))

    def ask(self, method: str, params: object = None) -> Any:
        """Sends a request; its answer, whatever comes before."""
        number = next(self.ids)
        self.send(frame(json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).encode()))
        while (message := self.read()).get("id") != number:
            pass
        return message

    def close_input(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()


@pytest.fixture(scope="module")
def wire() -> Iterator[Wire]:
    wire = Wire()
    with wire.process:
        yield wire
        wire.process.kill()


def test_hundreds_of_malformed_frames(wire: Wire) -> None:
    """Three rounds over every kind, alone and in pairs; each time a request behind it is answered."""
    kinds = [bad for bad in MALFORMED.values() if len(bad) < 10_000]
    pairs = [first + second for first, second in zip(kinds, kinds[1:] + kinds[:1], strict=True)]
    sent = 0
    for data in [*kinds, *pairs, *reversed(kinds), *reversed(pairs), *kinds * 4, *map(frame, IGNORED)]:
        wire.send(data)
        assert wire.ask("no/such")["error"]["code"] == -32601
        sent += 1
    assert sent >= 200


@pytest.mark.parametrize("body, code", WRONG)
def test_wrong_messages_are_answered(wire: Wire, body: bytes, code: int) -> None:
    wire.send(frame(body))
    answer = wire.read()
    message = json.loads(body)
    asked = message.get("id") if isinstance(message, dict) and type(message.get("id")) is int else None
    assert (answer["error"]["code"], answer["id"]) == (code, asked)
    assert "error" in wire.ask("no/such")


def test_requests_before_initialize_and_after_shutdown_are_refused() -> None:
    wire = Wire(initialize=False)
    with wire.process:
        wire.send(frame(IGNORED[3]))
        assert wire.ask("textDocument/codeAction", {})["error"]["code"] == -32002
        wire.ask("initialize", INITIALIZE)
        assert wire.ask("shutdown")["result"] is None
        assert wire.ask("shutdown")["error"]["code"] == -32600
        wire.send(frame(b'{"jsonrpc": "2.0", "method": "exit"}'))
        assert wire.process.wait(TIMEOUT_S) == 0


@pytest.mark.parametrize("last", [b"", frame(b"{}")[:-1]])
def test_the_end_of_input_ends_the_server(last: bytes) -> None:
    wire = Wire()
    with wire.process:
        wire.send(last)
        wire.close_input()
        assert wire.process.wait(TIMEOUT_S) == 1


async def test_an_input_that_cannot_be_read_has_ended(tmp_path: Path) -> None:
    folder, chunks = os.open(tmp_path, os.O_RDONLY), asyncio.Queue[bytes]()
    _pump(folder, asyncio.get_running_loop(), chunks)
    os.close(folder)
    assert await asyncio.wait_for(chunks.get(), TIMEOUT_S) == b""


def test_exit_without_shutdown_is_an_error() -> None:
    wire = Wire()
    with wire.process:
        wire.send(frame(b'{"jsonrpc": "2.0", "method": "exit"}'))
        assert wire.process.wait(TIMEOUT_S) == 1


def test_exit_waits_for_no_worker_thread() -> None:
    program = "import time, midfill_lsp.server as server; from midfill_lsp.__main__ import main; "
    program += "server.guess = lambda *_: time.sleep(600); main()"  # as on a disk that does not answer
    wire = Wire(command=(sys.executable, "-c", program))
    with wire.process:
        wire.send(frame(b'{"jsonrpc": "2.0", "id": 1, "method": "midfill/tests", "params": {"uri": "file:///t.py"}}'))
        assert wire.ask("shutdown")["result"] is None
        wire.send(frame(b'{"jsonrpc": "2.0", "method": "exit"}'))
        try:
            assert wire.process.wait(10) == 0
        finally:
            wire.process.kill()


def test_the_server_does_not_load_torch() -> None:
    program = "import sys, midfill_lsp.server; assert not {'torch', 'transformers', 'numpy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", program], env=server_environment(), check=True, timeout=60)


def test_the_server_starts_without_what_only_fills_and_other_commands_need() -> None:
    tell = "print([name for name in sys.argv[1:] if name in sys.modules])"
    heavy = ["http.client", "httpx", "rich", "click", "typer", "torch", "midfill_engine.serving"]
    code = f"import sys, midfill_lsp.server; {tell}"
    command = [sys.executable, "-c", code, *heavy]
    done = subprocess.run(command, env=server_environment(), capture_output=True, text=True, timeout=60)
    assert done.stdout == "[]\n", done.stderr
    code = f"import sys, midfill_infill.cli; {tell}"
    command = [sys.executable, "-c", code, *heavy, "pydantic"]
    done = subprocess.run(command, env=server_environment(), capture_output=True, text=True, timeout=60)
    assert done.stdout == "[]\n", done.stderr


def test_a_client_that_stops_reading_and_leaves_takes_the_server_along() -> None:
    wire = Wire()
    assert wire.process.stdin and wire.process.stdout
    unknown = frame(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "x" * 300}).encode())
    wire.send(unknown * 2000)  # more than a pipe holds of answers: the server waits for its client
    wire.process.stdout.close()
    wire.process.stdin.close()
    assert wire.process.wait(TIMEOUT_S) == 1
