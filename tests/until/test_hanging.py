"""A command that does not end on the stub: it fails there, which is told, and candidates are tried."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from click.testing import Result
from lsprotocol.types import TextDocumentItem
from tests.cli.fake_engine import read_report
from tests.refactor.trees import init_git
from tests.refactor.workers import use_workers
from tests.until.shops import PYTEST, is_running, needs_bubblewrap
from typer.testing import CliRunner

from midfill_engine.wire import InfillRequest
from midfill_infill.cli import build_app
from midfill_infill.errors import MidfillError
from midfill_infill.filling.fill import Options
from midfill_infill.sandbox.command import read_command
from midfill_infill.syntax.holes import find_stubs, hole_at_range
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Hole
from midfill_infill.until import lab as labs
from midfill_infill.until.lab import Lab, open_lab
from midfill_lsp.engine import Events
from midfill_lsp.settings import Settings
from midfill_lsp.text import SyncedDocument, SyncedWorkspace
from midfill_lsp.until import until_passes

Answer = Callable[..., None]
pytestmark = needs_bubblewrap

LOOP = '''def done(step):
    """Whether step 3 is over."""
    ...


def count(step=0):
    while not done(step):
        step += 1
    return step
'''
TESTS = """import loop


def test_count():
    assert loop.count() == 4


def test_done():
    assert loop.done(9) is True


def test_nothing():
    pass
