"""Latency that the language server adds to a fill: `python -m bench editor_latency [FILLS] [--out FILE]`.

Prints p50, p90 and p99 in ms of two paths through the server: from the editor's request to the first preview, minus the
engine's time from the request's first byte to its first step; and from the engine's answer to the edit. The editor is a
pipe, the engine a scripted process behind its unix socket, with 20 ms per step; both read one clock. Files are on disk
in a git repository, four more are open, and a key is typed before every fill.
"""

import argparse
import json
import os
import platform
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.pipe import Pipe

ROOT = Path(__file__).parents[1]
STEP_S = 0.02
NUM_STEPS = 3
NUM_WARM = 10
REST_S = 0.2
SIZES = {"250 lines": 60, "2,000 lines": 500, "36,000 lines": 9000}
"""Functions of four lines in the file; the other files have 500 at most."""


def open_pipe(folder: Path) -> Pipe:
    """The server, with the scripted engine as the one that it starts."""
    environment = {
        **os.environ,
        "MIDFILL_RUNTIME_DIR": str(folder / "runtime"),
        "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)]),
        "FAKE_ENGINE_PLAN": json.dumps({"num_steps": NUM_STEPS, "step_s": STEP_S}),
        "TEST_ENGINE": str(Path(__file__).with_name("timed_engine.py")),
        "TIMED_ENGINE_LOG": str(folder / "engine.log"),
    }
    command = (sys.executable, str(ROOT / "tests/lsp/fake_engine_server.py"), "--log-level", "error")
    return Pipe(command, environment)


def cpu_time_ms(process: int) -> float:
    """CPU time of a process so far, all threads together."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return 1000 * (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(num_fills: int, num_functions: int, folder: Path) -> dict[str, Any]:
    (folder / "runtime").mkdir(mode=0o700)
    (folder / ".git").mkdir()
    (folder / ".gitignore").write_text("*.log\nbuild/\n")
    editor = open_pipe(folder)
    try:
        return _measure(editor, num_fills, num_functions, folder)
    finally:
        editor.process.kill()
        editor.process.wait()
        for lock in (folder / "runtime").glob("*.lock"):
            os.kill(int(lock.read_text()), signal.SIGKILL)


def _measure(editor: Pipe, num_fills: int, num_functions: int, folder: Path) -> dict[str, Any]:
    workspace = {"applyEdit": True, "workspaceEdit": {"documentChanges": True}}
    capabilities = {"workspace": workspace, "window": {"workDoneProgress": True}, "experimental": {"midfill": True}}
    list(editor.ask("initialize", {"processId": os.getpid(), "rootUri": folder.as_uri(), "capabilities": capabilities}))
    editor.send(method="initialized", params={})
    files = []
    for number in range(5):
        size = min(num_functions, 500) if number else num_functions
        files.append(Document(editor, folder / f"file{number}.py", size))
    for _ in range(NUM_WARM):
        files[0].fill()
    began_ms = cpu_time_ms(editor.process.pid)
    fills = [files[0].fill() for _ in range(num_fills)]
    cpu_ms = (cpu_time_ms(editor.process.pid) - began_ms) / num_fills
    log = read_log(folder / "engine.log", NUM_WARM + num_fills)[NUM_WARM:]
    first_ms = []
    last_ms = []
    for (sent_s, previewed_s, edited_s), engine in zip(fills, map(json.loads, log), strict=True):
        first_ms.append(1000 * (previewed_s - sent_s - (engine["step"] - engine["got"])))
        last_ms.append(1000 * (edited_s - engine["done"]))
    times = {"request to first preview": summary(first_ms), "engine's answer to edit": summary(last_ms)}
    return {"cpu_ms_a_fill": round(cpu_ms, 2), "ms": times}


def read_log(path: Path, num_fills: int) -> list[str]:
    """The engine's lines; it writes the last one while the editor has its edit already."""
    until_s = time.monotonic() + 5
    while True:
        lines = path.read_text().splitlines()
        if len(lines) >= num_fills or time.monotonic() > until_s:
            return lines
        time.sleep(0.01)


class Document:
    """One open file, whose last function is filled again and again."""

    def __init__(self, editor: Pipe, path: Path, num_functions: int) -> None:
        self._editor = editor
        others = "".join(f"def other_{n}(value):\n    return value + {n}\n\n\n" for n in range(num_functions))
        self._source = f"import os\n\n\n{others}def add(a, b):\n    ...\n"
        path.write_text(self._source)
        self._uri, self._version = path.as_uri(), 1
        opened = {"uri": self._uri, "languageId": "python", "version": 1, "text": self._source}
        editor.send(method="textDocument/didOpen", params={"textDocument": opened})

    def change(self, start: dict[str, int], end: dict[str, int], text: str) -> None:
        self._version += 1
        identifier = {"uri": self._uri, "version": self._version}
        changes = [{"range": {"start": start, "end": end}, "text": text}]
        self._editor.send(
            method="textDocument/didChange", params={"textDocument": identifier, "contentChanges": changes}
        )

    def fill(self) -> tuple[float, float, float]:
        """Times of the request, the first preview and the edit, which is undone afterwards."""
        self.change({"line": 1, "character": 0}, {"line": 1, "character": 0}, "#")
        self.change({"line": 1, "character": 0}, {"line": 1, "character": 1}, "")
        time.sleep(REST_S)
        place = {"line": self._source.count("\n") - 1, "character": 5}
        asked = {"uri": self._uri, "what": "body", "ranges": [{"start": place, "end": place}], "apply": True}
        previewed_s, edited_s, edit = 0.0, 0.0, {}
        sent_s = time.monotonic()
        for at_s, message in self._editor.ask("midfill/fill", {**asked, "previewToken": 1}):
            if message.get("method") == "midfill/preview" and not previewed_s:
                previewed_s = at_s
            if message.get("method") == "workspace/applyEdit":
                edited_s, (edit,) = at_s, message["params"]["edit"]["documentChanges"][0]["edits"]
                self.change(edit["range"]["start"], edit["range"]["end"], edit["newText"])
        self.change(edit["range"]["start"], {**edit["range"]["start"], "character": 4 + len("return a + b")}, "...")
        return sent_s, previewed_s, edited_s


def summary(values: list[float]) -> dict[str, float]:
    ordered = sorted(values)
    picked = {}
    for share in (50, 90, 99):
        index = min(len(ordered) - 1, share * len(ordered) // 100)
        picked[f"p{share}"] = round(ordered[index], 2)
    return picked


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("fills", type=int, nargs="?", default=200)
    parser.add_argument("--out", type=Path, help="where the numbers go as JSON")
    options = parser.parse_args()
    result: dict[str, Any] = {
        "fills": options.fills, "step_ms": 1000 * STEP_S, "steps": NUM_STEPS, "python": platform.python_version(),
        "cpus": os.cpu_count(), "load_at_start": round(os.getloadavg()[0], 2), "files": {},
    }  # fmt: skip
    for name, num_functions in SIZES.items():
        with tempfile.TemporaryDirectory() as folder:
            measured = measure(options.fills, num_functions, Path(folder))
        result["files"][name] = measured
        print(f"a file of {name}: {measured['cpu_ms_a_fill']} ms of CPU a fill")
        for way, numbers in measured["ms"].items():
            print(f"  {way:26}" + "".join(f"  {key} {value:6.2f}" for key, value in numbers.items()))
    if options.out:
        options.out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
