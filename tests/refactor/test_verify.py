"""The guilty fills are found and rolled back, the good ones stay; the command is held in a sandbox."""

import random
import shlex
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from itertools import accumulate
from math import log2
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.refactor.trees import Tree, accepted, make_tree
from tests.until.quick import QuickRunner, use_quick_runner

from midfill_infill.errors import MidfillError
from midfill_infill.refactor.journal.journal import Journal
from midfill_infill.refactor.journal.records import FillRow, Report, State
from midfill_infill.refactor.verifying import verify as verifying
from midfill_infill.refactor.verifying.verify import Note, verify
from midfill_infill.refactor.writing.apply import Writer
from midfill_infill.refactor.writing.bisecting import Verdict, find_guilty, find_guilty_apart
from midfill_infill.sandbox import run as sandbox
from midfill_infill.sandbox.command import Command

needs_bubblewrap = pytest.mark.skipif(sandbox.find_bubblewrap() is None, reason="bubblewrap does not work here")

# Reads every file and fails where a fill says that it is bad: as fast as a test suite can be.
FILES = "pathlib.Path('.').rglob('*.py')"
CODE = f"import pathlib, sys; sys.exit(any(b'BAD' in p.read_bytes() for p in {FILES}))"
COMMAND = (sys.executable, "-I", "-S", "-c", CODE)


@given(st.integers(1, 60).flatmap(lambda n: st.tuples(st.just(n), st.sets(st.integers(0, n - 1)))))
def test_the_search_finds_all_bad_fills_and_no_good_one(case: tuple[int, set[int]]) -> None:
    number, guilty = case
    verdict = find_guilty(range(number), lambda chosen: not guilty & set(chosen))
    assert set(verdict.guilty) == guilty and set(verdict.good) == set(range(number)) - guilty
    assert verdict.num_runs <= 1 + len(guilty) * (2 + 2 * log2(max(2, number))) and not verdict.doubtful


@pytest.mark.parametrize("guilty", [set(), {0}, {5}, {2, 3}, {0, 4, 6}])
def test_one_flaky_run_rolls_back_no_good_fill(guilty: set[int]) -> None:
    """Whichever run it is: what fails that should pass is asked again."""
    honest = find_guilty(range(7), lambda chosen: not guilty & set(chosen))
    for liar in range(1, honest.num_runs + 1):
        runs = iter(range(1, 100))
        verdict = find_guilty(
            range(7), lambda chosen, runs=runs, liar=liar: not guilty & set(chosen) and next(runs) != liar
        )
        assert set(verdict.guilty) <= guilty and (verdict.doubtful or set(verdict.guilty) == guilty)


@given(st.data())
def test_parts_that_fail_apart_are_searched_at_once(data: st.DataObject) -> None:
    parts = data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=9).map(number_parts))
    guilty = {data.draw(st.sampled_from(part)) for part in parts}
    num_runs = 0

    def test(chosen: Sequence[int]) -> set[int]:
        nonlocal num_runs
        num_runs += 1
        return {index for index, part in enumerate(parts) if guilty & set(part) & set(chosen)}

    verdict = find_guilty_apart([-1], parts, test)
    assert verdict is not None and set(verdict.guilty) == guilty
    assert set(verdict.good) == {-1, *(hole for part in parts for hole in part)} - guilty
    assert num_runs <= 1 + 2 + 2 * log2(max(2, *map(len, parts))) + 2 * (len(parts) - 1).bit_length()


def number_parts(sizes: list[int]) -> list[range]:
    ends = list(accumulate(sizes))
    return [range(end - size, end) for end, size in zip(ends, sizes, strict=True)]


