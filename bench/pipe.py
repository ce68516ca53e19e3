"""A language server over a pipe, and messages in and out of it with their times. Knows frames and ids, no method."""

import json
import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from midfill_infill.errors import MidfillError


class Pipe:
    """One server; `process` is to be ended by who opened it."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], stderr: int | None = None) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=stderr, env=environment)
        self._buffer = b""
        self._last_id = 0

    def send(self, **message: Any) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        assert self.process.stdin is not None
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        self.process.stdin.flush()

    def ask(self, method: str, params: object) -> Iterator[tuple[float, dict[str, Any]]]:
        """All messages up to the answer, the last, with their times by `time.monotonic`. Raises MidfillError."""
        self._last_id += 1
        own = self._last_id
        self.send(id=own, method=method, params=params)
        while True:
            at_s, message = self._read()
            is_answer = "method" not in message and message.get("id") == own
            if is_answer and "error" in message:
                raise MidfillError("engine_error", message["error"]["message"])
            if "method" in message and "id" in message:
                self.send(id=message["id"], result=grant(message))
            yield at_s, message
            if is_answer:
                return

    def _read(self) -> tuple[float, dict[str, Any]]:
        assert self.process.stdout is not None
        while True:
            head, blank, rest = self._buffer.partition(b"\r\n\r\n")
            size = int(head.split(b"Content-Length:")[1].split()[0]) if blank else 0
            if blank and len(rest) >= size:
                self._buffer = rest[size:]
                return time.monotonic(), json.loads(rest[:size])
            data = os.read(self.process.stdout.fileno(), 1 << 16)
            if not data:
                raise MidfillError("engine_died", "the language server ended")
            self._buffer += data


def grant(request: dict[str, Any]) -> Any:
    """The answer to a request of the server's: edits are made, and no setting is set."""
    if request["method"] == "workspace/applyEdit":
        return {"applied": True}
    if request["method"] == "workspace/configuration":
        return [None] * len(request["params"]["items"])
    return None
