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
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
STEP_S = 0.02
NUM_STEPS = 3
NUM_WARM = 10
REST_S = 0.2
SIZES = {"250 lines": 60, "2,000 lines": 500, "36,000 lines": 9000}
"""Functions of four lines in the file; the other files have 500 at most."""


class Pipe:
    """A scripted editor: one server, and messages in and out with their times."""

    def __init__(self, folder: Path) -> None:
        environment = {
            **os.environ, "MIDFILL_RUNTIME_DIR": str(folder / "runtime"), "PYTHONPATH": str(ROOT),
            "FAKE_ENGINE_PLAN": json.dumps({"num_steps": NUM_STEPS, "step_s": STEP_S}),
            "TEST_ENGINE": str(Path(__file__).with_name("timed_engine.py")),
            "TIMED_ENGINE_LOG": str(folder / "engine.log"),
        }  # fmt: skip
        command = (sys.executable, str(ROOT / "tests/lsp/fake_engine_server.py"), "--log-level", "error")
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
        self._buffer = b""
        self._last_id = 0

    def send(self, **message: Any) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        assert self.process.stdin is not None
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        self.process.stdin.flush()

    def ask(self, method: str, params: object) -> Iterator[tuple[float, dict[str, Any]]]:
        """Yields all messages up to the answer. Grants the server's own requests."""
        self._last_id += 1
        own = self._last_id
        self.send(id=own, method=method, params=params)
        while True:
            at_s, message = self._read()
            if "method" not in message and message.get("id") == own:
                assert "error" not in message, message
                yield at_s, message
                return
            if "id" in message and "method" in message:
                self.send(id=message["id"], result={"applied": True} if "applyEdit" in message["method"] else None)
            yield at_s, message

    def _read(self) -> tuple[float, dict[str, Any]]:
        assert self.process.stdout is not None
        while True:
            head, blank, rest = self._buffer.partition(b"\r\n\r\n")
            size = int(head.split(b"Content-Length:")[1].split()[0]) if blank else 0
            if blank and len(rest) >= size:
                at_s, self._buffer = time.monotonic(), rest[size:]
                return at_s, json.loads(rest[:size])
            self._buffer += os.read(self.process.stdout.fileno(), 1 << 16)

    def cpu_time_ms(self) -> float:
        """CPU time of the server's process so far, all threads together."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return 1000 * (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(num_fills: int, num_functions: int, folder: Path) -> dict[str, Any]:
    (folder / "runtime").mkdir(mode=0o700)
    (folder / ".git").mkdir()
    (folder / ".gitignore").write_text("*.log\nbuild/\n")
    editor = Pipe(folder)
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
    files = {
        number: Document(editor, folder / f"file{number}.py", min(num_functions, 500 if number else num_functions))
        for number in range(5)
    }
    requests, answers = [], []
    for number in range(num_fills + NUM_WARM):
        if number == NUM_WARM:
            cpu_ms = editor.cpu_time_ms()
        sent_s, previewed_s, edited_s = files[0].fill()
        if number >= NUM_WARM:
            requests.append((sent_s, previewed_s))
            answers.append(edited_s)
    cpu_ms = (editor.cpu_time_ms() - cpu_ms) / num_fills
    engine = [json.loads(line) for line in (folder / "engine.log").read_text().splitlines()][NUM_WARM:]
    firsts = [
        1000 * (seen - sent - (own["step"] - own["got"])) for (sent, seen), own in zip(requests, engine, strict=True)
    ]
    lasts = [1000 * (seen - own["done"]) for seen, own in zip(answers, engine, strict=True)]
    ways = {"request to first preview": firsts, "engine's answer to edit": lasts}
    return {"cpu_ms_a_fill": round(cpu_ms, 2), "ms": {name: summary(values) for name, values in ways.items()}}


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
    pick = {f"p{share}": ordered[min(len(ordered) - 1, share * len(ordered) // 100)] for share in (50, 90, 99)}
    return {name: round(value, 2) for name, value in pick.items()}


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
            result["files"][name] = measured = measure(options.fills, num_functions, Path(folder))
        print(f"a file of {name}: {measured['cpu_ms_a_fill']} ms of CPU a fill")
        for way, numbers in measured["ms"].items():
            print(f"  {way:26}" + "".join(f"  {key} {value:6.2f}" for key, value in numbers.items()))
    if options.out:
        options.out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
