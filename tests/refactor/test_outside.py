"""A run over a repository with an engine of another project."""

import subprocess
from pathlib import Path

import pytest
from tests.infill.stand_in import serve
from typer.testing import CliRunner, Result

from midfill_infill.cli import build_app


def run(*words: str) -> Result:
    return CliRunner().invoke(build_app(), ["refactor", *words])


def test_a_repository_is_filled_by_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "repo"
    root.mkdir()
    (root / "a.py").write_text("def add(a, b):\n    ...\n\n\ndef sub(a, b):\n    ...\n")
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    monkeypatch.chdir(root)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with serve("ollama") as server:
        server.parts = ["return a", " + b\n"]
        monkeypatch.setenv("MIDFILL_ENGINE", f"ollama:m@{server.url}")
        for words in (["plan", "--stubs"], ["generate"], ["apply", "--all", "--allow-dirty"]):
            result = run(*words)
            assert result.exit_code == 0, result.output
    assert (root / "a.py").read_text() == "def add(a, b):\n    return a + b\n\n\ndef sub(a, b):\n    return a + b\n"
    assert len(server.asked) == 2 and {body["model"] for body in server.asked} == {"m"}
