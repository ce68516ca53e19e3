"""What the command says where it can do nothing: one sentence, an exit code of the table, no traceback."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.fake_engine import Plan
from typer.testing import CliRunner

from midfill_infill.cli import build_app
from midfill_infill.errors import TABLE, MidfillError
from midfill_infill.filling.targets import Target, parse_target
from midfill_infill.text.document import Document

RUNNER = CliRunner()
SOURCE = 'def add(a, b):\n    """Sum."""\n    ...\n\n\ndef sub(a, b):\n    ...\n'


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("t.py").write_text(SOURCE)
    Path("full.py").write_text("def f():\n    return 1\n")
    Path("folder").mkdir()
    for name, to in {"loop.py": "loop.py", "one.py": "two.py", "two.py": "one.py"}.items():
        Path(name).symlink_to(to)
    Path("binary.py").write_bytes(b"\0\1\2" * 100)
    Path("big.py").write_bytes(b"a = 1\n" * 900_000)
    Path("locked.py").write_text("...")
    Path("notes.txt").write_text("one\ntwo\n")
    return tmp_path


CASES = {
    "missing file": (["none.py"], "file_missing", "none.py"),
    "missing file with position": (["none.py:3"], "file_missing", "none.py does"),
    "folder": (["folder"], "file_is_directory", "folder"),
    "folder with position": (["folder:3"], "file_is_directory", "folder"),
    "link to itself": (["loop.py:1"], "file_unreadable", "loop.py cannot be read"),
    "links to each other": (["one.py"], "file_unreadable", "one.py cannot be read"),
    "binary": (["binary.py"], "file_binary", "binary.py"),
    "5 MB": (["big.py:1"], "file_too_large", "big.py"),
    "line outside": (["t.py:99"], "position_outside", "99"),
    "line zero": (["t.py:0"], "position_outside", "0"),
    "column outside": (["t.py:3:99"], "position_outside", "99"),
    "column zero": (["t.py:3:0"], "position_outside", "0"),
    "no position": (["t.py:three"], "bad_position", "three"),
    "no range": (["t.py", "--hole", "3"], "bad_position", "3"),
    "range outside": (["t.py", "--hole", "1:1-99:1"], "position_outside", "99"),
    "overlap": (["t.py", "--hole", "3:5-3:8", "--hole", "3:6-7:8"], "overlapping_holes", "t.py"),
    "no function": (["t.py", "--function", "mul"], "no_function", "mul"),
    "two stubs": (["t.py"], "ambiguous_hole", "2 stubs"),
    "no stub": (["full.py"], "no_hole", "full.py"),
    "no stubs": (["full.py", "--stubs"], "no_stubs", "full.py"),
    "no language": (["notes.txt", "--stubs"], "unknown_language", "notes.txt"),
}


@pytest.mark.parametrize("case", CASES)
def test_failure_is_one_sentence(files: Path, runtime: Path, case: str) -> None:
    words, code, said = CASES[case]
    result = RUNNER.invoke(build_app(), ["fill", *words])
    assert result.exit_code == TABLE[code].exit_code != 0
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert said in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("case", CASES)
def test_failure_as_json(files: Path, runtime: Path, case: str) -> None:
    words, code, said = CASES[case]
    result = RUNNER.invoke(build_app(), ["fill", *words, "--json"])
    assert result.exit_code == TABLE[code].exit_code
    error = json.loads(result.stdout)["error"]
    assert error["code"] == code
    assert said in error["message"]
    assert error["next_step"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_unreadable_file(files: Path, runtime: Path) -> None:
    Path("locked.py").chmod(0)
    result = RUNNER.invoke(build_app(), ["fill", "locked.py"])
    assert (result.exit_code, result.stderr.count("\n")) == (TABLE["file_unreadable"].exit_code, 1)


def test_unknown_model_is_relayed(files: Path, fake_command: Path, set_plan: Callable[..., Plan]) -> None:
    set_plan(exit_code=3, exit_line='{"code": "unknown_model", "message": "no model x.", "next_step": "known: a"}')
    result = RUNNER.invoke(build_app(), ["fill", "t.py:3", "--model", "x"])
    assert (result.exit_code, result.stderr) == (5, "midfill: no model x; known: a.\n")


def test_fault_of_our_own_is_one_sentence(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(text: str) -> Target:
        raise ZeroDivisionError("surprise")

    monkeypatch.setattr("midfill_infill.filling.targets.parse_target", fail)
    result = RUNNER.invoke(build_app(), ["fill", "t.py"])
    assert result.exit_code == 70
    assert "ZeroDivisionError" in result.stderr and "surprise" not in result.stderr and result.stderr.count("\n") == 1
    monkeypatch.setenv("MIDFILL_DEBUG", "1")
    assert isinstance(RUNNER.invoke(build_app(), ["fill", "t.py"]).exception, ZeroDivisionError)


@pytest.mark.parametrize(
    "words", [["--steps", "0"], ["--quality", "2"], ["-n", "9"], ["--device", "abacus"], ["--nope"]]
)
def test_option_outside_its_range(files: Path, words: list[str]) -> None:
    assert RUNNER.invoke(build_app(), ["fill", "t.py", *words]).exit_code == 2


def test_every_row_of_the_table_continues_a_sentence() -> None:
    for code, entry in TABLE.items():
        assert entry.exit_code > 0
        sentence = MidfillError(code, "something is wrong.").sentence
        assert sentence == f"something is wrong; {entry.next_step}."
        assert entry.next_step[0].islower() and "\n" not in sentence
    assert MidfillError("internal", "these changed: a, b, ...").message == "these changed: a, b, ..."


def test_a_target_is_a_file_with_a_line_and_a_column(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a:b.py", "a:1", "t.py"):
        Path(name).touch()
    assert parse_target("t.py") == Target(Path("t.py"))
    assert parse_target("t.py:3") == Target(Path("t.py"), 3)
    assert parse_target("t.py:3:4") == Target(Path("t.py"), 3, 4)
    assert parse_target("a:b.py") == Target(Path("a:b.py"))
    assert parse_target("a:b.py:3:4") == Target(Path("a:b.py"), 3, 4)
    assert parse_target("a:1") == Target(Path("a:1"))
    assert parse_target("a:1:2") == Target(Path("a:1"), 2)
    assert parse_target("a" * 5000) == Target(Path("a" * 5000))
    assert parse_target(r"C:\code\x.py:3") == Target(Path(r"C:\code\x.py"), 3)
    assert parse_target(r"C:\code\x.py") == Target(Path(r"C:\code\x.py"))


def test_a_folder_that_must_not_be_entered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: object, **_: object) -> os.stat_result:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "stat", refuse)
    assert parse_target("p/x.py:3") == Target(Path("p/x.py"), 3)
    with pytest.raises(MidfillError) as error:
        Document.read(Path("p/x.py"))
    assert error.value.code == "file_unreadable"


def test_the_dial_is_a_number_or_the_authors_word() -> None:
    from midfill_infill.cli.options import read_quality

    assert (read_quality("0.25"), read_quality("authors")) == (0.25, "authors")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("fill t.py:3 --tries 3", "--tries does nothing without --until; add that, or leave out --tries."),
        ("fill t.py:3 --no-sandbox", "--no-sandbox does nothing without --until"),
        ("fill t.py:3 --env A", "--env does nothing without --until"),
        ("fill t.py:3 --diff", "--diff does nothing without - as FILE"),
        ("fill t.py:3 --min-certainty 0", "--min-certainty does nothing without --write or - as FILE"),
        ("fill t.py:3 --allow-errors", "--allow-errors does nothing without --write or -n or - as FILE"),
        ("fill t.py:3 --until true --min-certainty 1 --write", "--min-certainty does nothing with --until"),
        ("fill t.py:3 --json --frame-ms 9", "--frame-ms does nothing with --json; leave out --frame-ms."),
        ("fill t.py --function add --outer", "--outer does nothing without a place"),
        ("measure --command-timeout 3", "--command-timeout does nothing without --until"),
        ("refactor generate --ray-address a", "--ray-address does nothing without --ray"),
        ("refactor generate --until true --jobs 2", "--jobs does nothing with --until"),
        ("refactor apply --timeout-s 9", "--timeout-s does nothing without --verify"),
        ("refactor apply --min-certainty 0", "--min-certainty does nothing without --all"),
        ("serve --port 8427", "--port does nothing without --host"),
        ("serve --host localhost --keyfile k", "--keyfile does nothing without --certfile"),
    ],
)
def test_an_option_without_effect_is_refused(files: Path, words: str, said: str) -> None:
    result = RUNNER.invoke(build_app(), words.split())
    assert result.exit_code == 2 and f"midfill: {said}" in result.stderr
    if "--json" in words:
        assert json.loads(result.stdout)["error"]["code"] == "bad_request"


def test_an_option_of_a_filter_needs_no_write(files: Path) -> None:
    result = RUNNER.invoke(build_app(), ["fill", "-:99", "--min-certainty", "0", "--allow-errors"], input=SOURCE)
    assert result.exit_code == TABLE["position_outside"].exit_code and "99" in result.stderr
