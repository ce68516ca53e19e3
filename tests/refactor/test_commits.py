"""Commits of what was applied, a branch of what would be, and the text of a pull request."""

import subprocess
from pathlib import Path

import pytest
from tests.refactor.trees import GIT_USER, init_git
from tests.refactor.workers import ScriptedWorkers
from typer.testing import CliRunner, Result

from midfill_infill.cli import build_app
from midfill_infill.refactor.generating import engines

STUB = "def {}():\n    ...\n"
FILES = {"a.py": STUB.format("a") + "\n\n" + STUB.format("b"), "p/c.py": STUB.format("c"), "p/d.py": STUB.format("d_e")}


def git(root: Path, *words: str) -> str:
    command = ["git", *GIT_USER, *words]
    return subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout


def run(*words: str) -> Result:
    return CliRunner().invoke(build_app(), ["refactor", *words])


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "a repo"
    for name, text in {**FILES, "other.txt": "x\n"}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    init_git(folder)
    for name, value in (("user.name", "t"), ("user.email", "t@example.org"), ("commit.gpgsign", "false")):
        git(folder, "config", name, value)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(engines, "LocalEngine", lambda *_: ScriptedWorkers())
    for words in (["plan", "--recipe", "fill-stubs"], ["generate"]):
        assert run(*words).exit_code == 0
    return folder


CASES = {
    "file": ["Fill d_e in p/d.py", "Fill c in p/c.py", "Fill a, b in a.py"],
    "directory": ["Fill c, d_e in p", "Fill a, b in ."],
    "recipe": ["Fill a, b, c and 1 more in ."],
}


@pytest.mark.parametrize("by", CASES)
def test_what_is_written_is_committed_and_nothing_else(root: Path, by: str) -> None:
    (root / "other.txt").write_text("staged\n")
    git(root, "add", "other.txt")
    result = run("apply", "--all", "--commit-each", by)
    assert result.exit_code == 0 and "none pushed" in result.stderr
    assert git(root, "log", "--format=%s").splitlines() == [*CASES[by], "start"]
    assert git(root, "status", "--porcelain") == "M  other.txt\n"
    assert "..." not in git(root, "show", "HEAD:a.py")
    assert run("undo").exit_code == 0 and (root / "a.py").read_text() == FILES["a.py"]


def test_a_template_and_a_second_call_after_a_hook_refused(root: Path) -> None:
    hook = root / ".git/hooks/pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\necho not today >&2\nexit 1\n")
    hook.chmod(0o755)
    words = ("apply", "--all", "--commit-each", "recipe", "--message", "{recipe}: {holes} in {files}")
    refused = run(*words)
    assert refused.exit_code == 2 and "not today" in refused.stderr
    assert git(root, "log", "--format=%s").splitlines() == ["start"]
    hook.unlink()
    (root / "p/c.py").write_text("mine\n")
    assert run(*words).exit_code == 0
    assert git(root, "log", "-1", "--format=%s") == "fill-stubs: 3 in 2\n"
    assert git(root, "status", "--porcelain") == " M p/c.py\n", "an edit of the user's is not committed"


@pytest.mark.parametrize(
    "words",
    [
        ["--commit-each", "hole"],
        ["--commit-each", "file", "--message", "{nothing}"],
        ["--commit-each", "file", "--message", "{"],
        ["--commit-each", "file", "--allow-dirty"],
        ["--message", "x"],
    ],
)
def test_what_cannot_be_committed_writes_nothing(root: Path, words: list[str]) -> None:
    assert run("apply", "--all", *words).exit_code == 2
    assert {name: (root / name).read_text() for name in FILES} == FILES


def test_a_branch_is_made_beside_tree_and_index(root: Path) -> None:
    (root / "other.txt").write_text("staged\n")
    git(root, "add", "other.txt")
    head = git(root, "rev-parse", "HEAD")
    result = run("export", "--all", "--branch", "fills", "--message", "Fill stubs")
    assert result.exit_code == 0 and "3 files filled on the branch fills" in result.stderr
    assert git(root, "rev-parse", "HEAD") == head and git(root, "status", "--porcelain") == "M  other.txt\n"
    assert git(root, "log", "--format=%s", "fills").splitlines() == ["Fill stubs", "start"]
    assert git(root, "diff", "--name-only", "HEAD", "fills").splitlines() == sorted(FILES)
    assert run("apply", "--all").exit_code == 0
    assert git(root, "diff", "fills", "--", *FILES) == "", "the same as `apply` writes"
    again = run("export", "--all", "--branch", "fills")
    assert again.exit_code == 2 and git(root, "log", "-1", "--format=%s", "fills") == "Fill stubs\n"


def test_a_branch_of_a_file_that_is_not_committed_is_refused(root: Path) -> None:
    (root / "a.py").write_text("# mine\n" + FILES["a.py"])
    for words in (["plan", "--stubs"], ["generate"]):
        assert run(*words).exit_code == 0
    result = run("export", "--all", "--branch", "fills")
    assert result.exit_code == 5 and "a.py is not as it is in the last commit" in result.stderr
    assert "fills" not in git(root, "branch")
