"""The commands as a user types them: what they print, what they exit with, what they refuse."""

import errno
import fcntl
import json
import os
import pty
import re
import select
import shlex
import shutil
import sqlite3
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.refactor.trees import GIT_USER, init_git
from tests.refactor.workers import use_workers
from typer.testing import CliRunner, Result

from midfill_infill.cli import build_app
from midfill_infill.cli.refactor import SUBCOMMANDS
from midfill_infill.errors import TABLE
from midfill_infill.filling import written
from midfill_infill.refactor.generating import ray_workers
from midfill_infill.refactor.journal.journal import VERSION, Journal
from midfill_infill.refactor.journal.runs import find_run, hold_lock, list_runs, state_folder
from midfill_infill.refactor.reporting import export
from midfill_infill.refactor.verifying import verify as verifying
from midfill_infill.repository.roots import find_repository

CODE = "def add(a, b):\n    ...\n\n\nclass Box:\n    def size(self):\n        raise NotImplementedError\n"


@pytest.fixture
def root(quick_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = quick_path / "repo"
    folder.mkdir()
    (folder / "a.py").write_text(CODE)
    (folder / "test_a.py").write_text("import a\n\n\ndef test_a():\n    assert a.Box\n")
    init_git(folder)
    monkeypatch.chdir(folder)
    use_workers(monkeypatch)
    return folder


def run(*words: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(build_app(), ["refactor", *words], input=stdin)


@pytest.fixture
def generated(root: Path) -> None:
    assert [run(*words).exit_code for words in (["plan", "--stubs"], ["generate"])] == [0, 0]


def test_a_run_goes_from_plan_over_review_to_undo(root: Path) -> None:
    planned = run("plan", "--stubs")
    assert planned.exit_code == 0 and "2 holes in 1 file" in planned.stderr
    assert run("generate").exit_code == 0
    assert json.loads(run("status", "--json").stdout)["holes"] == {"generated": 2}
    assert run("review", stdin="y\nn\n").exit_code == 0
    assert json.loads(run("status", "--json").stdout)["holes"] == {"accepted": 1, "rejected": 1}
    checked = run("check")
    assert checked.exit_code == 1 and "a.py: 1 accepted fill is not written" in checked.stdout
    (root / "a.py").rename(root / "b.py")
    (root / "a.py").mkdir()
    assert "a.py: 1 accepted fill is not written, and the file was changed" in run("check").stdout
    (root / "a.py").rmdir()
    (root / "b.py").rename(root / "a.py")
    applied = run("apply")
    assert applied.exit_code == 0 and "1 hole written in 1 file" in applied.stderr
    text = (root / "a.py").read_text()
    assert text != CODE and "raise NotImplementedError" in text
    assert run("export").stdout.startswith("diff --git a/a.py b/a.py")
    undone = run("undo")
    assert undone.exit_code == 0 and (root / "a.py").read_text() == CODE
    assert run("undo").exit_code == 0


def test_undo_takes_a_path_from_where_it_is_called(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "s").mkdir()
    (root / "s/a.py").write_text("def f():\n    ...\n")
    (root / "s.py").write_text("def f():\n    ...\n")
    init_git(root)
    run("plan", "--stubs")
    run("generate")
    run("apply", "--all")
    assert "nothing was applied to s/b.py" in run("undo", "--file", "s/b.py").stderr
    other = run("undo", "--file", "s/", "--hole", "1")
    assert other.exit_code == 2 and "hole 1 is in a.py, not in s" in other.stderr
    assert "1 hole undone in 1 file" in run("undo", "--file", "s/", "--hole", "4").stderr
    assert (root / "s/a.py").read_text() == "def f():\n    ...\n" != (root / "s.py").read_text()
    monkeypatch.chdir(root / "s")
    assert run("undo", "--file", "a.py").exit_code == 2 and (root / "a.py").read_text() != CODE
    (root.parent / "link").symlink_to(root)
    assert "1 hole undone" in run("undo", "--file", str(root.parent / "link/s.py")).stderr
    run("apply", "--hole", "3")
    assert "1 hole undone" in run("undo", "--file", "../s.py").stderr
    assert "2 holes undone" in run("undo", "--file", "..").stderr and (root / "a.py").read_text() == CODE


def test_suggestions_that_nobody_reviewed_are_not_written(root: Path, generated: None) -> None:
    with sqlite3.connect(find_run(find_repository(root))) as db:
        db.execute("UPDATE fills SET certainty = 0.4, is_suggestion = 1 WHERE hole = 1")
    held = run("apply", "--all")
    assert "1 hole written in 1 file" in held.stderr
    assert "1 fill left out, suggestions: review them, or give --min-certainty 0 to take all" in held.stderr
    assert (root / "a.py").read_text().startswith("def add(a, b):\n    ...\n")
    assert "a suggestion (exact in 40%)" in run("review", stdin="q\n").stdout
    assert "1 hole written in 1 file" in run("apply", "--all", "--min-certainty", "0.4").stderr
    assert run("undo").exit_code == 0
    assert "2 holes written in 1 file" in run("apply", "--hole", "1", "--hole", "2").stderr, "named ones are wanted"


def test_what_was_undone_is_written_again(root: Path, generated: None) -> None:
    assert run("apply", "--all").exit_code == 0
    filled = (root / "a.py").read_text()
    assert run("undo").exit_code == 0
    alone = run("apply")
    assert "2 fills undone: `apply --all` writes them again" in alone.stderr and (root / "a.py").read_text() == CODE
    assert "2 holes written in 1 file" in run("apply", "--all").stderr and (root / "a.py").read_text() == filled


def git(root: Path, *words: str) -> None:
    subprocess.run(["git", *GIT_USER, *words], cwd=root, check=True, capture_output=True)


def test_what_git_put_back_is_written_again(root: Path, generated: None) -> None:
    run("apply", "--all")
    filled = (root / "a.py").read_text()
    git(root, "checkout", "--", ".")
    alone = run("apply")
    assert alone.exit_code == 0 and "2 fills undone by other means" in alone.stderr
    assert "2 fills undone: `apply --all` writes them again" in alone.stderr and (root / "a.py").read_text() == CODE
    assert "2 holes written in 1 file" in run("apply", "--all").stderr and (root / "a.py").read_text() == filled
    (root / "a.py").write_text(filled.partition("\n\n\nclass")[0] + CODE[CODE.index("\n\n\nclass") :])
    undone = run("undo")
    assert undone.exit_code == 0 and "1 fill undone by other means" in undone.stderr
    assert "1 hole undone in 1 file" in undone.stderr and (root / "a.py").read_text() == CODE


def test_what_git_put_back_and_brought_again_is_undone(root: Path, generated: None) -> None:
    run("apply", "--all")
    git(root, "stash")
    assert "2 fills undone by other means" in run("apply").stderr
    git(root, "stash", "pop")
    assert "2 holes undone in 1 file" in run("undo").stderr and (root / "a.py").read_text() == CODE
    run("apply", "--all")
    git(root, "commit", "-a", "-m", "fills")
    run("undo")
    git(root, "checkout", "--", ".")
    assert (root / "a.py").read_text() != CODE
    assert "2 holes undone in 1 file" in run("undo").stderr and (root / "a.py").read_text() == CODE


def test_a_suggestion_that_was_written_once_is_written_again(root: Path, generated: None) -> None:
    with sqlite3.connect(find_run(find_repository(root))) as db:
        db.execute("UPDATE fills SET certainty = 0.4, is_suggestion = 1 WHERE hole = 1")
    run("review", stdin="y\ny\n")
    assert "2 holes written" in run("apply").stderr
    run("undo")
    assert "2 holes written" in run("apply", "--all").stderr


def test_make_builds_again_what_was_undone(root: Path) -> None:
    make = shutil.which("make")
    if make is None:
        pytest.skip("needs make")
    (root / "Makefile").write_text("out: a.py\n\tcp a.py out\n")
    for words in (["plan", "--stubs"], ["generate"], ["apply", "--all"]):
        run(*words)
    subprocess.run([make], check=True, capture_output=True)
    filled = (root / "out").read_text()
    run("undo")
    subprocess.run([make], check=True, capture_output=True)
    assert filled != (root / "out").read_text() == CODE


@pytest.mark.parametrize("is_worktree", [False, True], ids=["repository", "worktree"])
def test_a_repository_that_is_moved_keeps_its_runs(
    root: Path, monkeypatch: pytest.MonkeyPatch, is_worktree: bool
) -> None:
    old, new = root, root.with_name("repo2")
    if is_worktree:
        old = root.with_name("tree")
        subprocess.run(["git", "worktree", "add", "-q", str(old)], check=True)
        monkeypatch.chdir(old)
    for words in (["plan", "--stubs"], ["generate", "--shard", "1/1", "--out", "../part"]):
        assert run(*words).exit_code == 0
    move = ["git", "-C", str(root), "worktree", "move", str(old), str(new)] if is_worktree else ["mv", old, new]
    monkeypatch.chdir(root.parent)
    subprocess.run(move, check=True)
    monkeypatch.chdir(new)
    assert "2 holes taken from 1 part" in run("merge", "../part").stderr
    assert run("apply", "--all").exit_code == 0 and (new / "a.py").read_text() != CODE
    monkeypatch.chdir(root.parent)
    subprocess.run(["mv", new, new.with_name("repo3")], check=True)
    if not is_worktree:  # git itself does not find a worktree that was moved behind its back
        assert "2 holes undone" in run("undo", "--root", "repo3").stderr
        assert (root.parent / "repo3/a.py").read_text() == CODE


def test_names_are_printed_as_what_a_terminal_may_get(root: Path) -> None:
    stub = "def f():\n    ...\n"
    (root / "x\x1b]0;owned\x07.py").write_text(stub)
    (root / os.fsdecode(b"caf\xe9.py")).write_text(stub)
    strict = dict(os.environ, PYTHONIOENCODING="utf-8:strict")
    words = [sys.executable, "-m", "midfill_infill", "refactor", "check"]
    result = subprocess.run(words, capture_output=True, cwd=root, env=strict)
    assert (result.returncode, result.stderr) == (1, b"")
    said = result.stdout.decode()
    assert "caf\N{REPLACEMENT CHARACTER}.py:2:5" in said and "\x1b" not in said and "\x07" not in said
    assert run("check").stdout == said


def test_a_dry_run_prints_the_plan_and_makes_no_run(root: Path) -> None:
    result = run("plan", "--stubs", "--dry-run")
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert [line["name"] for line in lines] == ["add", "Box.size"]
    assert list_runs(find_repository(root)) == []


def test_apply_with_verify_writes_only_what_passes(root: Path, generated: None) -> None:
    result = run("apply", "--all", "--verify", BAD_SIZE, "--no-sandbox")
    assert result.exit_code == 4 and "1 kept, 1 rolled back" in result.stderr
    text = (root / "a.py").read_text()
    assert "NotImplementedError" in text and "..." not in text


BAD_SIZE = (
    f"{shlex.quote(sys.executable)} -c \"import sys; sys.exit('size(self):\\n        return' in open('a.py').read())\""
)


def test_what_one_command_passed_with_another_may_roll_back(root: Path, generated: None) -> None:
    assert run("apply", "--all", "--verify", "true", "--no-sandbox").exit_code == 0
    assert run("verify", "--command", "true", "--no-sandbox").exit_code == 0
    result = run("verify", "--command", BAD_SIZE, "--no-sandbox")
    assert result.exit_code == 4 and "1 kept, 1 rolled back" in result.stderr


@pytest.mark.parametrize("command", ["cd . && true", "true | cat", "cd .", "A=1 true", "test -f a*"])
def test_a_line_for_a_shell_is_run_by_one(root: Path, generated: None, command: str) -> None:
    assert run("apply", "--all", "--verify", command, "--no-sandbox").exit_code == 0
    assert run("verify", "--command", f"{command} && false", "--no-sandbox").exit_code == 5


def test_a_command_that_fails_without_fills_is_explained(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", "hush")
    (root / ".env").write_text("X=1")
    run("plan", "--stubs")
    run("generate")
    result = run("apply", "--all", "--verify", "echo one; echo two; exit 7", "--no-sandbox")
    assert result.exit_code == 5 and "  one\n  two\n" in result.stderr
    assert "not in its copy: .env (named like a secret, and not git's)" in result.stderr


def test_verify_writes_no_named_hole_that_fails_or_was_refused(root: Path, generated: None) -> None:
    result = run("apply", "--hole", "2", "--verify", BAD_SIZE, "--no-sandbox")
    assert result.exit_code == 4 and "0 kept, 1 rolled back" in result.stderr
    assert (root / "a.py").read_text() == CODE
    again = run("apply", "--hole", "2")
    assert again.exit_code == 2 and "hole 2 is rolled_back" in again.stderr
    run("review", stdin="n\n")
    assert run("apply", "--hole", "1").exit_code == 2
    assert (root / "a.py").read_text() == CODE


def test_a_named_hole_accepts_no_other(root: Path, generated: None) -> None:
    for _ in range(2):
        assert run("apply", "--all", "--hole", "1").exit_code == 0
    assert json.loads(run("status", "--json").stdout)["holes"] == {"applied": 1, "generated": 1}
    run("undo")
    assert run("apply", "--hole", "1", "--verify", "true", "--no-sandbox").exit_code == 0
    assert json.loads(run("status", "--json").stdout)["holes"] == {"applied": 1, "generated": 1}


@pytest.mark.parametrize("refusal", [["--allow-dirty", "--verify", "false", "--no-sandbox"], []])
def test_what_is_refused_accepts_nothing(root: Path, generated: None, refusal: list[str]) -> None:
    (root / "a.py").write_text("# mine\n" + CODE)
    assert run("apply", "--all", *refusal).exit_code == 5
    assert json.loads(run("status", "--json").stdout)["holes"] == {"generated": 2}


def test_a_file_that_is_gone_keeps_no_other_from_being_verified(root: Path) -> None:
    (root / "b.py").write_text("def f():\n    ...\n")
    init_git(root)
    run("plan", "--stubs")
    run("generate")
    (root / "b.py").unlink()
    result = run("apply", "--all", "--allow-dirty", "--verify", BAD_SIZE, "--no-sandbox")
    assert result.exit_code == 4 and "b.py cannot be read" in result.stderr
    assert json.loads(run("status", "--json").stdout)["holes"] == {"applied": 1, "generated": 1, "rolled_back": 1}
    again = run("apply", "--all", "--allow-dirty")
    assert again.exit_code == 3 and "b.py cannot be read" in again.stderr and "put it back" in again.stderr


def test_what_recovery_finishes_is_counted(root: Path, generated: None, monkeypatch: pytest.MonkeyPatch) -> None:
    for words, done in ((["apply", "--all"], "written"), (["undo"], "undone")):
        with monkeypatch.context() as patch:
            patch.setattr(Journal, "finish", _die)
            assert run(*words).exit_code == 70
        again = run(*words)
        assert "completed what an interrupted command had begun: 2 holes in 1 file" in again.stderr
        assert again.exit_code == 0 and f"2 holes {done} in 1 file" in again.stderr
    assert (root / "a.py").read_text() == CODE


def _die(*_: object) -> None:
    raise RuntimeError


def test_verify_says_what_it_could_not_take_out(root: Path, generated: None, monkeypatch: pytest.MonkeyPatch) -> None:
    run("apply", "--all")
    filled = (root / "a.py").read_text()

    def edit(*words: object) -> object:
        (root / "a.py").write_text(filled.replace("self):\n        return", "self):\n        return 1 +"))
        return settle(*words)

    settle = verifying._settle
    monkeypatch.setattr(verifying, "_settle", edit)
    result = run("verify", "--command", BAD_SIZE, "--no-sandbox")
    assert result.exit_code == 5 and "1 kept, 0 rolled back" in result.stderr
    assert "still in its file, and the command fails with it: a.py: Box.size (hole 2)" in result.stderr
    assert "return 1 +" in (root / "a.py").read_text()


@pytest.mark.parametrize("words", [["apply", "--all"], ["undo"], ["verify", "-c", "true", "--no-sandbox"]])
def test_nothing_is_written_while_a_review_is_open(root: Path, generated: None, words: list[str]) -> None:
    with hold_lock(find_run(find_repository(root)).with_name("lock"), "review"):
        result = run(*words)
    assert result.exit_code == 5 and f"process {os.getpid()} (review)" in result.stderr
    assert (root / "a.py").read_text() == CODE
    assert json.loads(run("status", "--json").stdout)["holes"] == {"generated": 2}


HALF_A_TRANSACTION = """
import os, sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("PRAGMA cache_size = 1")
db.execute("BEGIN IMMEDIATE")
for number in range(200):
    db.execute("INSERT INTO snapshots VALUES (?, ?)", (b"%d" % number, os.urandom(3000)))
os.kill(os.getpid(), 9)
"""


def test_readers_roll_back_what_a_killed_writer_left(root: Path, generated: None) -> None:
    run("review", stdin="y\nn\n")
    journal = find_run(find_repository(root))
    hot, left = journal.with_name("run.db-journal"), []
    for words in (["status"], ["export"], ["check", "a.py"]):
        subprocess.run([sys.executable, "-c", HALF_A_TRANSACTION, str(journal)], check=False)
        assert hot.stat().st_size > 512
        left.append(run(*words))
    assert [result.exit_code for result in left] == [0, 0, 1]
    assert "1 accepted fill is not written" in left[2].stdout


def test_a_journal_that_cannot_be_read_is_no_clean_check(root: Path) -> None:
    run("plan", "--stubs")
    find_run(find_repository(root)).write_bytes(b"torn" * 1000)
    (root / "a.py").write_text("x = 1\n")
    result = run("check")
    assert result.exit_code == 6 and "the source files are not affected" in result.stderr


def test_a_review_in_a_terminal_takes_single_keys(root: Path, generated: None) -> None:
    terminal, other_end = pty.openpty()
    words = [sys.executable, "-m", "midfill_infill", "refactor", "review"]
    process = subprocess.Popen(words, stdin=other_end, stdout=other_end, stderr=other_end, start_new_session=True)
    said = b""
    for key in (b"y", b"b", b"?", b"n", b"y"):
        said += _read_until(terminal, b"[y,n,a,d,q,e,b,r,s,?] ")
        while termios.tcgetattr(terminal)[3] & termios.ICANON:
            time.sleep(0.01)  # a key that comes before the terminal gives single ones is dropped
        os.write(terminal, key)
    said += _read_until(terminal, b"0 open")
    assert process.wait(30) == 0
    os.close(terminal)
    os.close(other_end)
    assert b"another fill with another seed" in said and b"\x1b[" in said and b"1 accepted, 1 rejected, 0 open" in said
    assert json.loads(run("status", "--json").stdout)["holes"] == {"accepted": 1, "rejected": 1}


@pytest.mark.parametrize("editor", ["no-such-editor", "'", 'sh -c \'printf "\\351" >"$0"\''])
def test_an_editor_that_gives_no_text_is_named(root: Path, monkeypatch: pytest.MonkeyPatch, editor: str) -> None:
    monkeypatch.setenv("VISUAL", editor)
    run("plan", "--stubs")
    run("generate")
    result = run("review", stdin="e\ny\n")
    assert result.exit_code == 0 and f"the editor {editor} returns no text" in result.stdout
    assert json.loads(run("status", "--json").stdout)["holes"] == {"accepted": 1, "generated": 1}


def _read_until(terminal: int, wanted: bytes) -> bytes:
    said = b""
    while wanted not in said:
        assert select.select([terminal], [], [], 60)[0], said
        said += os.read(terminal, 4096)
    return said


def test_an_interrupted_command_exits_130_and_goes_on_later(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_: object) -> str:
        raise KeyboardInterrupt

    use_workers(monkeypatch, interrupt)
    run("plan", "--stubs")
    assert run("generate").exit_code == 130
    use_workers(monkeypatch)
    assert run("generate").exit_code == 0


@pytest.mark.parametrize("form", ["patch", "jsonl"])
def test_an_export_is_a_patch_or_a_line_for_each_hole(root: Path, generated: None, tmp_path: Path, form: str) -> None:
    out = tmp_path / "out"
    assert run("export", "--all", "--format", form, "--out", str(out)).exit_code == 0
    text = out.read_text()
    assert text == run("export", "--all", "--format", form).stdout and len(text) > 200
    if form == "patch":
        subprocess.run(["git", "apply", "--check", str(out)], cwd=root, check=True)


@pytest.mark.parametrize("is_link", [False, True])
def test_an_export_replaces_what_a_file_holds(root: Path, generated: None, tmp_path: Path, is_link: bool) -> None:
    file = tmp_path / "file"
    file.write_text("mine\n")
    file.chmod(0o640)
    out = tmp_path / "out" if is_link else file
    if is_link:
        out.symlink_to(file)
    assert run("export", "--all", "--out", str(out)).exit_code == 0
    assert file.read_text() == run("export", "--all").stdout and file.stat().st_mode & 0o777 == 0o640
    assert out.is_symlink() == is_link


def test_an_export_that_cannot_be_written_leaves_the_file_as_it_was(
    root: Path, generated: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    out.write_text("mine\n")

    def break_off(_: object) -> Iterator[str]:
        yield "half"
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(export, "json_lines", break_off)
    result = run("export", "--format", "jsonl", "--out", str(out))
    assert result.exit_code != 0 and "No space left" in result.stderr
    assert out.read_text() == "mine\n" and [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_files_with_secrets_are_in_no_plan(root: Path) -> None:
    (root / "secrets.js").write_text("const KEY = 1\nfunction f() {\n}\n")
    (root / ".aws").mkdir()
    (root / ".aws/a.py").write_text("def f():\n    ...\n")
    result = run("plan", "--stubs", "--dry-run")
    assert "secrets.js" not in result.stdout and ".aws" not in result.stdout
    assert "left out, its name is that of a file with secrets: 2" in result.stderr


def test_a_folder_is_no_file_to_check(root: Path) -> None:
    (root / "folder").mkdir()
    missing = run("check", "nope.py")
    assert missing.exit_code == 2 and "nope.py does not exist; check the path." in missing.stderr
    result = run("check", "folder")
    assert result.exit_code == 2 and "folder is a folder; name files." in result.stderr


def test_a_wrong_shard_leaves_no_file(root: Path, tmp_path: Path) -> None:
    run("plan", "--stubs")
    assert run("generate", "--shard", "4/3", "--out", str(tmp_path / "x")).exit_code == 2
    assert not (tmp_path / "x").exists()


def test_shards_and_merge(root: Path, tmp_path: Path) -> None:
    run("plan", "--stubs")
    parts = [str(tmp_path / f"{number}") for number in (1, 2)]
    for number, part in enumerate(parts, start=1):
        assert run("generate", "--shard", f"{number}/2", "--out", part).exit_code == 0
    assert json.loads(run("status", "--json").stdout)["holes"] == {"planned": 2}
    assert "2 holes taken from 2 parts, 0 still planned" in run("merge", *parts).stderr


@pytest.mark.parametrize("words", [["--changed"], ["--changed", "HEAD"], ["--changed=HEAD", "--dry-run"]])
def test_changed_alone_means_since_the_last_commit(root: Path, words: list[str]) -> None:
    assert "0 holes in 0 files" in run("plan", *words, "--stubs").stderr
    (root / "new.py").write_text("def f():\n    ...\n")
    assert "1 hole in 1 file" in run("plan", "--stubs", *words).stderr


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["status"], 2, "has no run yet"),
        (["plan"], 2, "nothing says what is to be filled"),
        (["plan", "--stubs", "nowhere"], 2, "not a folder"),
        (["plan", "--query", "missing.scm"], 2, "cannot be read"),
        (["plan", "--recipe", "nope"], 2, "known are fill-stubs"),
        (["plan", "--stubs", "--changed", "no-such-commit"], 2, "there is no revision 'no-such-commit' in "),
        (["generate", "--shard", "1/2"], 2, "--shard and --out go together"),
        (["plan", "--nonsense"], 2, "No such option"),
        (["export", "--format", "doc"], 2, "has no run yet"),
    ],
)
def test_what_is_asked_wrongly_exits_2(root: Path, words: list[str], code: int, says: str) -> None:
    result = run(*words)
    assert result.exit_code == code and says in result.stderr.replace("\n", " ")


def test_commands_that_are_refused_exit_5(root: Path, generated: None) -> None:
    (root / "a.py").write_text("# mine\n" + CODE)
    dirty = run("apply", "--all")
    assert dirty.exit_code == 5 and "uncommitted changes: a.py" in dirty.stderr
    assert run("apply", "--all", "--allow-dirty").exit_code == 0
    lock = state_folder(find_repository(root)) / "lock"
    with open(lock, "r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        held = run("undo")
    assert held.exit_code == 5 and "holds" in held.stderr
    (root / "a.py").write_text("x = 1\n")
    refused = run("undo")
    assert refused.exit_code == 5 and "changed since it was applied" in refused.stderr


def test_failed_holes_exit_3(root: Path, monkeypatch: pytest.MonkeyPatch, set_proposals: Callable[..., None]) -> None:
    use_workers(monkeypatch, lambda _: "return (")
    set_proposals()  # no sibling that would stand in
    run("plan", "--stubs")
    assert run("generate").exit_code == 3
    again = run("generate")
    assert again.exit_code == 3 and "2 holes got no good fill before" in again.stderr
    result = run("apply", "--all")
    assert result.exit_code == 0 and "2 fills left out, with syntax errors" in result.stderr
    assert "0 holes written in 0 files\n" in result.stderr
    assert (root / "a.py").read_text() == CODE
    run("review", stdin="n\nn\n")
    assert run("generate").exit_code == 0, "somebody has seen them"


def test_a_stale_hole_exits_3(root: Path, generated: None) -> None:
    (root / "a.py").write_text(CODE.replace("...", "return 3"))
    result = run("apply", "--all", "--allow-dirty")
    assert result.exit_code == 3 and "it or a line beside it was changed" in result.stderr


def test_an_answer_outlives_a_switch_of_branches(root: Path, generated: None) -> None:
    run("review", stdin="y\nn\n")
    (root / "a.py").write_text("x = 1\n")
    assert run("apply", "--allow-dirty").exit_code == 3
    (root / "a.py").write_text(CODE)
    assert "1 hole written" in run("apply").stderr


def test_a_lock_that_cannot_be_written_is_named(root: Path, generated: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_text", fail)
    result = run("apply", "--all")
    assert result.exit_code == 6 and "lock cannot be written (No space left on device)" in result.stderr


def test_a_disk_that_fails_exits_6(root: Path, generated: None, monkeypatch: pytest.MonkeyPatch) -> None:

    def fail(*_: object, **__: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("midfill_infill.repository.replace.write_all", fail)
    result = run("apply", "--all")
    assert result.exit_code == 6 and "a.py cannot be written" in result.stderr
    assert (root / "a.py").read_text() == CODE and sorted(os.listdir(root)) == [".git", "a.py", "test_a.py"]


def test_a_plan_without_holes_makes_no_run(root: Path, generated: None) -> None:
    before = list_runs(find_repository(root))
    empty = run("plan", "--name", "nowhere:*")
    assert (empty.exit_code, empty.stdout) == (1, "") and "no hole is found, so there is no new run" in empty.stderr
    assert (
        list_runs(find_repository(root)) == before
        and len(os.listdir(state_folder(find_repository(root)) / "runs")) == 1
    )
    assert "2 holes written" in run("apply", "--all").stderr
    assert run("status", "--run", "").exit_code == 2, "an id that a script does not have is not the latest"


def test_runs_are_listed_and_deleted(root: Path, generated: None) -> None:
    run("plan", "--name", "a:*", "--where", "lines > 0", "--intent", "be short")
    run("plan", "--recipe", "fill-stubs")
    ids = list_runs(find_repository(root))
    listed = run("runs").stdout.splitlines()
    assert [line.split(",")[0] for line in listed] == ids and "--stubs: 2 generated" in listed[0]
    assert "--name 'a:*' --where 'lines > 0' --intent 'be short': 2 planned" in listed[1]
    assert [json.loads(line)["holes"] for line in run("runs", "--json").stdout.splitlines()][0] == {"generated": 2}
    with hold_lock(find_run(find_repository(root), ids[0]).with_name("lock"), "review"):
        assert run("runs", "--delete", ids[0]).exit_code == 5 and list_runs(find_repository(root)) == ids
    assert run("runs", "--delete", "nope").exit_code == 2
    assert (
        f"deleted {ids[0]}, " in run("runs", "--delete", ids[0]).stdout and list_runs(find_repository(root)) == ids[1:]
    )
    find_run(find_repository(root), ids[1]).write_bytes(b"torn" * 1000)
    assert f"{ids[1]}: the journal" in run("runs").stdout
    assert run("runs", "--keep", "2").stdout == "" and run("runs", "--keep", "1").exit_code == 0
    assert list_runs(find_repository(root)) == ids[2:] and (root / "a.py").read_text() == CODE


def test_runs_with_fills_in_their_files_are_kept(root: Path, generated: None) -> None:
    run("apply", "--all")
    (run_id,) = list_runs(find_repository(root))
    kept = run("runs", "--keep", "0")
    assert kept.exit_code == 0 and f"kept {run_id}, because `undo` needs it for 2 fills" in kept.stderr
    assert list_runs(find_repository(root)) == [run_id]
    with sqlite3.connect(find_run(find_repository(root))) as db:
        db.execute(f"PRAGMA user_version = {VERSION + 1}")
    assert f"kept {run_id}, because" in run("runs", "--keep", "0").stderr, "its fills are unknown"
    assert run("undo").exit_code == 6 and list_runs(find_repository(root)) == [run_id]
    assert f"deleted {run_id}: " in run("runs", "--keep", "0", "--delete", run_id).stdout
    assert run("runs").stderr == "there is no run: `midfill refactor plan` makes one\n"


def test_what_is_not_filled_yet_is_said(root: Path) -> None:
    run("plan", "--stubs")
    for words in (["apply", "--all"], ["review"]):
        assert "2 holes not filled yet: run `midfill refactor generate`" in run(*words, stdin="").stderr
    assert "no fill is accepted or written" in run("verify", "-c", "true", "--no-sandbox").stderr
    empty = run("export")
    assert empty.stdout == "" and "no fill is accepted or written, so the patch is empty" in empty.stderr


def test_check_is_quiet_and_exits_0_when_nothing_waits(root: Path) -> None:
    assert run("check").exit_code == 1
    assert run("check", "test_a.py").exit_code == 0
    (root / "a.py").write_text("x = 1\n")
    result = run("check")
    assert (result.exit_code, result.stdout) == (0, "")


def test_ray_that_is_not_installed_is_named(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> object:
        raise ImportError(name)

    monkeypatch.setattr(ray_workers, "import_module", missing)
    run("plan", "--stubs")
    result = run("generate", "--ray", "2")
    assert result.exit_code == 2 and "pip install 'midfill[ray]'" in result.stderr


def test_help_of_every_command_names_no_missing_option() -> None:
    assert len(SUBCOMMANDS) == 12
    of_others = {"recipes": {"--recipe"}, "verify": {"-q"}, "generate": {"-q"}}
    for name, subcommand in SUBCOMMANDS.items():
        command = subcommand.build(name)
        assert command.help.startswith(subcommand.summary)
        known = {option for param in command.params for option in (*param.opts, *param.secondary_opts)}
        result = CliRunner().invoke(build_app(), ["refactor", name, "--help"], env={"COLUMNS": "200"})
        said = set(re.findall(r"(?<![\w-])--?[a-z][a-z0-9-]*", result.stdout))
        assert result.exit_code == 0 and "--help" in said
        assert said - {"--help", "-h"} - of_others.get(name, set()) <= known


def test_every_next_step_continues_its_sentence() -> None:
    for entry in TABLE.values():
        assert entry.next_step and not entry.next_step.endswith(".")


def test_what_was_applied_unseen_is_doubted_until_a_command_passes(
    root: Path, generated: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert run("apply", "--all").exit_code == 0
    assert len(written.load()) > 0
    assert run("verify", "--command", "true", "--no-sandbox").exit_code == 0
    assert written.load() == written.Written()
