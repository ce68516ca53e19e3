"""An editor that asks a language server for a fill and makes the edits of its answer. Knows LSP, no hole."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.pipe import Pipe

Position = dict[str, int]


class Editor:
    """One server over a pipe; it ends with `close`."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        command = (sys.executable, "-m", "midfill_lsp", "--log-level", "error")
        self._pipe = Pipe(command, environment, subprocess.DEVNULL)
        self._ask("initialize", {"processId": os.getpid(), "capabilities": {"experimental": {"midfill": True}}})
        self._pipe.send(method="initialized", params={})

    def close(self) -> None:
        self._pipe.process.kill()
        self._pipe.process.communicate()

    def _ask(self, method: str, params: object) -> Any:
        """The result of a request. Raises MidfillError."""
        *_, (_, answer) = self._pipe.ask(method, params)
        return answer["result"]

    def fill(self, path: Path, language: str, text: str, what: str, spans: list[tuple[int, int]]) -> str:
        """The text of an open file after a fill of ranges, in characters. Raises MidfillError."""
        uri = path.absolute().as_uri()
        document = {"uri": uri, "languageId": language, "version": 1, "text": text}
        self._pipe.send(method="textDocument/didOpen", params={"textDocument": document})
        ranges = [{"start": _position(text, start), "end": _position(text, end)} for start, end in spans]
        params = {"uri": uri, "what": what, "ranges": ranges, "version": 1, "large": True}
        try:
            answer = self._ask("midfill/fill", params)
        finally:
            self._pipe.send(method="textDocument/didClose", params={"textDocument": {"uri": uri}})
        for hole in sorted(answer["holes"], key=lambda hole: -_offset(text, hole["range"]["start"])):
            start, end = (_offset(text, hole["range"][name]) for name in ("start", "end"))
            text = text[:start] + hole["text"] + text[end:]
        return text


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
