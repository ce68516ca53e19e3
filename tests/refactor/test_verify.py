"""The guilty fills are found and rolled back, the good ones stay; the command is held in a sandbox."""

import os
import random
import resource
import socket
import sys
import tempfile
import threading
import time
import tracemalloc
from collections.abc import Iterator, Sequence
from math import log2
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.refactor.trees import Tree, accepted, make_tree

from midfill_infill.errors import MidfillError
from midfill_infill.refactor.journal.journal import Journal
from midfill_infill.refactor.journal.records import FillRow, State
from midfill_infill.refactor.verifying import sandbox
from midfill_infill.refactor.verifying.bisect import find_guilty
from midfill_infill.refactor.verifying.verify import Options, Verified, verify
from midfill_infill.refactor.writing.apply import Writer

needs_bubblewrap = pytest.mark.skipif(sandbox.find_bubblewrap() is None, reason="bubblewrap does not work here")

# Reads every file and fails where a fill says that it is bad: as fast as a test suite can be.
CODE = "import pathlib, sys; sys.exit(any(b'BAD' in p.read_bytes() for p in pathlib.Path('.').rglob('*.py')))"
COMMAND = (sys.executable, "-I", "-S", "-c", CODE)


@given(st.integers(1, 60).flatmap(lambda n: st.tuples(st.just(n), st.sets(st.integers(0, n - 1)))))
def test_all_guilty_and_no_good_one_are_found(case: tuple[int, set[int]]) -> None:
    number, guilty = case
    verdict = find_guilty(range(number), lambda chosen: not guilty & set(chosen))
    assert set(verdict.guilty) == guilty and set(verdict.good) == set(range(number)) - guilty
    assert verdict.num_runs <= 1 + len(guilty) * (1 + 2 * log2(max(2, number)))


def test_of_two_that_fail_together_only_one_goes() -> None:
    verdict = find_guilty(range(16), lambda chosen: not {3, 11} <= set(chosen))
    assert verdict.guilty == [11] and len(verdict.good) == 15


def planted(folder: Path, num_files: int, per_file: int, num_bad: int, seed: int = 1) -> tuple[Tree, set[int]]:
    """A tree with fills of which some say BAD."""
    files = {
        f"m{number}.py": b"".join(b"def f%d():\n    ...\n\n" % index for index in range(per_file))
        for number in range(num_files)
    }
    tree = make_tree(folder, files)
    bad = set(random.Random(seed).sample(range(1, num_files * per_file + 1), num_bad))
    with tree.open() as journal:
        rows = []
        for number in bad:
            hole = journal.hole(number)
            rows.append((FillRow(number, 0, 0, b"...", b"return 'BAD'", 0, 0.5), files[journal.file(hole.file).path]))
        journal.add_fills(rows)
        journal.accept(journal.acceptable())
    return tree, bad


def run(tree: Tree, *, written: bool, command: Sequence[str] = COMMAND, **options: int) -> Verified:
    with tree.open() as journal:
        writer = Writer(journal, tree.root)
        if written:
            writer.apply(accepted(journal), is_git=False)
        suspects = [hole.id for hole in journal.holes_in(State.ACCEPTED, State.APPLIED)]
        return verify(tree.place, journal, writer, suspects, Options(tuple(command), sandboxed=False, **options))  # type: ignore[arg-type]


@pytest.mark.parametrize("written", [True, False], ids=["applied", "accepted"])
def test_planted_bad_fills_are_rolled_back_and_no_other(tmp_path: Path, written: bool) -> None:
    tree, bad = planted(tmp_path / "repo", 6, 5, 4)
    verified = run(tree, written=written)
    assert set(verified.verdict.guilty) == bad and verified.report.troubles == []
    contents = tree.contents()
    assert not any(b"BAD" in data for data in contents.values())
    with tree.open() as journal:
        assert {hole.id for hole in journal.holes_in(State.ROLLED_BACK)} == bad
        good = list(journal.holes_in(State.VERIFIED, State.ACCEPTED))
    assert len(good) == 30 - len(bad)
    assert sum(data.count(b"total") for data in contents.values()) == (2 * len(good) if written else 0)


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_two_hundred_bad_among_a_thousand(tmp_path: Path) -> None:
    tree, bad = planted(tmp_path / "repo", 100, 10, 200)
    began = time.perf_counter()
    verified = run(tree, written=True)
    assert set(verified.verdict.guilty) == bad and len(verified.verdict.good) == 800
    assert verified.num_runs <= len(bad) * (1 + 2 * log2(1000))
    rate = verified.num_runs / len(bad)
    print(f"200 of 200 rolled back, 800 of 800 kept, {verified.num_runs} runs ({rate:.1f} a guilty one),", end=" ")
    print(f"{time.perf_counter() - began:.0f} s")


