"""A run over a repository with an engine of another project."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.infill.stand_in import StandIn, serve
from typer.testing import CliRunner, Result

from midfill_infill.cli import build_app
from midfill_infill.engines.endpoint import parse_engine
from midfill_infill.filling import certainty, written
from midfill_infill.filling.certainty import Fit


def run(*words: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(build_app(), ["refactor", *words], input=stdin)


CODE = "def add(a, b):\n    ...\n\n\ndef sub(a, b):\n    ...\n"
FILLED = CODE.replace("...", "return a + b")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "repo"
    folder.mkdir()
    (folder / "a.py").write_text(CODE)
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return folder


@pytest.fixture
def server(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    with serve("ollama") as server:
        server.parts = ["return a", " + b\n"]
        monkeypatch.setenv("MIDFILL_ENGINE", f"ollama:m@{server.url}")
        yield server


def test_a_repository_is_filled_by_it(root: Path, server: StandIn) -> None:
    for words in (["plan", "--stubs"], ["generate"], ["apply", "--all", "--allow-dirty"]):
        result = run(*words)
        assert result.exit_code == 0, result.output
    assert (root / "a.py").read_text() == FILLED
    assert len(server.asked) == 2 and {body["model"] for body in server.asked} == {"m"}


def test_bodies_that_are_rarely_exact_are_written_unless_a_limit_is_asked_for(root: Path, server: StandIn) -> None:
    certainty.save(parse_engine(f"ollama:m@{server.url}").info, "ollama:m", {"body": Fit(-2.0)})
    assert [run(*words).exit_code for words in (["plan", "--stubs"], ["generate"])] == [0, 0]
    assert "add (1/2) exact in 12%\n" in run("review", stdin="q\n").stdout
    held = run("apply", "--all", "--allow-dirty", "--min-certainty", "0.13")
    assert "2 fills left out, suggestions" in held.stderr and (root / "a.py").read_text() == CODE
    done = run("apply", "--all", "--allow-dirty")
    assert "2 holes written in 1 file" in done.stderr and (root / "a.py").read_text() == FILLED


def test_answers_that_were_cut_are_held_back_unless_all_are_asked_for(root: Path, server: StandIn) -> None:
    server.is_short = True
    assert [run(*words).exit_code for words in (["plan", "--stubs"], ["generate"])] == [0, 0]
    assert "add (1/2) a suggestion\n" in run("review", stdin="q\n").stdout and len(server.asked) == 2
    for words in (["apply", "--all"], ["apply", "--all", "--min-certainty", "0.1"]):
        assert "2 fills left out, suggestions" in run(*words, "--allow-dirty").stderr
    assert (root / "a.py").read_text() == CODE
    run("apply", "--all", "--allow-dirty", "--min-certainty", "0")
    assert (root / "a.py").read_text() == FILLED


def test_doubtful_bodies_are_held_back(root: Path, server: StandIn) -> None:
    certainty.save(parse_engine(f"ollama:m@{server.url}").info, "ollama:m", {"body": Fit(-2.0)})
    written.remember(["return a + b"])
    assert [run(*words).exit_code for words in (["plan", "--stubs"], ["generate"])] == [0, 0]
    assert "add (1/2) a suggestion (exact in 12%)\n" in run("review", stdin="q\n").stdout
    assert "2 fills left out, suggestions" in run("apply", "--all", "--allow-dirty").stderr
    assert (root / "a.py").read_text() == CODE
    done = run("apply", "--all", "--allow-dirty", "--min-certainty", "0.11")
    assert "2 holes written in 1 file" in done.stderr and (root / "a.py").read_text() == FILLED
