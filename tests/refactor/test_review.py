"""Answers of a review are kept one by one, and mean what the keys say."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.refactor.trees import Tree, make_tree, source
from tests.refactor.workers import ScriptedWorkers

from midfill_infill.refactor.generating.generate import reroll
from midfill_infill.refactor.journal.records import HoleRow, State
from midfill_infill.refactor.reporting.review import Reroll, review


class Script:
    """Answers in turn; the input ends behind the last one."""

    def __init__(self, answers: Sequence[str], edited: str | None = None) -> None:
        self.answers, self.edited = list(answers), edited
        self.shown: list[str] = []
        self.given: list[str] = []  # to edit
        self.diffs: list[bytes] = []

    def show(self, text: str) -> None:
        self.shown.append(text)

    def show_diff(self, diff: bytes, encoding: str) -> None:
        self.diffs.append(diff)

    def ask(self, question: str) -> str:
        return self.answers.pop(0) if self.answers else ""

    def edit(self, text: str, suffix: str) -> str | None:
        assert suffix == "py"
        self.given.append(text)
        return self.edited


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return make_tree(tmp_path / "repo", {f"m{n}.py": source(n) for n in range(2)}, state=State.GENERATED)


def keep(hole: HoleRow) -> HoleRow:
    return hole


def hold(tree: Tree, screen: Script, reroll: Reroll = keep) -> list[str]:
    with tree.open() as journal:
        review(journal, screen, reroll)
        return [str(journal.hole(number).state) for number in range(1, 7)]


@pytest.mark.parametrize(
    ("keys", "states"),
    [
        ("ynq", ["accepted", "rejected", *["generated"] * 4]),
        ("ya", ["accepted"] * 6),
        ("yd", ["accepted", "rejected", "rejected", *["generated"] * 3]),
        ("nna", ["rejected", "rejected", *["accepted"] * 4]),
        ("ybn", ["rejected", *["generated"] * 5]),
        ("b", ["generated"] * 6),
        ("", ["generated"] * 6),
        ("?ss y", ["accepted", *["generated"] * 5]),
        ("\n\ry", ["accepted", *["generated"] * 5]),
    ],
)
def test_keys_of_a_review_accept_reject_and_skip(tree: Tree, keys: str, states: list[str]) -> None:
    screen = Script([key for key in keys if key != " "])
    found = hold(tree, screen)
    assert found == states
    assert screen.diffs and screen.diffs[0].startswith(b"diff --git")


def test_a_review_goes_on_where_it_stopped(tree: Tree) -> None:
    hold(tree, Script("yn"))
    states = hold(tree, Script("yyyy"))
    assert states == ["accepted", "rejected", *["accepted"] * 4]


def test_accepting_all_takes_no_syntax_errors_along(tree: Tree) -> None:
    with tree.open() as journal:
        fill = journal.fill(journal.hole(4))
        assert fill is not None
        journal.add_fills([(type(fill)(4, 0, 0, fill.old, b"return (", 1, 0.5), tree.before["m1.py"])])
    states = hold(tree, Script("a"))
    assert states == ["accepted"] * 3 + ["generated"] + ["accepted"] * 2


def test_an_edited_fill_is_the_next_attempt(tree: Tree) -> None:
    hold(tree, Script("ey", edited="return 7\n"))
    with tree.open() as journal:
        fill = journal.fill(journal.hole(1))
    assert fill is not None and (fill.attempt, fill.new) == (1, b"return 7")


def test_an_edited_fill_keeps_its_imports_and_its_errors_are_counted(tree: Tree) -> None:
    with tree.open() as journal:
        fill = journal.fill(journal.hole(1))
        assert fill is not None
        journal.add_fills([(replace(fill, imports=("import os",), is_suggestion=True), tree.before["m0.py"])])
    hold(tree, Script("eq", edited="return os.sep\n"))
    with tree.open() as journal:
        good = journal.fill(journal.hole(1))
    assert good is not None and good.imports == ("import os",) and (good.new_errors, good.is_suggestion) == (0, False)
    hold(tree, Script("eq", edited="return '/'\n"))
    with tree.open() as journal:
        plain = journal.fill(journal.hole(1))
    assert plain is not None and plain.imports == (), "nothing needs it any more"
    screen = Script("eq", edited="return (((\n")
    hold(tree, screen)
    with tree.open() as journal:
        bad = journal.fill(journal.hole(1))
    assert bad is not None and bad.new_errors > 0 and "syntax error" in screen.shown[-1]


def test_a_fill_stays_if_the_next_one_fails(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is never in another state meanwhile, in which a crash would leave it."""
    lazy, engine = ScriptedWorkers(lambda _: "..."), ScriptedWorkers()
    with tree.open() as journal:
        before = journal.fill(journal.hole(1))
        add_fills, states = journal.add_fills, list[State]()

        def watch(*fills: Any) -> None:
            add_fills(*fills)
            states.append(journal.hole(1).state)

        monkeypatch.setattr(journal, "add_fills", watch)
        screen = Script("ry")
        review(journal, screen, lambda hole: reroll(journal, tree.root, hole, lazy))
        hole = journal.hole(1)
        assert hole.state is State.ACCEPTED and journal.fill(hole) == before
        assert reroll(journal, tree.root, hole, engine).attempt == 2, "not the seed that failed"
    assert any("the fill before stays" in text for text in screen.shown)
    assert states == [State.GENERATED] * 2


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_an_edited_fill_gets_the_line_ends_of_its_file(tmp_path: Path, ending: str) -> None:
    files = {"a.py": source(0).replace(b"\n", b"\r\n")}
    tree = make_tree(tmp_path / "repo", files, state=State.GENERATED)
    with tree.open() as journal:
        fill = journal.fill(journal.hole(1))
        assert fill is not None
        journal.add_fills([(replace(fill, new=b"b = a\r\n    return b"), files["a.py"])])
        screen = Script("ey", edited=ending.join(["c = a", "    return c", ""]))
        review(journal, screen, keep)
        edited = journal.fill(journal.hole(1))
    assert edited is not None and edited.new == b"c = a\r\n    return c" and screen.given == ["b = a\n    return b"]


def test_an_edited_fill_that_the_file_cannot_hold_is_refused(tmp_path: Path) -> None:
    before = b"# coding: latin-1\nX = '\xe9'\n\ndef f():\n    ...\n"
    tree = make_tree(tmp_path / "repo", {"a.py": before}, state=State.GENERATED)
    screen = Script("e", edited="return '\u20ac'\n")
    with tree.open() as journal:
        kept = journal.fill(journal.hole(1))
        review(journal, screen, keep)
        assert journal.fill(journal.hole(1)) == kept
    assert any("U+20AC" in text for text in screen.shown)


def test_a_reroll_in_a_review_shows_another_fill(tree: Tree) -> None:
    engine = ScriptedWorkers()
    with tree.open() as journal:

        def again(hole: HoleRow) -> HoleRow:
            return reroll(journal, tree.root, hole, engine)

        screen = Script("ry")
        review(journal, screen, again)
        assert journal.hole(1).attempt == 1
        assert screen.diffs[0] != screen.diffs[1]