def test_a_command_that_fails_without_fills_is_refused(tmp_path: Path) -> None:
    tree, _ = planted(tmp_path / "repo", 2, 2, 1)
    with pytest.raises(MidfillError) as raised:
        run(tree, written=True, command=(sys.executable, "-c", "print('broken already'); raise SystemExit(3)"))
    assert raised.value.code == "verify_baseline" and "broken already" in raised.value.message
    assert tree.contents() != tree.before, "nothing is rolled back for it"


def test_a_flaky_command_is_refused(tmp_path: Path) -> None:
    tree, _ = planted(tmp_path / "repo", 1, 2, 0)
    flag = tmp_path / "flag"
    code = f"import pathlib, sys; p = pathlib.Path({str(flag)!r}); there = p.exists(); p.touch(); sys.exit(not there)"
    with pytest.raises(MidfillError) as raised:
        run(tree, written=True, command=(sys.executable, "-c", code), flake_runs=3)
    assert raised.value.code == "verify_flaky" and "1 of 3" in raised.value.message


def test_a_command_that_does_not_exist(tmp_path: Path) -> None:
    tree, _ = planted(tmp_path / "repo", 1, 1, 0)
    with pytest.raises(MidfillError) as raised:
        run(tree, written=True, command=("/nowhere/at-all",))
    assert raised.value.code == "bad_request"


def test_without_a_sandbox_it_must_be_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree, _ = planted(tmp_path / "repo", 1, 1, 0)
    monkeypatch.setattr(sandbox, "find_bubblewrap", lambda: None)
    with tree.open() as journal, pytest.raises(MidfillError) as raised:
        verify(tree.place, journal, Writer(journal, tree.root), [1], Options(("true",)))
    assert raised.value.code == "sandbox_missing"


def test_the_users_tree_is_not_touched_by_the_command(tmp_path: Path) -> None:
    tree, _ = planted(tmp_path / "repo", 2, 2, 0)
    code = "import pathlib; [p.unlink() for p in pathlib.Path('.').rglob('*.py')]"
    run(tree, written=True, command=(sys.executable, "-c", code))
    assert tree.contents() == tree.after


def test_what_does_not_end_is_ended(tmp_path: Path) -> None:
    alive = tmp_path / "alive"
    os.mkfifo(alive)
    reader = os.open(alive, os.O_RDONLY | os.O_NONBLOCK)
    code = f"import os, signal; os.open({str(alive)!r}, os.O_WRONLY); os.fork(); signal.pause()"
    outcome = sandbox.run((sys.executable, "-c", code), tmp_path, sandbox.Limits(timeout_s=1), sandboxed=False)
    assert outcome.code is None and not outcome.passed
    os.set_blocking(reader, True)
    assert os.read(reader, 1) == b"", "both have gone"
    os.close(reader)


