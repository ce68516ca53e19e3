"""What the server adds to a fill: `python lsp/bench/latency.py [FILLS]`, with a scripted engine of 20 ms a step.

Prints p50, p90 and p99 in ms of: the editor's request to the first preview, and the engine's answer to the edit
arriving at the editor, both without the engine's own time. The engine is a process of its own, spoken to over its
unix socket, and says when it sent what.
"""

import asyncio
import json
import os
import signal
import sys
import tempfile
import time
from pathlib import Path

from lsprotocol import types

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
from tests.lsp.editor import Editor  # noqa: E402 - the tests are no package that is installed

STEP_S = 0.02
NUM_STEPS = 3
SOURCE = "import os\n\n\n" + "def other(value):\n    return value + 1\n\n\n" * 60 + "def add(a, b):\n    ...\n"


async def measure(num_fills: int, folder: Path) -> tuple[list[float], list[float], float]:
    plan = {"num_steps": NUM_STEPS, "step_s": STEP_S}
    environment = {
        "MIDFILL_RUNTIME_DIR": str(folder), "FAKE_ENGINE_PLAN": json.dumps(plan),
        "TEST_ENGINE": str(ROOT / "tests/cli/fake_engine.py"),
    }  # fmt: skip
    editor = await Editor().start((sys.executable, str(ROOT / "tests/lsp/fake_engine_server.py")), **environment)
    firsts, lasts = [], []
    before_ms = 0.0
    try:
        for number in range(num_fills + 3):
            first_ms, last_ms = await fill_once(editor, f"untitled:{number}")
            if number == 2:
                before_ms = cpu_time_ms(editor)
            if number >= 3:  # the first ones start the engine and fill caches
                firsts.append(first_ms)
                lasts.append(last_ms)
        cpu_ms = (cpu_time_ms(editor) - before_ms) / num_fills
    finally:
        await editor.kill()
        for lock in folder.glob("*.lock"):
            os.kill(int(lock.read_text()), signal.SIGKILL)
    return firsts, lasts, cpu_ms


def cpu_time_ms(editor: Editor) -> float:
    """What the server's process used so far, of all its threads."""
    assert editor.client._server is not None
    fields = Path(f"/proc/{editor.client._server.pid}/stat").read_text().rpartition(")")[2].split()
    return 1000 * (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def fill_once(editor: Editor, uri: str) -> tuple[float, float]:
    """Milliseconds from the request to the first preview, and from the engine's last step to the edit's arrival.

    The engine sends its first state at once, and its answer `NUM_STEPS + 1` pauses of `STEP_S` later.
    """
    buffer = editor.open(SOURCE, uri=uri)
    previews: list[float] = []
    edits: list[float] = []
    editor.seen.previews = _Clock(previews)
    editor.before_apply[:] = [lambda: edits.append(time.perf_counter())]
    place = {"line": SOURCE.count("\n") - 1, "character": 5}
    started_s = time.perf_counter()
    asked = {"uri": uri, "what": "body", "ranges": [{"start": place, "end": place}], "previewToken": uri, "apply": True}
    await editor.ask("midfill/fill", asked)
    engine_s = (NUM_STEPS + 1) * STEP_S
    closed = types.DidCloseTextDocumentParams(types.TextDocumentIdentifier(buffer.uri))
    editor.client.text_document_did_close(closed)
    return 1000 * (previews[0] - started_s), 1000 * (edits[0] - previews[0] - engine_s)


class _Clock(list[object]):
    def __init__(self, times: list[float]) -> None:
        super().__init__()
        self._times = times

    def append(self, item: object) -> None:
        self._times.append(time.perf_counter())


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def main() -> None:
    num_fills = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o700)
        firsts, lasts, cpu_ms = asyncio.run(measure(num_fills, Path(name)))
    num_lines, load = SOURCE.count("\n"), os.getloadavg()[0]
    print(f"{num_fills} fills of a file of {num_lines} lines, ms added by the server; load {load:.1f}")
    print(f"{'CPU time of the server':28}  a fill {cpu_ms:6.1f}")
    for name, values in (("request to first preview", firsts), ("engine's answer to edit", lasts)):
        print(
            f"{name:28}"
            + "".join(f"  p{100 * share:.0f} {percentile(values, share):6.1f}" for share in (0.5, 0.9, 0.99))
        )


if __name__ == "__main__":
    main()
