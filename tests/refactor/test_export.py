"""What leaves a run: patches that git takes, and JSON lines."""

import json
import subprocess
from pathlib import Path

import pytest
from tests.refactor.trees import Tree, init_git, make_tree, plan_tree, source

from midfill_infill.refactor.journal.records import FillRow, State
from midfill_infill.refactor.reporting.export import exported, json_lines, patch

FILES = {
    "plain.py": source(0),
    "with space.py": source(1),
    'quo"te\\.py': source(2),
    "ünïcode.py": source(3),
    "no_end.py": b"def f():\n    ...",
    "crlf.py": source(4).replace(b"\n", b"\r\n"),
    "latin.py": b"# coding: latin-1\nX = '\xe9'\n\ndef f():\n    ...\n",
    "feed.py": b"\x0c\nX = '\xe2\x80\xa8'\n\ndef f():\n    ...\n",
}


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return make_tree(tmp_path / "repo", FILES, git=True)


def git_apply(root: Path, data: bytes, *words: str) -> None:
    subprocess.run(["git", "apply", *words], cwd=root, input=data, check=True, capture_output=True)


def test_git_takes_the_patch_and_makes_the_same_bytes(tree: Tree) -> None:
    with tree.open() as journal:
        data = b"".join(patch(one) for one in exported(journal))
    git_apply(tree.root, data, "--check")
    git_apply(tree.root, data)
    assert tree.contents() == tree.after
    git_apply(tree.root, data, "-R")
    assert tree.contents() == tree.before


def test_every_hole_is_a_line(tree: Tree) -> None:
    with tree.open() as journal:
        lines = [json.loads(line) for line in json_lines(journal)]
    assert {line["file"] for line in lines} == set(FILES)
    for line in lines:
        data, start = FILES[line["file"]], line["start_byte"]
        assert data[start : line["end_byte"]] == b"..." and (line["old"], line["state"]) == ("...", "accepted")
        assert line["line"] == data[:start].count(b"\n") + 1 and line["version"] == 1 and line["new"]


def test_a_fill_with_a_syntax_error_is_in_no_patch(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "repo", {"m.py": source(0, 2)}, state=State.GENERATED)
    with tree.open() as journal:
        journal.add_fills([(FillRow(1, 0, 0, b"...", b"return (", 1, 0.5), tree.before["m.py"])])
        text = b"".join(patch(one) for one in exported(journal, (State.GENERATED,), 0)).decode()
    assert "return (" not in text and "return total" in text


def test_a_file_whose_fills_say_nothing_new_has_no_patch(tmp_path: Path) -> None:
    tree = plan_tree(_written(tmp_path), {"a.py": b"x = 1\n"})
    with tree.open() as journal:
        assert [patch(one) for one in exported(journal)] == []


def _written(tmp_path: Path) -> Path:
    (tmp_path / "a.py").write_bytes(b"x = 1\n")
    init_git(tmp_path)
    return tmp_path