"""
CHECK = "import loop\nassert loop.count() == 4\n"
PLAIN = f"{sys.executable} check.py"
RIGHT, HANGS = "return step > 3", "return step < 0"
SLOW = " is too slow on the code as it is (3 s): counts as failing\n"
both = pytest.mark.parametrize("line", [PYTEST, PLAIN], ids=["pytest", "plain"])


@pytest.fixture
def loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "repo"
    (root / "tests").mkdir(parents=True)
    (root / "loop.py").write_text(LOOP)
    (root / "tests/test_loop.py").write_text(TESTS)
    (root / "check.py").write_text(CHECK)
    monkeypatch.chdir(root)
    return root


def fill(line: str, *words: str) -> Result:
    return CliRunner().invoke(build_app(), ["fill", "loop.py", "--until", line, "--command-timeout", "3", *words])


@both
def test_candidates_are_tried_each_under_the_limit(loop: Path, answer: Answer, line: str) -> None:
    answer(rows=[["return 1 / 0"], [HANGS], [RIGHT]], certainty=0.5)
    result = fill(line)
    assert result.exit_code == 0 and f"+    {RIGHT}\n" in result.stdout
    told, first, second, third = result.stderr.splitlines(keepends=True)
    assert told == f"midfill: `{line}`{SLOW}"
    assert first.startswith("try 1   failed") and "ZeroDivisionError" in first
    assert second.startswith("try 2   too slow") and 3 <= float(second.split()[4]) < 30
    assert third.startswith("try 3   passed")


@both
def test_where_all_hang_it_is_said(loop: Path, answer: Answer, line: str) -> None:
    answer(rows=[[HANGS], ["return None"]])
    result = fill(line, "--write", "--tries", "2")
    assert result.exit_code == 7 and (loop / "loop.py").read_text() == LOOP
    assert f"`{line}`{SLOW}" in result.stderr and result.stderr.count("too slow  ") == 2
    assert "midfill: none of 2 tries passes, each is too slow: " in result.stderr


def test_pytest_is_warm_all_the_same_and_json_stays_json(loop: Path, answer: Answer) -> None:
    answer(rows=[[HANGS], [RIGHT]])
    result = fill(PYTEST, "--json")
    report = read_report(result.stdout)
    assert report.tries is not None and result.stderr == f"midfill: `{PYTEST}`{SLOW}"
    assert [(each.verdict, each.is_warm) for each in report.tries] == [("too slow", True), ("passed", True)]


@both
def test_what_hangs_ends_with_its_children(loop: Path, answer: Answer, line: str) -> None:
    named = str(uuid4())
    child = [sys.executable, "-c", "import time; time.sleep(600)", named]
    start = f"import subprocess\nsubprocess.Popen({child}, start_new_session=True)\n"
    (loop / "loop.py").write_text(start + LOOP)
    answer(rows=[[HANGS]])
    assert "too slow" in fill(line, "--tries", "1").stderr
    assert not is_running(named)


@both
def test_a_command_that_hangs_before_it_reaches_the_hole_is_refused(loop: Path, answer: Answer, line: str) -> None:
    (loop / "check.py").write_text("while True:\n    pass\n")
    (loop / "tests/test_loop.py").write_text("import loop\n\ndef test_a():\n    while True:\n        loop.other = 1\n")
    result = fill(line)
    assert result.exit_code == 2
    assert f"`{line}` does not come to done in 3 s; fix that first, or give another command." in result.stderr


def start(loop: Path, holes: Callable[[Document], tuple[Hole, ...]], said: list[str]) -> Lab:
    document = Document.read(loop / "loop.py")
    with open_lab(document, loop / "loop.py", read_command(PLAIN, 6), loop) as lab:
        lab.start(holes(document), said.append)
    return lab


def test_a_try_gets_five_times_what_a_body_that_raises_takes(
    loop: Path, monkeypatch: pytest.MonkeyPatch, record_calls: Callable[..., list[Any]]
) -> None:
    monkeypatch.setattr(labs, "_LEAST_S", 0.5)
    said, prepared = list[str](), record_calls(Lab, "_limit_and_warm_up")
    limit_s = start(loop, lambda document: tuple(find_stubs(document)), said).runner.command.timeout_s
    _, _, _, took_s, *_ = prepared[0]
    assert took_s < 6 and limit_s == min(6, max(0.5, 5 * took_s))
    assert said == [f"`{PLAIN}` is too slow on the code as it is (6 s): counts as failing"]


def test_without_such_a_body_it_gets_the_limit_of_the_first_run(loop: Path) -> None:
    at = LOOP.index("...")
    lab = start(loop, lambda document: (hole_at_range(document, at, at + 3),), [])
    assert lab.runner.command.timeout_s == 6


def test_a_run_over_a_repository_survives_a_fill_that_hangs(
    loop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(request: InfillRequest) -> str:
        return RIGHT if request.seed else HANGS

    init_git(loop)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    use_workers(monkeypatch, answer)
    run = CliRunner()
    run.invoke(build_app(), ["refactor", "plan", "--stubs"])
    words = ["refactor", "generate", "--until", PYTEST, "--tries", "4", "--command-timeout", "3"]
    result = run.invoke(build_app(), words)
    line = f"{PYTEST} tests/test_loop.py"
    assert f"loop.py: done -> tests/test_loop.py\n  `{line}`{SLOW}  passes at try " in result.stderr
    status = json.loads(run.invoke(build_app(), ["refactor", "status", "--json"]).stdout)
    assert result.exit_code == 0 and status["holes"] == {"generated": 1}


def test_an_editor_is_told_that_the_command_hangs_on_the_present_text(
    loop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(labs, "FIRST_S", 3.0)
    workspace, uri = SyncedWorkspace(None), (loop / "loop.py").as_uri()
    workspace.put_text_document(TextDocumentItem(uri, "python", 1, LOOP))
    synced = workspace.text_documents[uri]
    assert isinstance(synced, SyncedDocument)
    said = list[str]()

    def no_engine(*_: object) -> Events:
        raise MidfillError("engine_error", "asked")

    document = Document.read(loop / "loop.py")
    filler = until_passes(workspace, synced, PLAIN, 3, lambda: False, no_engine)
    with pytest.raises(MidfillError, match="asked"):
        list(filler(document, find_stubs(document), Options(), Settings(), said.append))
    assert said == [f"{PLAIN} on the text as it is", f"`{PLAIN}`{SLOW}".strip()]
