"""An editor that asks a language server for a fill and makes the edits of its answer. Knows LSP, no hole."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from midfill_infill.errors import MidfillError

Position = dict[str, int]


class Editor:
    """One server over a pipe; it ends with `close`."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        command = (sys.executable, "-m", "midfill_lsp", "--log-level", "error")
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, env=environment)
        self._last_id = 0
        self._ask("initialize", {"processId": os.getpid(), "capabilities": {"experimental": {"midfill": True}}})
        self._send(method="initialized", params={})

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    def fill(self, path: Path, language: str, text: str, what: str, spans: list[tuple[int, int]]) -> str:
        """The text of an open file after a fill of ranges, in characters. Raises MidfillError."""
        uri = path.absolute().as_uri()
        document = {"uri": uri, "languageId": language, "version": 1, "text": text}
        self._send(method="textDocument/didOpen", params={"textDocument": document})
        ranges = [{"start": _position(text, start), "end": _position(text, end)} for start, end in spans]
        params = {"uri": uri, "what": what, "ranges": ranges, "version": 1, "large": True}
        try:
            answer = self._ask("midfill/fill", params)
        finally:
            self._send(method="textDocument/didClose", params={"textDocument": {"uri": uri}})
        for hole in sorted(answer["holes"], key=lambda hole: -_offset(text, hole["range"]["start"])):
            start, end = (_offset(text, hole["range"][name]) for name in ("start", "end"))
            text = text[:start] + hole["text"] + text[end:]
        return text

    def _send(self, **message: Any) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        assert self._process.stdin is not None
        self._process.stdin.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        self._process.stdin.flush()

    def _ask(self, method: str, params: object) -> Any:
        """The result of a request; every request of the server's is answered with null."""
        self._last_id += 1
        self._send(id=self._last_id, method=method, params=params)
        while True:
            message = self._read()
            if "method" in message and "id" in message:
                is_list = message["method"] == "workspace/configuration"
                self._send(id=message["id"], result=[None] * len(message["params"]["items"]) if is_list else None)
            elif "method" not in message and message.get("id") == self._last_id:
                if "error" in message:
                    raise MidfillError("engine_error", message["error"]["message"])
                return message["result"]

    def _read(self) -> Any:
        assert self._process.stdout is not None
        size = 0
        while (line := self._process.stdout.readline().strip()) or not size:
            if not line and self._process.poll() is not None:
                raise MidfillError("engine_died", "the language server ended")
            if line.lower().startswith(b"content-length:"):
                size = int(line.partition(b":")[2])
        return json.loads(self._process.stdout.read(size))


def _position(text: str, offset: int) -> Position:
    """Line and column, in units of UTF-16 as editors count them."""
    line = text.count("\n", 0, offset)
    start = text.rfind("\n", 0, offset) + 1
    return {"line": line, "character": len(text[start:offset].encode("utf-16-le")) // 2}


def _offset(text: str, position: Position) -> int:
    start = 0
    for _ in range(position["line"]):
        start = text.index("\n", start) + 1
    units = text[start:].encode("utf-16-le")[: 2 * position["character"]]
    return start + len(units.decode("utf-16-le"))
