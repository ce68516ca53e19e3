"""Fills go into files and come out again; what somebody else did meanwhile stays."""

import os
import stat
import subprocess
from collections.abc import Sequence
from math import log2
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.refactor.trees import GIT_USER, Tree, accepted, init_git, make_tree, plan_tree, source

from midfill_infill.errors import MidfillError
from midfill_infill.refactor.journal.records import FillRow, Report, State, StateChange
from midfill_infill.refactor.writing import apply as applying
from midfill_infill.refactor.writing.apply import Writer, written_holes
from midfill_infill.refactor.writing.reopening import reopen_stale
from midfill_infill.repository import replace
from midfill_infill.repository.replace import exchange
from midfill_infill.syntax.problems import Span, count_errors
from midfill_infill.text.document import Document


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return make_tree(tmp_path / "repo", {f"p/m{number}.py": source(number) for number in range(5)})


def apply_all(tree: Tree, *, is_git: bool = False) -> Report:
    with tree.open() as journal:
        return Writer(journal, tree.root).apply(accepted(journal), is_git=is_git)


def undo_all(tree: Tree, holes: tuple[int, ...] = ()) -> Report:
    with tree.open() as journal:
        return Writer(journal, tree.root).undo(written_holes(journal, holes=holes))


def test_apply_writes_every_fill_and_undo_restores_every_byte(tree: Tree) -> None:
    mtimes = {name: (tree.root / name).stat().st_mtime_ns for name in tree.before}
    report = apply_all(tree)
    assert (report.num_files, report.count(State.APPLIED), report.troubles) == (5, 15, [])
    assert tree.contents() == tree.after
    undone = undo_all(tree)
    assert (undone.num_files, undone.count(State.UNDONE), undone.troubles) == (5, 15, [])
    assert tree.contents() == tree.before
    assert all((tree.root / name).stat().st_mtime_ns > mtimes[name] for name in tree.before), "make builds them again"


def test_a_disk_with_room_for_some_files_takes_them_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = make_tree(tmp_path / "repo", {f"m{number}.py": source(number, padding=900) for number in range(4)})
    free = SimpleNamespace(f_bavail=20, f_frsize=1024)
    monkeypatch.setattr(os, "statvfs", lambda _: free)
    with pytest.raises(MidfillError, match="has 20 KiB free"):
        apply_all(tree)
    assert tree.contents() == tree.before
    free.f_bavail += 2 * len(tree.after["m0.py"]) // 1024
    assert apply_all(tree).num_files == 4 and tree.contents() == tree.after
    assert undo_all(tree).num_files == 4 and tree.contents() == tree.before


def test_one_hole_is_undone_among_others_in_any_order(tree: Tree) -> None:
    apply_all(tree)
    for hole in (2, 1, 3):
        undo_all(tree, (hole,))
    assert tree.contents()["p/m0.py"] == tree.before["p/m0.py"]
    assert tree.contents()["p/m1.py"] == tree.after["p/m1.py"]


def test_a_reason_with_a_path_that_is_no_text_is_kept(tree: Tree) -> None:
    with tree.open() as journal:
        journal.set_states([StateChange(1, State.FAILED, "`pytest n\udce9.py` fails")])
        assert journal.hole(1).reason == "`pytest n?.py` fails"


def test_an_edit_elsewhere_moves_the_holes(tree: Tree) -> None:
    path = tree.root / "p/m0.py"
    path.write_bytes(b"import os\n" + path.read_bytes() + b"\nLAST = 1\n")
    report = apply_all(tree)
    assert report.count(State.APPLIED) == 15
    assert path.read_bytes() == b"import os\n" + tree.after["p/m0.py"] + b"\nLAST = 1\n"
    path.write_bytes(path.read_bytes() + b"MORE = 2\n")
    assert undo_all(tree).troubles == []
    assert path.read_bytes() == b"import os\n" + tree.before["p/m0.py"] + b"\nLAST = 1\nMORE = 2\n"


def test_an_edit_in_a_hole_makes_it_stale(tree: Tree) -> None:
    path = tree.root / "p/m0.py"
    path.write_bytes(path.read_bytes().replace(b"    ...", b"    return 5", 1))
    report = apply_all(tree)
    assert (report.count(State.STALE), report.count(State.APPLIED)) == (1, 14)
    assert [trouble.code for trouble in report.troubles] == ["hole_stale"]
    assert b"return 5" in path.read_bytes()


