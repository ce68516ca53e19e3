"""The transcripts of README, docs/jobs and docs/python.md, typed as they stand, answer as the pages say.

`...` stands for any text in a line, and alone for any lines. Skipped where the default model is not on the machine.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.ports import find_free_port, serving

ROOT = Path(__file__).parent.parent.parent
JOBS = sorted((ROOT / "docs/jobs").glob("*.md"))
PAGES = [ROOT / "README.md", *JOBS]
MODELS = Path(os.environ.get("MIDFILL_TEST_MODELS", os.devnull))
FOLDERS = {"tests": "shop", "hints": "shop", "engine": "shop"}  # of examples/; others are filled in a copy of all of it
QUICK = ("README", "body", "engine")  # the others take half a minute each
SANDBOXED = ("tests", "hints")
MARK = "---- the end of a command"

pytestmark = pytest.mark.skipif(not list(MODELS.glob("smollm2/*.gguf")), reason="the default model is not here")


def read_transcript(page: Path) -> list[tuple[str, str]]:
    """The commands of a page, each with what it prints."""
    blocks = re.findall(r"```console\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
    found = list[tuple[str, str]]()
    for line in "".join(blocks).splitlines():
        if line.startswith("$ "):
            found.append((line[2:], ""))
        else:
            found[-1] = found[-1][0], found[-1][1] + line + "\n"
    return found


def pattern_of(said: str) -> re.Pattern[str]:
    lines = [
        r"(?:[^\n]*\n)*?" if line == "..." else re.escape(line).replace(r"\.\.\.", r"[^\n]*") + "\n"
        for line in said.splitlines()
    ]
    return re.compile("".join(lines))


@contextmanager
def a_home(tmp_path: Path) -> Iterator[dict[str, str]]:
    """An empty home with the default model; engines that were started there are ended."""
    data, run = tmp_path / "data/midfill", tmp_path / "run"
    data.mkdir(parents=True)
    run.mkdir(mode=0o700)
    (data / "models").symlink_to(MODELS)
    own = {name: str(tmp_path / name.lower()) for name in ("HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME")}
    paths = os.pathsep.join(str(ROOT / name) for name in ("lsp", "infill", "engine", "kernels"))
    environment = os.environ | own | {"XDG_DATA_HOME": str(tmp_path / "data"), "XDG_RUNTIME_DIR": str(run)}
    environment |= {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONPATH": paths}
    environment |= {"COLUMNS": "200", "TERM": "dumb", "GIT_CONFIG_GLOBAL": os.devnull}
    environment.pop("MIDFILL_CONFIG", None)
    try:
        yield environment
    finally:
        subprocess.run(["midfill", "engine", "stop"], env=environment, capture_output=True, timeout=60)


class Ollama(BaseHTTPRequestHandler):
    """Ollama's API, by a model that knows one body."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        shown = {"capabilities": ["completion", "insert"], "model_info": {"qwen2.context_length": 32768}}
        body = {"response": "    return round(price * (1 - rate))\n", "done": True, "done_reason": "stop"}
        data = json.dumps({"/api/show": shown, "/api/generate": body}[self.path]).encode() + b"\n"
        self.send_response(200)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@contextmanager
def an_ollama() -> Iterator[str]:
    """The address of a running one."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Ollama)
    with serving(server):
        yield f"127.0.0.1:{server.server_port}"


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[] if page.stem in QUICK else [pytest.mark.soak, pytest.mark.timeout(600)])
        for page in PAGES
    ],
    ids=lambda page: page.stem,
)
def test_a_page_tells_what_happens(page: Path, tmp_path: Path) -> None:
    if page.stem in SANDBOXED and shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not here")
    folder = tmp_path / "work"
    inside = folder / "examples" if page.stem == "README" else folder
    shutil.copytree(ROOT / "examples" / FOLDERS.get(page.stem, ""), inside)
    transcript = read_transcript(page)
    script = "".join(f"{command}\necho '{MARK}' $?\n" for command, _ in transcript) + "kill $(jobs -p) 2>/dev/null\n"
    git = "git init -q && git config user.name a && git config user.email a@b && git add -A && git commit -qm begin\n"
    with a_home(tmp_path) as environment, an_ollama() as address:
        done = subprocess.run(
            ["bash", "-c", git + script.replace("8427", str(find_free_port()))],
            cwd=folder,
            env=environment | {"OLLAMA_HOST": address},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=300,
        )
    parts = done.stdout.decode().split(MARK)
    assert len(parts) > len(transcript), done.stdout.decode()
    for (command, said), printed in zip(transcript, parts, strict=False):
        own = re.sub(r"\A \d+\n", "", printed)
        own += "\n" * bool(own and not own.endswith("\n"))
        assert pattern_of(said).fullmatch(own), f"$ {command}\n{own}"


def test_python_answers_as_its_page_says(tmp_path: Path) -> None:
    blocks = re.findall(r"```pycon\n(.*?)```", (ROOT / "docs/python.md").read_text("utf-8"), re.DOTALL)
    (tmp_path / "page.txt").write_text("\n".join(blocks))
    folder = tmp_path / "work"
    shutil.copytree(ROOT / "examples", folder)
    command = [sys.executable, "-m", "doctest", "-v", "-o", "ELLIPSIS", str(tmp_path / "page.txt")]
    with a_home(tmp_path) as environment:
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and f"{len(re.findall('>>> ', ''.join(blocks)))} passed" in done.stdout, done.stdout


def test_all_five_job_pages_have_transcripts() -> None:
    assert len(JOBS) == 5 and all(read_transcript(page) for page in PAGES)
