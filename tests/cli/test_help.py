"""`--help`, `--version`, and what a shell completes."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from tests.cli.command import ROOT
from typer.testing import CliRunner

from midfill_infill.cli import app, build_app
from midfill_infill.engines import installed

RUNNER = CliRunner()


def ask(*words: str) -> tuple[int, str, str]:
    result = RUNNER.invoke(build_app(), list(words))
    return result.exit_code, result.stdout, result.stderr


def test_help_names_the_folder_of_the_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert str(ROOT / "docs") in "".join(ask("--help")[1].split())
    monkeypatch.setattr(app, "_SOURCE_DOCS", tmp_path)
    monkeypatch.setattr(app.sys, "prefix", "/installed")
    assert "/installed/share/doc/midfill" in "".join(ask("--help")[1].split())


@pytest.mark.parametrize("name", sorted(page.stem for page in (ROOT / "docs").glob("*.md")))
def test_every_page_is_installed(name: str) -> None:
    data = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert data["shared-data"][f"docs/{name}.md"] == f"share/doc/midfill/{name}.md"


def test_version_names_the_build_and_the_model_that_fills(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MIDFILL_CONFIG", str(tmp_path / "none.toml"))
    monkeypatch.delenv("MIDFILL_MODEL", raising=False)
    code, out, _ = ask("--version")
    first, second = out.splitlines()
    assert code == 0
    assert first.startswith(f"midfill {installed.distribution_version()} (") and "Python 3." in first
    assert second == "model embedded (it ships with midfill)"
    monkeypatch.setenv("MIDFILL_MODEL", "some/model")
    assert ask("--version")[1].splitlines()[1] == "model some/model (MIDFILL_MODEL)"


def test_the_commit_is_that_of_the_repository_it_was_installed_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    about = tmp_path / "midfill-0.1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: midfill\nVersion: 0.1\n")
    (about / "direct_url.json").write_text('{"vcs_info": {"commit_id": "0123456789abcdef"}}')
    monkeypatch.syspath_prepend(tmp_path)
    assert installed._describe_commit(tree=tmp_path) == ["commit 0123456789ab"]
    (about / "direct_url.json").unlink()
    assert installed._describe_commit(tree=tmp_path) == []


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("midfill fill --language t", ["typescript", "tsx"]),
        ("midfill fill t.py --function A.", ["A.close", "A.open"]),
        ("midfill fill none.py --function A.", []),
        ("midfill fill - --function A.", []),
        ("midfill ref", ["refactor"]),
        ("midfill config ca", ["cache"]),
        ("midfill config weights ", ["stored", "int8", "int4"]),
        ("midfill fill t.py --model em", ["embedded"]),
    ],
)
def test_a_shell_completes(line: str, offered: list[str], tmp_path: Path) -> None:
    (tmp_path / "t.py").write_text("class A:\n    def open(self): ...\n    def close(self): ...\n")
    words = {"COMP_WORDS": line, "COMP_CWORD": str(line.count(" ")), "_MIDFILL_COMPLETE": "complete_bash"}
    command = [str(Path(sys.executable).with_name("midfill"))]
    terminal, keys = os.openpty()
    environment = {**os.environ, **words}
    try:
        done = subprocess.run(
            command, env=environment, cwd=tmp_path, stdin=keys, capture_output=True, text=True, timeout=30
        )
    finally:
        os.close(terminal)
        os.close(keys)
    assert sorted(done.stdout.split()) == sorted(offered), done.stderr
