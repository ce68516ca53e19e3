"""What git ignores is what `git check-ignore` says; a repository's configuration starts no program."""

import os
import subprocess
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest

from midfill_infill.context.references import find_references
from midfill_infill.errors import MidfillError
from midfill_infill.repository import exclusions, git
from midfill_infill.repository.exclusions import Stamps, find_exclusion, find_exclusions, is_ignored
from midfill_infill.repository.roots import find_repository
from midfill_infill.repository.walk import find_ignored
from midfill_infill.text.document import Document

USER = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "protocol.file.allow=always")
IGNORED = "git ignores it"
SECRET = "its name is that of a file with secrets"


def run(folder: Path, *words: str) -> str:
    return subprocess.run(["git", *USER, *words], cwd=folder, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own, and nothing that is known from other tests."""
    home = tmp_path / "home"
    home.mkdir()
    for name in ("XDG_CONFIG_HOME", "GIT_DIR", "GIT_WORK_TREE", "GIT_CONFIG_GLOBAL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setattr(exclusions, "_answers", {})
    return home


@pytest.fixture
def root(home: Path, tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    (root / "src").mkdir(parents=True)
    run(root, "init", "-q")
    for name in ("a.py", "src/b.py", "tracked.gen.py", "own.py"):
        (root / name).write_text(f"# {name}\n")
    run(root, "add", "-A", "-f")
    run(root, "commit", "-q", "-m", "start")
    return root


def ask_git(root: Path, names: Collection[str]) -> set[str]:
    found = subprocess.run(["git", "check-ignore", *names], cwd=root, capture_output=True, text=True)
    return set(found.stdout.splitlines())


def ask(root: Path, names: Collection[str]) -> set[str]:
    """What a fill leaves out; a plan of `refactor` leaves out the same."""
    found = find_exclusions([root / name for name in names])
    assert set(found.values()) <= {IGNORED}
    ignored = {path.relative_to(root).as_posix() for path in found}
    assert ignored == find_ignored(find_repository(root), list(names))
    assert ignored == {name for name in names if find_exclusion(root / name, (), Stamps()) == IGNORED}
    return ignored


NAMES = ["a.py", "src/b.py", "tracked.gen.py", "new.gen.py", "mine.py", "src/mine.py", "local/c.py", "src/local/d.py"]


def test_the_users_ignore_files(root: Path, home: Path) -> None:
    (home / ".config/git").mkdir(parents=True)
    (home / ".config/git/ignore").write_text("mine.py\n")
    assert ask(root, NAMES) == {"mine.py", "src/mine.py"} == ask_git(root, NAMES)


def test_the_file_that_the_configuration_names(root: Path, home: Path) -> None:
    (home / "list").write_text("local/\n")
    (home / ".gitconfig").write_text("[core]\n\texcludesFile = ~/list\n")
    assert ask(root, NAMES) == {"local/c.py", "src/local/d.py"} == ask_git(root, NAMES)


def test_a_configuration_of_the_repository_and_one_that_it_includes(root: Path, home: Path) -> None:
    (home / "more").write_text("[core]\n\texcludesFile = ~/list\n")
    (home / "list").write_text("*.gen.py\n")
    run(root, "config", "include.path", str(home / "more"))
    assert ask(root, NAMES) == {"new.gen.py"} == ask_git(root, NAMES)


def test_a_tracked_file_is_not_ignored_whatever_patterns_say(root: Path) -> None:
    (root / ".gitignore").write_text("*.gen.py\nsrc/\n")
    assert ask(root, NAMES) == {"new.gen.py", "src/mine.py", "src/local/d.py"} == ask_git(root, NAMES)
    (root / "new.gen.py").write_text("x = 1\n")
    run(root, "add", "-f", "new.gen.py")
    assert ask(root, ["new.gen.py"]) == set()


def test_a_worktree_and_a_submodule_have_lists_of_their_own(root: Path, tmp_path: Path) -> None:
    worktree = tmp_path / "worktree"
    run(root, "worktree", "add", "-q", str(worktree))
    (root / ".git/info/exclude").write_text("mine.py\n")
    assert ask(worktree, NAMES) == {"mine.py", "src/mine.py"} == ask_git(worktree, NAMES)
    other = tmp_path / "other"
    run(tmp_path, "clone", "-q", str(root), str(other))
    run(other, "submodule", "--quiet", "add", str(root), "sub")
    (other / ".git/modules/sub/info/exclude").write_text("local/\n")
    assert ask(other / "sub", NAMES) == {"local/c.py", "src/local/d.py"} == ask_git(other / "sub", NAMES)
    assert ask(other, NAMES) == set()


def test_links_and_what_they_lead_to(root: Path, tmp_path: Path) -> None:
    (root / ".gitignore").write_text("local/\nlink\n")
    (root / "local").mkdir()
    (root / "local/c.py").write_text("x = 1\n")
    (root / "to_ignored.py").symlink_to("local/c.py")
    (root / "link").symlink_to("src")
    (root / "near").symlink_to("local")
    (tmp_path / "outside").symlink_to(root)
    (root / "c.txt").touch()
    (root / ".env").symlink_to("c.txt")
    (root / "to_secret.py").symlink_to("./src/../.env")
    (root / ".ssh").symlink_to("src")
    (root / "keys").symlink_to(".ssh/")
    assert find_exclusion(root / "to_secret.py") == f"it links to .env, and {SECRET}"
    assert find_exclusion(root / "keys/b.py") == f"it links to .ssh, and {SECRET}"
    assert find_exclusion(root / "c.txt") is None
    assert find_exclusion(root / "to_ignored.py") == f"it links to c.py, and {IGNORED}"
    assert find_exclusion(root / "link/b.py") == f"it links to link, and {IGNORED}"
    assert find_exclusion(root / "near/c.py") == IGNORED
    assert find_exclusion(tmp_path / "outside/local/c.py") == IGNORED
    assert find_exclusion(tmp_path / "outside/src/b.py") is None


def test_ignored_files_with_odd_names_are_found(root: Path) -> None:
    (root / ".gitignore").write_text("odd*\n")
    names = [
        ":odd.py",
        "odd\n.py",
        "o[d]d.py",
        "-odd.py",
        "odd \xff.py".encode("latin-1").decode("utf-8", "surrogateescape"),
    ]
    found = {path.name for path in find_exclusions([root / name for name in names])}
    assert found == {name for name in names if name.startswith("odd")}


def test_a_hooks_variables_name_no_other_repository(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    run(other, "init", "-q")
    (root / ".gitignore").write_text("mine.py\n")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other / ".git/index"))
    assert find_exclusion(root / "mine.py") == IGNORED


def test_related_files_are_asked_for_together(root: Path, record_calls: Callable[..., list[Any]]) -> None:
    (root / ".gitignore").write_text("*_mine.py\n")
    for number in range(20):
        (root / f"own_{number}.py").write_text(f"# near {number}\n")
        (root / f"own_{number}_mine.py").write_text(f"# mine {number}\n")
    asked = record_calls(git, "run_git")
    for _ in range(2):
        found = find_references(Document.read(root / "own.py"), root / "own.py")
        assert len(found) > 10 and not [each for each in found if "mine" in each.text]
    assert len(asked) == 1


def test_an_answer_that_is_known_counts_after_many_others(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / ".gitignore").write_text("mine*\n")
    monkeypatch.setattr(exclusions, "_MAX_NUM_ANSWERS", 1)
    assert ask(root, ["mine.py", "a.py", "b.py"]) == {"mine.py"}
    assert set(find_exclusions([root / "mine.py", root / "new.py"])) == {root / "mine.py"}


def test_a_list_that_is_replaced_by_one_of_the_same_time_is_read_again(root: Path) -> None:
    ignore = root / ".gitignore"
    ignore.write_text("nothing\n")
    assert find_exclusion(root / "mine.py") is None and not is_ignored(root / "mine.py", root)
    time_ns = ignore.stat().st_mtime_ns
    ignore.write_text("mine.py\n")
    os.utime(ignore, ns=(time_ns, time_ns))
    assert find_exclusion(root / "mine.py") == IGNORED and is_ignored(root / "mine.py", root)


def test_without_git_the_ignore_files_decide(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / ".gitignore").write_text("mine.py\n")
    (root / ".git/info/exclude").write_text("local/\n")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(MidfillError):
        git.find_ignored(root, ["mine.py"])
    assert {path.relative_to(root).as_posix() for path in find_exclusions([root / name for name in NAMES])} == {
        "mine.py", "src/mine.py", "local/c.py", "src/local/d.py",
    }  # fmt: skip


def test_a_repositorys_configuration_starts_no_program(root: Path, tmp_path: Path) -> None:
    mark = tmp_path / "was here"
    script = tmp_path / "evil"
    script.write_text(f"#!/bin/sh\ntouch '{mark}'\nexit 1\n")
    script.chmod(0o755)
    for name in ("core.fsmonitor", "core.sshCommand", "core.pager", "core.editor", "core.gitProxy", "diff.external"):
        run(root, "config", name, str(script))
    run(root, "config", "core.hooksPath", str(tmp_path))
    run(root, "config", "remote.origin.url", f"ext::{script}")
    run(root, "config", "remote.origin.promisor", "true")
    run(root, "config", "extensions.partialClone", "origin")
    run(root, "config", "protocol.ext.allow", "always")
    (root / ".gitignore").write_text("mine.py\n")
    run(root, "-c", "core.fsmonitor=false", "add", ".gitignore")
    blob = run(root, "-c", "core.fsmonitor=false", "rev-parse", ":.gitignore").strip()
    mark.unlink(missing_ok=True)
    # The index names a blob that is not here, and the file is not checked out: git would fetch it.
    run(root, "-c", "core.fsmonitor=false", "update-index", "--skip-worktree", ".gitignore")
    (root / ".gitignore").unlink()
    (root / ".git/objects" / blob[:2] / blob[2:]).unlink()
    mark.unlink(missing_ok=True)
    find_exclusion(root / "mine.py")
    assert not mark.exists()
    assert os.access(script, os.X_OK)