def test_who_keeps_the_output_open_is_not_waited_for(tmp_path: Path) -> None:
    """The daemon lives until it is let go, which is after the command was told to have ended."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    code = (
        "import os; reader, writer = os.pipe(); print('ok', flush=True)\n"
        f"if not os.fork(): os.setsid(); os.write(writer, b'x'); open({str(gate)!r}).read(); os._exit(0)\n"
        "os.read(reader, 1)"
    )
    outcome = sandbox.run((sys.executable, "-c", code), tmp_path, sandbox.Limits(60), sandboxed=False)
    assert outcome == sandbox.Outcome(0, "ok\n")
    gate.write_bytes(b"")


def test_of_endless_output_the_end_is_kept(tmp_path: Path) -> None:
    code = "import sys; sys.stdout.write('x' * (16 << 20)); print('end')"
    tracemalloc.start()
    try:
        outcome = sandbox.run((sys.executable, "-c", code), tmp_path, sandbox.Limits(60), sandboxed=False)
        _, most_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert outcome.passed and outcome.output == "x" * 3996 + "end\n"
    assert most_bytes < 1 << 20


SECRETS = ("MY_API_TOKEN", "GPG_PASSPHRASE", "DB_PASS", "SSH_PRIVATE_KEY", "AWS_ACCESS_KEY_ID", "MYSQL_PWD",
           "GITHUB_PAT", "DATABASE_URL", "HTTP_AUTHORIZATION", "npm_config__auth")  # fmt: skip
NO_SECRETS = ("PATH", "PYTHONPATH", "PWD", "OLDPWD", "HOME", "LANG", "GIT_AUTHOR_NAME", "KEYBOARD", "XDG_DATA_HOME")


def test_secrets_of_the_environment_are_not_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*SECRETS, *NO_SECRETS):
        monkeypatch.setenv(name, os.environ.get(name, "hush"))
    words = (sys.executable, "-c", "import os; print(*os.environ, sep='\\n')")
    seen = set(sandbox.run(words, tmp_path, sandbox.Limits(), sandboxed=False).output.split())
    assert seen.isdisjoint(SECRETS) and seen >= set(NO_SECRETS)


ESCAPES = {
    "write beside": "open({outside!r} + '/mine', 'w')",
    "write into the tree": "open({root!r} + '/m0.py', 'w')",
    "write a git hook": "import os; os.makedirs({root!r} + '/.git/hooks')",
    "remove a file": "import os; os.unlink({root!r} + '/m0.py')",
    "link and write": "import os; os.link({root!r} + '/m0.py', 'l'); open('l', 'w')",
    "change a mode": "import os; os.chmod({root!r} + '/m0.py', 0o777)",
    "connect": "import socket; socket.create_connection(('127.0.0.1', {port}), 2)",
    "read a key": "assert open({home!r} + '/.ssh/id_rsa').read()",
    "read tokens": "assert open({home!r} + '/.config/tokens').read()",
    "read the netrc": "assert open({home!r} + '/.netrc').read()",
    "kill the parent": "import os; os.kill({pid}, 9)",
    "see the parent": "open('/proc/{pid}/status')",
    "remount": "import ctypes; assert ctypes.CDLL(None).mount(b'', b'/', b'', 32 | 4096, b'') == 0",
    "make a device": "import os; os.mknod('dev', 0o60600, os.makedev(8, 0)); open('dev', 'rb').read(1)",
    "write a large file": "f = open('big', 'wb'); f.truncate(10 << 30)",
    "bind a port outside": "import socket; socket.create_connection(('1.1.1.1', 53), 2)",
    "write to run": "open({outside!r} + '/../mine', 'w')",
    "change the host name": "import socket; socket.sethostname('mine')",
    "trace the parent": "import ctypes; assert ctypes.CDLL(None).ptrace(16, {pid}, 0, 0) == 0",
    "leave the root": "import os; os.chroot({outside!r})",
}  # fmt: skip


@pytest.fixture
def outside_of_tmp() -> Iterator[Path]:
    """A folder that is not in /tmp, which a sandbox has one of its own of."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        yield Path(folder)


def contents(folder: Path, scratch: Path) -> dict[Path, tuple[bytes, int]]:
    files = (path for path in folder.rglob("*") if path.is_file() and scratch not in path.parents)
    return {path: (path.read_bytes(), path.stat().st_mode) for path in files}