def test_stale_holes_are_taken_up_when_their_file_is_as_it_was(tree: Tree) -> None:
    path = tree.root / "p/m0.py"
    path.write_bytes(b"# of another branch\n")
    assert apply_all(tree).count(State.STALE) == 3
    with tree.open() as journal:
        assert reopen_stale(journal, tree.root) == 0, "it is not yet"
        path.write_bytes(b"MINE = 1\n" + tree.before["p/m0.py"])
        assert reopen_stale(journal, tree.root) == 3
        journal.accept(journal.acceptable())
    assert apply_all(tree).count(State.APPLIED) == 3
    assert path.read_bytes() == b"MINE = 1\n" + tree.after["p/m0.py"]


def test_undo_refuses_what_was_changed_since(tree: Tree) -> None:
    apply_all(tree)
    path = tree.root / "p/m0.py"
    edited = path.read_bytes().replace(b"# 0.1", b"# mine")
    path.write_bytes(edited)
    report = undo_all(tree, (2,))
    assert [trouble.code for trouble in report.troubles] == ["undo_refused"]
    assert path.read_bytes() == edited


@pytest.mark.parametrize("text", [b"return (", b"# only a comment"])
def test_a_fill_with_a_syntax_error_is_not_applied(tmp_path: Path, text: bytes) -> None:
    tree = make_tree(tmp_path / "repo", {"a.py": b"def f():\n    ...\n\n\ndef g():\n    ...\n"})
    with tree.open() as journal:
        fill = journal.fill(journal.hole(1))
        assert fill is not None
        bad = FillRow(1, 0, 0, fill.old, text, 0, 0.5)
        journal.add_fills([(bad, tree.before["a.py"])])
        journal.accept(journal.acceptable())
        report = Writer(journal, tree.root).apply(accepted(journal), is_git=False)
    assert (report.count(State.FAILED), report.count(State.APPLIED)) == (1, 1)
    assert text not in (tree.root / "a.py").read_bytes()


def test_one_broken_fill_among_many_of_a_file_costs_few_parses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = make_tree(tmp_path / "repo", {"a.py": source(0, 64)})
    counted: list[int] = []

    def count(document: Document, around: Sequence[Span]) -> int:
        counted.append(len(around))
        return count_errors(document, around)

    monkeypatch.setattr(applying, "count_errors", count)
    with tree.open() as journal:
        bad = FillRow(40, 0, 0, b"...", b"return (", 0, 0.5)
        journal.add_fills([(bad, tree.before["a.py"])])
        journal.accept(journal.acceptable())
        report = Writer(journal, tree.root).apply(accepted(journal), is_git=False)
    assert (report.count(State.FAILED), report.count(State.APPLIED)) == (1, 63)
    assert len(counted) <= 3 + 2 * log2(64) and max(counted) == 1, "spans cost as much as parses do"


def test_a_dirty_planned_file_is_refused_and_another_is_not(tmp_path: Path) -> None:
    root = tmp_path / "repo"
    tree = make_tree(root, {"a.py": source(0), "b.py": source(1)}, git=True)
    (root / "other.py").write_text("x = 1\n")
    apply_all(tree, is_git=True)
    assert tree.contents()["a.py"] == tree.after["a.py"]
    undo_all(tree)
    (root / "a.py").write_bytes(tree.before["a.py"] + b"mine = 1\n")
    second = tree.open()
    with second as journal:
        holes = [journal.hole(number) for number in (1, 4)]
        with pytest.raises(MidfillError) as raised:
            Writer(journal, root).apply(holes, is_git=True)
    assert raised.value.code == "tree_dirty"
    assert "a.py" in raised.value.message
    assert (root / "b.py").read_bytes() == tree.before["b.py"]


def test_applying_again_does_not_take_our_own_writes_for_dirt(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "repo", {"a.py": source(0)}, git=True)
    with tree.open() as journal:
        Writer(journal, tree.root).apply([journal.hole(1)], is_git=True)
        Writer(journal, tree.root).apply([journal.hole(2), journal.hole(3)], is_git=True)
    assert tree.contents() == tree.after


@pytest.mark.parametrize("make", ["outside", "nested", "hard link", "generated", "read-only"])
def test_what_must_not_be_written_is_refused(tmp_path: Path, make: str) -> None:
    root = tmp_path / "repo"
    tree = make_tree(root, {"sub/a.py": source(0)})
    path = root / "sub/a.py"
    if make == "outside":
        path.rename(tmp_path / "away.py")
        path.symlink_to(tmp_path / "away.py")
    elif make == "nested":
        (root / "sub/.git").mkdir()
    elif make == "hard link":
        os.link(path, root / "twin")
    elif make == "read-only":
        path.chmod(0o444)
    else:
        path.write_bytes(b"# @" + b"generated\n" + path.read_bytes())
    before = path.read_bytes()
    report = apply_all(tree)
    assert [trouble.code for trouble in report.troubles] == ["target_refused"]
    assert report.num_files == 0 and path.read_bytes() == before