@pytest.mark.parametrize("pair", [(0, 3), (3, 0)])
def test_parts_of_which_one_makes_another_fail_are_not_searched_apart(pair: tuple[int, int]) -> None:
    """Only the fill `cause` is guilty, and the test of the part of `victim` fails of it, too."""
    cause, victim = pair
    parts = [range(3), range(3, 6)]
    assert find_guilty_apart([9], parts, lambda chosen: {cause // 3, victim // 3} if cause in chosen else set()) is None


def test_of_two_fills_that_fail_only_together_one_is_rolled_back() -> None:
    verdict = find_guilty(range(16), lambda chosen: not {3, 11} <= set(chosen))
    assert verdict.guilty == [11] and len(verdict.good) == 15


def planted(folder: Path, num_files: int, per_file: int, num_bad: int, seed: int = 1) -> tuple[Tree, set[int]]:
    """A tree with fills of which some say BAD."""
    files = {
        f"m{number}.py": b"".join(b"def f%d(a=1, b=2):\n    ...\n\n" % index for index in range(per_file))
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


def run(
    tree: Tree, *, written: bool, command: Sequence[str] = COMMAND, first_s: float | None = None, **options: int
) -> tuple[Verdict, Report]:
    with tree.open() as journal:
        writer = Writer(journal, tree.root)
        if written:
            writer.apply(accepted(journal), is_git=False)
        suspects = [hole.id for hole in journal.holes_in(State.ACCEPTED, State.APPLIED)]
        chosen = Command(tuple(command), **{"sandboxed": False, **options})  # type: ignore[arg-type]
        return verify(tree.place, journal, writer, suspects, chosen, first_s=first_s)


@pytest.mark.parametrize("written", [True, False], ids=["applied", "accepted"])
def test_planted_bad_fills_are_rolled_back_and_no_other(tmp_path: Path, written: bool) -> None:
    tree, bad = planted(tmp_path / "repo", 6, 5, 4)
    verdict, report = run(tree, written=written)
    assert set(verdict.guilty) == bad and report.troubles == []
    contents = tree.contents()
    assert not any(b"BAD" in data for data in contents.values())
    with tree.open() as journal:
        assert {hole.id for hole in journal.holes_in(State.ROLLED_BACK)} == bad
        good = list(journal.holes_in(State.VERIFIED, State.ACCEPTED))
    assert len(good) == 30 - len(bad)
    assert sum(data.count(b"total") for data in contents.values()) == (2 * len(good) if written else 0)


def test_a_fill_that_is_no_longer_in_its_file_is_not_verified(tmp_path: Path) -> None:
    tree, _ = planted(tmp_path / "repo", 2, 2, 0)
    with tree.open() as journal:
        Writer(journal, tree.root).apply(accepted(journal), is_git=False)
    (tree.root / "m0.py").write_bytes(tree.before["m0.py"])
    verdict, report = run(tree, written=False)
    assert verdict.good == [3, 4] and [trouble.code for trouble in report.troubles] == ["hole_stale"] * 2
    with tree.open() as journal:
        assert journal.counts() == {State.APPLIED: 2, State.VERIFIED: 2}


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_two_hundred_bad_among_a_thousand(tmp_path: Path) -> None:
    tree, bad = planted(tmp_path / "repo", 100, 10, 200)
    began = time.perf_counter()
    verdict, _ = run(tree, written=True)
    assert set(verdict.guilty) == bad and len(verdict.good) == 800
    assert verdict.num_runs <= len(bad) * (2 + 2 * log2(1000))
    rate = verdict.num_runs / len(bad)
    print(f"200 of 200 rolled back, 800 of 800 kept, {verdict.num_runs} runs ({rate:.1f} a guilty one),", end=" ")
    print(f"{time.perf_counter() - began:.0f} s")


# By a test's number, which is that of a hole: what it does beside calling it.
TEST = """def test_{0}():
    if m{1}.f{2}() == "BAD":
        raise ValueError("bad")
"""
FLAKY = """def test_flaky():
    counter = __import__("pathlib").Path({0!r})
    number = int(counter.read_text())
    counter.write_text(str(number + 1))
    if number in {1}:
        raise OSError("no network")
"""


def verify_quickly(
    tree: Tree, tests: str, monkeypatch: pytest.MonkeyPatch, hear: Note = lambda _: None
) -> tuple[Verdict, list[str]]:
    """Verifies the accepted fills by tests that run in this process; also returns what is said."""
    use_quick_runner(monkeypatch, verifying)
    modules = ", ".join(sorted(name.removesuffix(".py") for name in tree.before))
    (tree.root / "test_all.py").write_text(f"import {modules}\n{tests}")
    said: list[str] = []

    def note(line: str) -> None:
        said.append(line)
        hear(line)

    with tree.open() as journal:
        writer, suspects = Writer(journal, tree.root), [hole.id for hole in accepted(journal)]
        verdict, _ = verify(tree.place, journal, writer, suspects, Command(("pytest",)), note)
    return verdict, said


@needs_bubblewrap
@pytest.mark.parametrize("shared", [False, True])
def test_guilty_fills_of_different_tests_are_searched_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared: bool
) -> None:
    """Also if each test executes the first fill, too. One after the other they would take 50 runs."""
    tree, bad = planted(tmp_path / "repo", 8, 5, 8, seed=2)
    assert 1 not in bad
    test = TEST.replace(":\n    if", ":\n    m0.f0()\n    if") if shared else TEST
    tests = "".join(test.format(number + 1, number // 5, number % 5) for number in range(40))
    verdict, _ = verify_quickly(tree, tests, monkeypatch)
    assert set(verdict.guilty) == bad and len(verdict.good) == 32 and verdict.num_runs <= 11
    with tree.open() as journal:
        reasons = {hole.reason for hole in journal.holes_in(State.ROLLED_BACK)}
    assert reasons == {"the command fails with it: ValueError: bad"}


@needs_bubblewrap
def test_a_fill_that_spoils_the_tests_of_another_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test that executes it passes; in the next ones good fills would seem guilty."""
    tree, _ = planted(tmp_path / "repo", 1, 3, 0)
    with tree.open() as journal:
        spoiling = b"import m0; m0.f1 = m0.f2 = max"
        journal.add_fills([(FillRow(1, 0, 0, b"...", spoiling, 0, 0.5), tree.before["m0.py"])])
        journal.accept(journal.acceptable())
    tests = "".join(TEST.format(number, 0, number) for number in range(3))
    verdict, _ = verify_quickly(tree, tests, monkeypatch)
    assert verdict.guilty == [1] and sorted(verdict.good) == [2, 3]


@needs_bubblewrap
@pytest.mark.parametrize(("fails_in", "is_flaky"), [({1}, True), ({1, 4, 6}, True), ({1, 3, 4}, True), (set(), False)])
def test_a_flaky_test_that_executes_no_fill_blames_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails_in: set[int], is_flaky: bool
) -> None:
    """Its runs: without fills, with all, to see what executes fills, with all again, without any again."""
    tree, bad = planted(tmp_path / "repo", 2, 3, 2)
    counter = tmp_path / "counter"
    counter.write_text("0")
    tests = FLAKY.format(str(counter), fails_in) + "".join(TEST.format(n, n // 3, n % 3) for n in range(6))
    verdict, said = verify_quickly(tree, tests, monkeypatch)
    assert set(verdict.guilty) == bad and len(verdict.good) == 4
    told = "test_all.py::test_flaky is flaky, and executes no fill: not counted"
    assert (told in said) == is_flaky


@needs_bubblewrap
@pytest.mark.parametrize("change", ["nothing", "a test", "a fill", "ended"])
def test_a_verification_that_was_killed_repeats_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """Unless something has changed meanwhile, or it has ended."""
    tree, bad = planted(tmp_path / "repo", 2, 3, 1)
    tests = "".join(TEST.format(number, number // 3, number % 3) for number in range(6))

    def kill(line: str) -> None:
        if line.startswith("run 4: ") and change != "ended":
            raise KeyboardInterrupt

    with suppress(KeyboardInterrupt):
        verify_quickly(tree, tests, monkeypatch, kill)
    num_before = 0 if change != "nothing" else 4
    if change == "a fill":
        with tree.open() as journal:
            good = min(set(range(1, 7)) - bad)
            journal.add_fills([(FillRow(good, 1, 0, b"...", b"return 7", 0, 0.5), tree.before["m0.py"])])
            journal.accept(journal.acceptable())
    verdict, said = verify_quickly(tree, tests + "# new\n" * (change == "a test"), monkeypatch)
    assert set(verdict.guilty) == (bad if change != "ended" else set())
    assert QuickRunner.num_cold == verdict.num_runs - num_before
    assert sum("(before)" in line for line in said) == num_before


@needs_bubblewrap
def test_a_test_that_reads_fills_and_executes_none_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree, bad = planted(tmp_path / "repo", 2, 3, 1)
    reads = "def test_text(): assert not any('BAD' in m.__loader__.get_source(m.__name__) for m in (m0, m1))\n"
    verdict, said = verify_quickly(tree, reads + TEST.format(0, 0, 0), monkeypatch)
    assert set(verdict.guilty) == bad and not any("flaky" in line for line in said)


def test_a_command_that_fails_without_fills_is_refused(tmp_path: Path) -> None:
    tree, _ = planted(tmp_path / "repo", 2, 2, 1)
    with pytest.raises(MidfillError) as raised:
        run(tree, written=True, command=(sys.executable, "-c", "print('broken already'); raise SystemExit(3)"))
    assert raised.value.code == "verify_baseline" and "broken already" in raised.value.message
    assert tree.contents() != tree.before, "nothing is rolled back for it"


@needs_bubblewrap
def test_tests_that_come_to_no_fill_may_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    functions = b"def f(a, b):\n    ...\n\n\ndef g(a, b):\n    ...\n\n\ndef h(a, b):\n    ...\n"
    tree = make_tree(tmp_path / "repo", {"m.py": functions})
    tests = "def test_old(): assert 0\n" + "".join(f"def test_{name}(): assert m.{name}(1, 2) != 9\n" for name in "fgh")
    (tree.root / "test_m.py").write_text(f"import m\n{tests}")
    with tree.open() as journal:
        journal.add_fills([(FillRow(2, 0, 0, b"...", b"return 9", 0, 0.5), functions)])
        journal.accept(journal.acceptable())
    command = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    verdict, report = run(tree, written=False, command=command, sandboxed=True)
    assert verdict.guilty == [2] and verdict.good == [1, 3] and report.troubles == []


def test_a_flaky_command_is_refused(tmp_path: Path) -> None:
    tree, _ = planted(tmp_path / "repo", 1, 2, 0)
    flag = tmp_path / "flag"
    code = f"import pathlib, sys; p = pathlib.Path({str(flag)!r}); there = p.exists(); p.touch(); sys.exit(not there)"
    with pytest.raises(MidfillError) as raised:
        run(tree, written=True, command=(sys.executable, "-c", code), flake_runs=3)
    assert raised.value.code == "verify_flaky" and "1 of 3" in raised.value.message


def test_a_fill_that_hangs_costs_a_multiple_of_a_run_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verifying, "_LEAST_S", 0.3)
    tree, bad = planted(tmp_path / "repo", 1, 2, 1)
    code = f"import time; time.sleep(99 * any(b'BAD' in p.read_bytes() for p in {FILES}))"
    verdict, _ = run(tree, written=False, command=(*COMMAND[:-1], f"import pathlib; {code}"), first_s=60.0)
    assert set(verdict.guilty) == bad and len(verdict.good) == 1
    with tree.open() as journal:
        assert [hole.reason for hole in journal.holes_in(State.ROLLED_BACK)] == ["the command fails with it: too slow"]


def test_stubs_that_hang_do_not_keep_their_fills_waiting(tmp_path: Path) -> None:
    tree, _ = planted(tmp_path / "repo", 1, 2, 0)
    code = f"import time; time.sleep(99 * any(b'...' in p.read_bytes() for p in {FILES}))"
    verdict, _ = run(tree, written=False, command=(*COMMAND[:-1], f"import pathlib; {code}"), first_s=0.5)
    assert len(verdict.good) == 2 and verdict.num_runs == 2


def test_a_command_that_does_not_exist(tmp_path: Path) -> None:
    tree, _ = planted(tmp_path / "repo", 1, 1, 0)
    with pytest.raises(MidfillError) as raised:
        run(tree, written=True, command=("/nowhere/at-all",))
    assert raised.value.code == "bad_request"


@pytest.mark.usefixtures("no_bubblewrap")
def test_without_a_sandbox_it_must_be_said(tmp_path: Path) -> None:
    tree, _ = planted(tmp_path / "repo", 1, 1, 0)
    with tree.open() as journal, pytest.raises(MidfillError) as raised:
        verify(tree.place, journal, Writer(journal, tree.root), [1], Command(("true",)))
    assert raised.value.code == "sandbox_missing"


def test_the_users_tree_is_not_touched_by_the_command(tmp_path: Path) -> None:
    tree, _ = planted(tmp_path / "repo", 2, 2, 0)
    code = "import pathlib; [p.unlink() for p in pathlib.Path('.').rglob('*.py')]"
    run(tree, written=True, command=(sys.executable, "-c", code))
    assert tree.contents() == tree.after


@pytest.mark.parametrize("sandboxed", [pytest.param(True, marks=needs_bubblewrap), False], ids=["bubblewrap", "bare"])
def test_what_is_installed_from_the_tree_runs_the_copy(tmp_path: Path, sandboxed: bool) -> None:
    """An editable install names the tree's own path; the test must see the fills all the same."""
    root = tmp_path / "repo"
    tree = make_tree(root, {"src/pkg/__init__.py": b"def f():\n    ...\n", ".gitignore": b".venv/\n"}, git=True)
    tool = root / ".venv/bin/tool"
    tool.parent.mkdir(parents=True)
    (tool.parent.parent / "pyvenv.cfg").touch()
    paths = f"$PYTHONPATH:{shlex.quote(str(root))}/src"
    tool.write_text(f'#!/bin/sh\nPYTHONPATH={paths} exec {shlex.quote(sys.executable)} "$@"\n')
    tool.chmod(0o755)
    code = "import inspect, pkg, sys; sys.exit('total' in inspect.getsource(pkg.f))"
    with tree.open() as journal:
        options = Command((".venv/bin/tool", "-c", code), sandboxed=sandboxed)
        verdict, _ = verify(tree.place, journal, Writer(journal, root), [1], options)
    assert verdict.guilty == [1] and verdict.good == []
    assert tool.exists() and not (root / ".git/index.lock").exists()


@pytest.mark.parametrize("written", [True, False])
@pytest.mark.parametrize(
    ("code", "why"),
    [
        (CODE, ""),
        (f"{CODE.replace('sys.exit', 'is_bad = ')}; is_bad and sys.exit('TypeError: x')", ": TypeError: x"),
    ],
)
def test_journal_keeps_verdicts(tmp_path: Path, written: bool, code: str, why: str) -> None:
    tree, bad = planted(tmp_path / "repo", 2, 3, 1)
    run(tree, written=written, command=(*COMMAND[:-1], code))
    with Journal(tree.journal_path) as journal:
        (hole,) = journal.holes_in(State.ROLLED_BACK)
        assert hole.id in bad and hole.reason == f"the command fails with it{why}"


def test_of_two_fills_that_fail_only_together_the_less_certain_one_is_rolled_back(tmp_path: Path) -> None:
    tree, _ = planted(tmp_path / "repo", 2, 2, 0)
    with tree.open() as journal:
        journal.add_fills([(FillRow(1, 0, 0, b"...", b"return 'BAD'", 0, 0.3), tree.before["m0.py"])])
        journal.accept(journal.acceptable())
    code = CODE.replace("any(b'BAD'", "all(b'BAD' in p.read_bytes() or b'# 1.0'")
    verdict, _ = run(tree, written=False, command=(*COMMAND[:-1], code))
    assert verdict.guilty == [1] and sorted(verdict.good) == [2, 3, 4]


def test_fills_that_make_a_command_pass_are_good(tmp_path: Path) -> None:
    """As tests of stubs do: without fills they fail."""
    tree, _ = planted(tmp_path / "repo", 2, 2, 0)
    code = "import pathlib, sys; sys.exit(any(b'...' in p.read_bytes() for p in pathlib.Path('.').rglob('*.py')))"
    verdict, _ = run(tree, written=True, command=(sys.executable, "-I", "-S", "-c", code))
    assert len(verdict.good) == 4 and not verdict.guilty