@needs_bubblewrap
@pytest.mark.parametrize("name", ESCAPES)
def test_an_escape_fails(outside_of_tmp: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    folder = outside_of_tmp
    home, outside, root, scratch = (folder / part for part in ("home", "outside", "repo", "scratch"))
    for path in (home / ".ssh/id_rsa", home / ".config/tokens", home / ".netrc", outside / "x", root / "m0.py"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("secret")
    scratch.mkdir()
    monkeypatch.setenv("HOME", str(home))
    before = contents(folder, scratch)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        code = ESCAPES[name].format(outside=str(outside), root=str(root), home=str(home), pid=os.getpid(), port=port)
        outcome = sandbox.run(("/usr/bin/python3", "-c", code), scratch, sandbox.Limits(20), sandboxed=True)
    assert not outcome.passed and "Error" in outcome.output, outcome.output
    assert contents(folder, scratch) == before


@needs_bubblewrap
def test_the_sandbox_lets_a_test_suite_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1"
    )  # loading all that is installed takes longer than the test
    (tmp_path / "test_x.py").write_text("def test_x(tmp_path):\n    (tmp_path / 'a').write_text('b')\n")
    outcome = sandbox.run(
        (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"), tmp_path, sandbox.Limits(60), sandboxed=True
    )
    assert outcome.passed, outcome.output


@pytest.mark.parametrize("sandboxed", [pytest.param(True, marks=needs_bubblewrap), False], ids=["bubblewrap", "bare"])
def test_what_is_installed_from_the_tree_runs_the_copy(tmp_path: Path, sandboxed: bool) -> None:
    """An editable install names the tree's own path; the test must see the fills all the same."""
    root = tmp_path / "repo"
    tree = make_tree(root, {"src/pkg/__init__.py": b"def f():\n    ...\n", ".gitignore": b".venv/\n"}, git=True)
    tool = root / ".venv/bin/tool"
    tool.parent.mkdir(parents=True)
    tool.write_text(f'#!/bin/sh\nPYTHONPATH=$PYTHONPATH:{root}/src exec {sys.executable} "$@"\n')
    tool.chmod(0o755)
    code = "import inspect, pkg, sys; sys.exit('total' in inspect.getsource(pkg.f))"
    with tree.open() as journal:
        options = Options((".venv/bin/tool", "-c", code), sandboxed=sandboxed)
        verified = verify(tree.place, journal, Writer(journal, root), [1], options)
    assert verified.verdict.guilty == [1] and verified.verdict.good == []
    assert tool.exists() and not (root / ".git/index.lock").exists()


@needs_bubblewrap
def test_git_can_be_asked_and_not_written(tmp_path: Path) -> None:
    root, copy = tmp_path / "repo", tmp_path / "copy"
    make_tree(root, {"a.py": b"x = 1\n"}, git=True)
    copy.mkdir()
    asked = sandbox.run(("git", "log", "--oneline"), copy, sandbox.Limits(20), sandboxed=True, copy_of=root)
    assert asked.passed and "start" in asked.output
    for words in (("git", "tag", "mine"), ("sh", "-c", "echo > .git/hooks/post-commit"), ("rm", "-rf", ".git")):
        assert not sandbox.run(words, copy, sandbox.Limits(20), sandboxed=True, copy_of=root).passed
    assert not (root / ".git/hooks/post-commit").exists() and not (root / ".git/refs/tags/mine").exists()
    assert sandbox.run(("touch", "mine"), copy, sandbox.Limits(20), sandboxed=True, copy_of=root).passed
    assert (copy / "mine").exists() and not (root / "mine").exists()


def test_the_limit_of_processes_counts_from_what_the_user_has_already(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = threading.Event()
    others = [threading.Thread(target=gate.wait) for _ in range(9)]
    for other in others:
        other.start()
    counted = sandbox._count_own_tasks()
    gate.set()
    for other in others:
        other.join()
    assert counted is not None and counted > len(others), "those of this process at least"
    monkeypatch.setattr(sandbox, "_count_own_tasks", lambda: counted)
    code = "import resource; print(resource.getrlimit(resource.RLIMIT_NPROC)[0])"
    outcome = sandbox.run((sys.executable, "-c", code), tmp_path, sandbox.Limits(), sandboxed=False)
    hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    most = counted + sandbox._MAX_NEW_PROCESSES
    assert int(outcome.output) == (most if hard == resource.RLIM_INFINITY else min(most, hard))


def test_journal_keeps_verdicts(tmp_path: Path) -> None:
    tree, bad = planted(tmp_path / "repo", 2, 3, 1)
    run(tree, written=True)
    with Journal(tree.journal_path) as journal:
        (hole,) = journal.holes_in(State.ROLLED_BACK)
        assert hole.id in bad and hole.reason == "the command fails with it"