def test_a_file_that_git_ignores_is_refused(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "repo", {"a.py": source(0), "b.py": source(1), ".gitignore": b"b.py\n"}, git=True)
    report = apply_all(tree, is_git=True)
    assert [(trouble.path, trouble.code) for trouble in report.troubles] == [("b.py", "target_refused")]
    assert (tree.root / "a.py").read_bytes() == tree.after["a.py"]
    assert (tree.root / "b.py").read_bytes() == tree.before["b.py"]


@pytest.mark.parametrize("now", ["link", "submodule"])
def test_a_folder_that_is_another_place_now_blocks_no_other_file(tmp_path: Path, now: str) -> None:
    root = tmp_path / "repo"
    tree = make_tree(root, {"a.py": source(0), "sub/b.py": source(1)}, git=True)
    if now == "link":
        (root / "sub").rename(root / "moved")
        (root / "sub").symlink_to("moved")
    else:
        init_git(root / "sub")
        for words in (["rm", "-r", "-q", "--cached", "sub"], ["add", "sub"], ["commit", "-q", "-m", "submodule"]):
            subprocess.run(["git", *GIT_USER, *words], cwd=root, check=True, capture_output=True)
    report = apply_all(tree, is_git=True)
    assert [(trouble.path, trouble.code) for trouble in report.troubles] == [("sub/b.py", "target_refused")]
    assert report.count(State.APPLIED) == 3 and (root / "a.py").read_bytes() == tree.after["a.py"]
    assert (root / "sub/b.py").read_bytes() == tree.before["sub/b.py"]


def test_what_is_no_file_any_more_is_stale_and_blocks_no_other(tmp_path: Path) -> None:
    root = tmp_path / "repo"
    names = ("a.py", "folder.py", "gone.py", "loop.py", "sub/b.py")
    tree = make_tree(root, {name: source(number) for number, name in enumerate(names)}, git=True)
    for name in names[1:]:
        (root / name).unlink()
    (root / "folder.py").mkdir()
    (root / "loop.py").symlink_to("loop.py")
    (root / "sub").rmdir()
    (root / "sub").write_text("x\n")
    report = apply_all(tree, is_git=True)
    assert [(trouble.path, trouble.code) for trouble in report.troubles] == [(name, "hole_stale") for name in names[1:]]
    assert report.count(State.APPLIED) == 3


def test_mode_link_and_attributes_stay(tmp_path: Path) -> None:
    root = tmp_path / "repo"
    tree = make_tree(root, {"real.py": source(0)})
    (root / "real.py").chmod(0o755)
    try:
        os.setxattr(root / "real.py", "user.note", b"kept")
    except OSError:
        pytest.skip("no extended attributes here")
    real = root / "kept/real.py"
    real.parent.mkdir()
    (root / "real.py").rename(real)
    (root / "real.py").symlink_to("kept/real.py")
    assert apply_all(tree).troubles == []
    assert (root / "real.py").is_symlink()
    assert real.read_bytes() == tree.after["real.py"]
    assert stat.S_IMODE(real.stat().st_mode) == 0o755
    assert os.getxattr(real, "user.note") == b"kept"


@pytest.mark.parametrize("is_exchanged", [False, True])
def test_a_link_that_leads_elsewhere_after_a_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_exchanged: bool
) -> None:
    """What was begun is settled where it was begun, and nothing stays there."""
    root = tmp_path / "repo"
    for folder, data in (("a", source(0)), ("b", b"X = 1\n")):
        (root / folder).mkdir(parents=True)
        (root / folder / "m.py").write_bytes(data)
    (root / "m.py").symlink_to("a/m.py")
    tree = plan_tree(root, {"m.py": source(0)})

    def crash(temporary: Path, target: Path, *hashes: bytes) -> None:
        if is_exchanged:
            exchange(temporary, target)
        raise KeyboardInterrupt

    with tree.open() as journal, monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(replace, "swap", crash)
        Writer(journal, root).apply(accepted(journal), is_git=False)
    (root / "m.py").unlink()
    (root / "m.py").symlink_to("b/m.py")
    with tree.open() as journal:
        assert Writer(journal, root).unsettled == []
        assert journal.counts() == {State.APPLIED if is_exchanged else State.ACCEPTED: 3}
    assert tree.contents() == {
        "a/m.py": tree.after["m.py"] if is_exchanged else source(0),
        "b/m.py": b"X = 1\n",
        "m.py": b"X = 1\n",
    }


def test_untouched_files_keep_their_times(tmp_path: Path) -> None:
    root = tmp_path / "repo"
    tree = make_tree(root, {"a.py": source(0), "b.py": b"x = 1\n"})
    init_git(root)
    before = (root / "b.py").stat().st_mtime_ns
    apply_all(tree)
    assert (root / "b.py").stat().st_mtime_ns == before
