"""Somebody else edits planned files while fills are applied and undone: no edit of theirs is ever lost."""

import os
import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.refactor.trees import Tree, make_tree, source

from midfill_infill.refactor.journal.records import State
from midfill_infill.refactor.writing.apply import Writer, written_holes
from midfill_infill.repository import replace
from midfill_infill.repository.content import digest
from midfill_infill.repository.replace import Swap

Edit = Callable[[Path, bytes], None]
EditAround = Callable[..., None]


def append(path: Path, line: bytes) -> None:
    with open(path, "ab") as file:
        file.write(line)


def rename_over(path: Path, line: bytes) -> None:
    """As vim and most editors save."""
    young = path.with_name(path.name + ".young")
    young.write_bytes(path.read_bytes() + line)
    os.replace(young, path)


class Editor(threading.Thread):
    """Appends numbered lines to files at random times, at most `pause_s` apart, an equal part in each of `rounds`.

    It does not rename: an editor that does reads first, and what comes between is lost by the editor itself.
    """

    def __init__(self, tree: Tree, num_edits: int, num_rounds: int, pause_s: float, seed: int) -> None:
        super().__init__()
        self.tree, self.num_edits, self.pause_s, self.chance = tree, num_edits, pause_s, random.Random(seed)
        self.rounds = threading.Barrier(2, timeout=60)
        self.round_at = {num_edits * number // num_rounds for number in range(num_rounds)}
        self.made: list[tuple[str, bytes]] = []

    def run(self) -> None:
        names = list(self.tree.before)
        for number in range(self.num_edits):
            if number in self.round_at:
                self.rounds.wait()
            name = self.chance.choice(names)
            line = b"# edit %d\n" % number
            append(self.tree.root / name, line)
            self.made.append((name, line))
            threading.Event().wait(self.chance.uniform(0, self.pause_s))


def race(folder: Path, *, num_edits: int, num_rounds: int, pause_s: float, seed: int) -> tuple[int, int]:
    """Returns how many holes were asked for and how many were written while edits went on elsewhere in the files."""
    tree = make_tree(folder, {f"m{number}.py": source(number, padding=6) for number in range(12)})
    editor = Editor(tree, num_edits, num_rounds, pause_s, seed)
    editor.start()
    asked = written = 0
    with tree.open() as journal:
        for _ in range(num_rounds):
            editor.rounds.wait()
            holes = list(journal.holes_in(State.ACCEPTED, State.UNDONE))
            report = Writer(journal, tree.root).apply(holes, is_git=False)
            busy = {trouble.path for trouble in report.troubles if trouble.code == "file_changed"}
            assert len(busy) == len(report.troubles)
            told = sum(journal.file(hole.file).path in busy for hole in holes)
            assert report.count(State.APPLIED) == len(holes) - told
            asked += len(holes)
            written += report.count(State.APPLIED)
            Writer(journal, tree.root).undo(written_holes(journal))
        editor.join()
        Writer(journal, tree.root).undo(written_holes(journal))
    contents = tree.contents()
    for name, line in editor.made:
        assert line in contents[name], "an edit was lost"
    lines = [line for name in tree.before for line in contents[name].splitlines() if line.startswith(b"# edit")]
    assert len(lines) == len(editor.made), "an edit is there twice"
    for name, data in tree.before.items():
        assert contents[name].startswith(data)
    assert set(contents) == set(tree.before)
    return asked, written


def test_edits_of_a_second_writer_are_kept(quick_path: Path) -> None:
    asked, _ = race(quick_path / "repo", num_edits=300, num_rounds=12, pause_s=0.008, seed=3)
    assert asked >= 36


@pytest.fixture
def edit_around_exchange(monkeypatch: pytest.MonkeyPatch) -> EditAround:
    """Has a file edited whenever it gets a new text, `before` that and `after` it."""

    def watch(*, before: Callable[[Path], None], after: Callable[[Path], None] = lambda _: None) -> None:
        real = replace.exchange

        def exchange(first: Path, second: Path) -> bool:
            before(second)
            exchanged = real(first, second)
            after(second)
            return exchanged

        monkeypatch.setattr(replace, "exchange", exchange)

    return watch


@pytest.mark.parametrize("num_edits", [7, 8])
def test_a_file_that_is_being_written_is_tried_eight_times(
    quick_path: Path, edit_around_exchange: EditAround, num_edits: int
) -> None:
    tree = make_tree(quick_path / "repo", {f"m{number}.py": source(number) for number in range(2)})
    left = [b"# edit %d\n" % number for number in range(num_edits)]

    def edit(file: Path) -> None:
        if file.name == "m0.py" and left and file.read_bytes().count(b"# edit") == num_edits - len(left):
            append(file, left.pop())

    edit_around_exchange(before=edit)
    with tree.open() as journal:
        report = Writer(journal, tree.root).apply(list(journal.holes_in(State.ACCEPTED)), is_git=False)
    written = {name: tree.contents()[name].partition(b"# edit")[0] for name in tree.before}
    is_written = num_edits < 8
    assert written == {**tree.after, **({} if is_written else {"m0.py": tree.before["m0.py"]})}
    assert report.count(State.APPLIED) == (6 if is_written else 3)
    assert [trouble.code for trouble in report.troubles] == ([] if is_written else ["file_changed"])
    assert tree.contents()["m0.py"].count(b"# edit") == num_edits


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_a_thousand_edits_of_a_second_writer(quick_path: Path) -> None:
    asked, written = race(quick_path / "repo", num_edits=1000, num_rounds=300, pause_s=0.06, seed=5)
    print(f"1000 edits: 0 lost; {written} of {asked} holes written while the files were edited elsewhere")


@pytest.mark.parametrize("edit", [append, rename_over])
def test_an_edit_just_before_the_exchange_is_put_back(
    tmp_path: Path, edit_around_exchange: EditAround, edit: Edit
) -> None:
    target, staged = tmp_path / "a", tmp_path / "staged"
    target.write_bytes(b"old")
    staged.write_bytes(b"new")
    left = [b" and theirs"]
    edit_around_exchange(before=lambda file: edit(file, left.pop()) if left else None)
    assert replace.swap(staged, target, digest(b"old"), digest(b"new")) is Swap.CHANGED
    replace.dispose(staged, target, digest(b"new"))
    assert target.read_bytes() == b"old and theirs"
    assert os.listdir(tmp_path) == ["a"]


def test_an_edit_through_an_open_descriptor_is_put_back(tmp_path: Path) -> None:
    target, staged = tmp_path / "a", tmp_path / "staged"
    target.write_bytes(b"old")
    staged.write_bytes(b"new")
    file = open(target, "ab")

    def finish() -> None:
        file.write(b" and late")
        file.close()

    timer = threading.Timer(0.1, finish)
    timer.start()
    assert replace.swap(staged, target, digest(b"old"), digest(b"new")) is Swap.CHANGED
    timer.join()
    replace.dispose(staged, target, digest(b"new"))
    assert target.read_bytes() == b"old and late"


def test_a_file_that_holds_an_edit_apart_is_named(tmp_path: Path, edit_around_exchange: EditAround) -> None:
    tree = make_tree(tmp_path / "repo", {"a.py": source(0), "b.py": source(1)})

    def edit(file: Path, text: bytes) -> None:
        if file.name == "a.py":
            append(file, text)

    edit_around_exchange(before=lambda file: edit(file, b" one"), after=lambda file: edit(file, b" two"))
    with tree.open() as journal:
        report = Writer(journal, tree.root).apply(list(journal.holes_in(State.ACCEPTED)), is_git=False)
        assert journal.unsettled_writes() == []
    (apart,) = set(tree.contents()) - set(tree.before)
    (trouble,) = report.troubles
    assert trouble.code == "write_unclear" and trouble.message.endswith(f"an edit is in {apart}")
    assert (tree.root / apart).read_bytes() == tree.before["a.py"] + b" one"
    assert tree.contents()["a.py"] == tree.after["a.py"] + b" two"
    assert tree.contents()["b.py"] == tree.after["b.py"]


def test_edits_of_both_files_leave_both(tmp_path: Path, edit_around_exchange: EditAround) -> None:
    target, staged = tmp_path / "a", tmp_path / "staged"
    target.write_bytes(b"old")
    staged.write_bytes(b"new")
    edit_around_exchange(before=lambda file: append(file, b" one"), after=lambda file: append(file, b" two"))
    assert replace.swap(staged, target, digest(b"old"), digest(b"new")) is Swap.CHANGED
    replace.dispose(staged, target, digest(b"new"))
    found = {path.read_bytes() for path in tmp_path.iterdir()}
    assert found == {b"old one", b"new two"}
