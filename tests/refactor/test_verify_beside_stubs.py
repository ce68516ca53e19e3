"""`verify` where stubs without a fill stop tests: what is proven stays. The tests run in this process."""

from pathlib import Path

import pytest
from tests.refactor.trees import Tree, make_tree
from tests.until.quick import use_quick_runner
from tests.until.shops import needs_bubblewrap

from midfill_infill.errors import MidfillError
from midfill_infill.refactor.journal.records import FillRow, Report, State, StateChange
from midfill_infill.refactor.verifying import verify as verifying
from midfill_infill.refactor.verifying.verify import Verdict, verify
from midfill_infill.refactor.writing.apply import Writer
from midfill_infill.sandbox.command import Command

pytestmark = needs_bubblewrap
MATHS = b"def half(a):\n    ...\n\n\ndef never(a):\n    ...\n\n\ndef thrice(a):\n    ...\n"
HALF, NEVER, THRICE = 1, 2, 3  # ids of holes
BOTH = "def test_both(): assert maths.never(maths.half(4)) == 7\n"
OF_HALF = "def test_half(): assert maths.half(4) == 2\n"
OF_THRICE = "def test_thrice(): assert maths.thrice(1) == 3\n"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    use_quick_runner(monkeypatch, verifying)


def make(folder: Path, tests: str, fills: dict[int, bytes]) -> Tree:
    """A tree in which only some holes have a fill; the others have failed."""
    tree = make_tree(folder, {"maths.py": MATHS})
    (folder / "test_maths.py").write_text(f"import maths\n{tests}")
    with tree.open() as journal:
        journal.add_fills([(FillRow(hole, 0, 0, b"...", new, 0, 0.5), MATHS) for hole, new in fills.items()])
        journal.set_states([StateChange(h, State.FAILED) for h in (HALF, NEVER, THRICE) if h not in fills])
        journal.set_states([StateChange(h, State.ACCEPTED) for h in fills])
    return tree


def run(tree: Tree) -> tuple[Verdict, Report]:
    with tree.open() as journal:
        suspects = [hole.id for hole in journal.holes_in(State.ACCEPTED)]
        return verify(tree.place, journal, Writer(journal, tree.root), suspects, Command(("pytest",)))


def test_a_test_that_only_a_stub_without_a_fill_stops_does_not_count(tmp_path: Path) -> None:
    tests = BOTH + OF_HALF + OF_THRICE
    tree = make(tmp_path / "repo", tests, {HALF: b"return a / 2", THRICE: b"return a"})
    verdict, report = run(tree)
    assert (verdict.good, verdict.guilty, verdict.unproven) == ([HALF], [THRICE], []) and not report.troubles


def test_a_fill_that_no_test_proves_is_left_out(tmp_path: Path) -> None:
    tree = make(tmp_path / "repo", BOTH + OF_THRICE, {HALF: b"return 9", THRICE: b"return 3 * a"})
    verdict, report = run(tree)
    assert (verdict.good, verdict.guilty, verdict.unproven) == ([THRICE], [], [HALF])
    assert [trouble.message for trouble in report.troubles] == [
        "hole 1 of maths.py is left out: no test that passes runs it"
    ]


def test_where_nothing_is_proven_it_is_refused(tmp_path: Path) -> None:
    tree = make(tmp_path / "repo", BOTH, {HALF: b"return a / 2"})
    with pytest.raises(MidfillError, match="the command fails without any fill"):
        run(tree)


def test_a_test_that_passed_before_must_pass(tmp_path: Path) -> None:
    """`test_odd` comes to the stub first, so that it stops before it comes to the wrong fill."""
    odd = "def test_odd(): assert maths.never(0) is None and maths.half(3) != 9\n"
    tree = make(tmp_path / "repo", odd + OF_HALF, {HALF: b"return 2 if a == 4 else 9"})
    with pytest.raises(MidfillError, match="the command fails without any fill"):
        run(tree)


def test_a_test_that_fails_for_a_reason_of_its_own_does_not_count(tmp_path: Path) -> None:
    tests = OF_HALF + OF_THRICE + "def test_old(): assert 1 == 2\n"
    fills = {HALF: b"return a / 2", NEVER: b"return 1", THRICE: b"return 3 * a"}
    verdict, _ = run(make(tmp_path / "repo", tests, fills))
    assert verdict.good == [HALF, NEVER, THRICE], "no test comes to one of them, and no stub is left"
