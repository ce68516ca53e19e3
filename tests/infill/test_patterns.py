"""Patterns as in a `.gitignore`: those of a reference, and what a stranger's file of them cannot do."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pathspec import GitIgnoreSpec
from pathspec.patterns.gitignore import GitIgnorePatternError

from midfill_infill.errors import MidfillError
from midfill_infill.repository import walk
from midfill_infill.repository.exclusions import find_exclusion, find_named_exclusion, is_ignored, is_secret
from midfill_infill.repository.guards import is_foreign
from midfill_infill.repository.patterns import (
    MAX_BYTES,
    MAX_PATTERN_CHARS,
    MAX_PATTERNS,
    Patterns,
    anywhere,
    read_lines,
)
from midfill_infill.repository.walk import choose, read_attributes

PARTS = st.sampled_from(["*", "*", "a", "b", "**/", "/**", "/", "?", "[ab]", "!", r"\*", ".", "(", "+"])
LINE = st.lists(PARTS, min_size=1, max_size=9).map("".join)
NAME = st.lists(st.text("ab*(", min_size=1, max_size=5), min_size=1, max_size=4).map("/".join)


@given(st.lists(LINE, min_size=1, max_size=3), NAME, st.sampled_from(["", "/"]))
def test_patterns_say_what_the_reference_says(lines: list[str], name: str, end: str) -> None:
    try:
        reference = GitIgnoreSpec.from_lines(lines)
    except GitIgnorePatternError:
        return
    assert Patterns(lines).says(name + end) == reference.check_file(name + end).include


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("*a" * 30 + "*b", "a" * 250),
        ("*a*a*a/" * 6 + "*b", ("a" * 60 + "/") * 6 + "c"),
        ("**/a/" * 9 + "b", "a/" * 1500 + "c"),
        ("*a*a/**/" * 9 + "b", ("a" * 50 + "/") * 60 + "c"),
    ],
)
def test_no_pattern_delays_who_asks(pattern: str, name: str) -> None:
    """Tried in every way, each of these would take longer than the test may."""
    assert Patterns([pattern]).says(name) is None


@pytest.mark.parametrize("line", ["!", "/", "//", "\\", "a\\", "[z-a]", "[", "\0", "***", "!!"])
def test_a_line_that_is_no_pattern_leaves_the_others(tmp_path: Path, line: str) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".gitignore").write_text(f"{line}\nbuild/\n")
    assert find_exclusion(tmp_path / "build/a.py") == "git ignores it"
    (tmp_path / ".gitattributes").write_text(f"{line} linguist-generated\nmade.py linguist-generated\n")
    assert walk.is_foreign("made.py", read_attributes(tmp_path))


@pytest.mark.parametrize("glob", ["", "!", "a\\", "[z-a]"])
def test_what_is_no_pattern_is_one_sentence_for_who_gives_it(glob: str) -> None:
    with pytest.raises(MidfillError, match="is no pattern"):
        list(choose(["made.py"], ["*.py", glob]))


def test_attributes_are_unset_as_in_git(tmp_path: Path) -> None:
    names = ["made.js", "own.js", "my.js", "false.js", "other.js", "both.js"]
    (tmp_path / ".gitattributes").write_text(
        "*.js linguist-generated\nown.js -linguist-generated\nmy.js !linguist-generated\n"
        "false.js linguist-generated=false\nother.js linguist-generated text=false\n"
        "both.js linguist-vendored\nboth.js -linguist-generated\n"
    )
    marked = read_attributes(tmp_path)
    assert [name for name in names if not walk.is_foreign(name, marked)] == ["own.js", "my.js", "false.js"]


@pytest.mark.parametrize("name", ["src/file-lock.ts", "mutex-lock.go", "a.lock.py", "package-lock.json", "uv.lock"])
def test_a_lock_is_written_by_hand_and_a_lock_file_is_not(name: str) -> None:
    assert is_foreign(name) == name.endswith((".json", "uv.lock"))


def test_the_first_pattern_is_read_behind_a_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_bytes(b"\xef\xbb\xbfmine.py\r\nours.py\r\n")
    assert is_ignored(tmp_path / "mine.py", tmp_path) and is_ignored(tmp_path / "ours.py", tmp_path)


def test_only_a_file_is_read(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    ignore = tmp_path / ".gitignore"
    ignore.symlink_to("/dev/zero")
    assert find_exclusion(tmp_path / "a.py") is None
    assert not is_ignored(tmp_path / "a.py", tmp_path)
    ignore.unlink()
    os.mkfifo(ignore)
    assert find_exclusion(tmp_path / "a.py") is None
    with pytest.raises(OSError, match="not a regular file"):
        read_lines(Path("/dev/zero"), follow=True)


def test_git_reads_its_own_list_through_a_link(tmp_path: Path) -> None:
    (tmp_path / ".git/info").mkdir(parents=True)
    (tmp_path / "list").write_text("mine.py\n")
    (tmp_path / ".git/info/exclude").symlink_to(tmp_path / "list")
    assert find_exclusion(tmp_path / "mine.py") == "git ignores it"


@pytest.mark.parametrize("text", ["#" * (MAX_BYTES + 1), "a\n" * (MAX_PATTERNS + 1), "a" * (MAX_PATTERN_CHARS + 1)])
def test_too_many_patterns_leave_all_out(tmp_path: Path, text: str) -> None:
    (tmp_path / "patterns").write_text(text)
    assert read_lines(tmp_path / "patterns") == ["*"]


@pytest.mark.parametrize(
    ("pattern", "moved"),
    [("a/b", "**/a/b"), ("/a", "**/a"), ("!a/b/", "!**/a/b/"), ("a/", "a/"), ("**/a", "**/a"), ("#a/b", "#a/b")],
)
def test_patterns_relative_to_any_folder(pattern: str, moved: str) -> None:
    assert anywhere(pattern) == moved


@pytest.mark.parametrize(
    "name",
    [".env", ".ENV", "a/.Env.local", "Secrets.json", "SECRET.toml", "ID_RSA", "x/.AWS/config", ".Kube/Config", "a.PEM"],
)
def test_names_of_secrets_in_any_case(name: str) -> None:
    assert find_named_exclusion(name, ()) == "its name is that of a file with secrets" and is_secret(f"/me/{name}")


@pytest.mark.parametrize(
    "name", ["secrets.py", "Secret.java", "Secrets.tsx", "environment.py", "src/Secret.h", "monkey"]
)
def test_names_of_code_are_no_secrets(name: str) -> None:
    assert find_named_exclusion(f"/me/{name}", ()) is None
