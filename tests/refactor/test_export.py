"""What leaves a run: patches that git takes, JSON lines, SARIF, a page."""

import json
import subprocess
from pathlib import Path

import pytest
from tests.refactor.trees import Tree, init_git, make_tree, plan_tree, source

from midfill_infill.refactor.journal.records import FillRow, State
from midfill_infill.refactor.reporting.export import HoleLine, exported, json_lines, patch, sarif, write_patches

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


def test_one_patch_a_file(tree: Tree, tmp_path: Path) -> None:
    with tree.open() as journal:
        assert write_patches(journal, tmp_path / "out") == len(FILES)
    for name in FILES:
        git_apply(tree.root, (tmp_path / "out" / f"{name}.patch").read_bytes())
    assert tree.contents() == tree.after


def test_every_hole_is_a_line_of_its_schema(tree: Tree) -> None:
    with tree.open() as journal:
        lines = [HoleLine.model_validate_json(line) for line in json_lines(journal)]
    assert {line.file for line in lines} == set(FILES)
    for line in lines:
        data = FILES[line.file]
        assert data[line.start_byte : line.end_byte] == b"..." and line.old == "..." and line.state == "accepted"
        assert line.line == data[: line.start_byte].count(b"\n") + 1
    assert HoleLine.model_json_schema()["properties"]["version"]["const"] == 1


def test_sarif_fixes_make_the_same_bytes(tree: Tree) -> None:
    with tree.open() as journal:
        log = json.loads(json.dumps(sarif(journal)))
    assert log["version"] == "2.1.0" and log["runs"][0]["tool"]["driver"]["name"] == "midfill"
    rules = {rule["id"] for rule in log["runs"][0]["tool"]["driver"]["rules"]}
    edits: dict[str, list[tuple[int, int, bytes]]] = {}
    for result in log["runs"][0]["results"]:
        assert result["ruleId"] in rules
        change = result["fixes"][0]["artifactChanges"][0]
        region, content = change["replacements"][0]["deletedRegion"], change["replacements"][0]["insertedContent"]
        assert min(region["startLine"], region["startColumn"], region["endLine"], region["endColumn"]) >= 1
        edits.setdefault(change["artifactLocation"]["uri"], []).append(
            (region["byteOffset"], region["byteLength"], content["text"].encode())
        )
    uris = {"with space.py": "with%20space.py", 'quo"te\\.py': "quo%22te%5C.py", "ünïcode.py": "%C3%BCn%C3%AFcode.py"}
    for name, before in FILES.items():
        data = before
        for at, length, text in sorted(edits[uris.get(name, name)], reverse=True):
            data = data[:at] + text + data[at + length :]
        assert data == tree.after[name]


def test_a_fill_with_a_syntax_error_is_in_no_patch_and_no_sarif(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "repo", {"m.py": source(0, 2)}, state=State.GENERATED)
    states = (State.GENERATED,)
    with tree.open() as journal:
        journal.add_fills([(FillRow(1, 0, 0, b"...", b"return (", 1, 0.5), tree.before["m.py"])])
        write_patches(journal, tmp_path / "out", states)
        assert [result["properties"]["hole"] for result in sarif(journal, states)["runs"][0]["results"]] == [2]
    text = (tmp_path / "out/m.py.patch").read_text()
    assert "return (" not in text and "return total" in text


def test_a_file_whose_fills_say_nothing_new_has_no_patch(tmp_path: Path) -> None:
    tree = plan_tree(_written(tmp_path), {"a.py": b"x = 1\n"})
    with tree.open() as journal:
        assert [patch(one) for one in exported(journal)] == []


def _written(tmp_path: Path) -> Path:
    (tmp_path / "a.py").write_bytes(b"x = 1\n")
    init_git(tmp_path)
    return tmp_path
