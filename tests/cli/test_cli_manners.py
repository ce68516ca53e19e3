"""What the command does not do unasked: write what does not parse, take large bodies, read secrets, draw into pipes."""

import errno
import io
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import typer
from rich.console import Console
from tests.cli.fake_engine import read_report
from typer.testing import CliRunner

from midfill_engine.wire import HoleState, Stats
from midfill_infill.cli import build_app, results
from midfill_infill.cli.failures import report_failures
from midfill_infill.cli.filling import Output, _can_choose
from midfill_infill.cli.live import LiveView
from midfill_infill.cli.results import Results, choose, print_remarks
from midfill_infill.errors import INTERRUPTED, TABLE, MidfillError
from midfill_infill.filling.candidates import Alternative, PlacedFill
from midfill_infill.filling.fill import Filled, Preview
from midfill_infill.filling.targets import Source, Target
from midfill_infill.repository.replace import write_atomically
from midfill_infill.splicing.splice import splice
from midfill_infill.syntax.holes import find_stubs
from midfill_infill.text.document import Document
from midfill_infill.text.visible import plural

Answer = Callable[..., None]
Midfill = Callable[..., "subprocess.Popen[bytes]"]
RUNNER = CliRunner()
SOURCE = b"def add(a, b):\n    ...\n"
BROKEN = [["return = ="]]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("t.py").write_bytes(SOURCE)
    return tmp_path


def fill(*words: str, text: bytes = b"") -> tuple[int, bytes, str]:
    result = RUNNER.invoke(build_app(), ["fill", *words], input=text)
    return result.exit_code, result.stdout_bytes, result.stderr


# Syntax errors.


def test_a_broken_fill_is_not_written(answer: Answer) -> None:
    answer(rows=BROKEN)
    code, out, err = fill("t.py", "--write")
    assert (code, Path("t.py").read_bytes()) == (6, SOURCE)
    assert b"+    return = =" in out, "it is shown"
    assert err.count("\n") == 1 and "t.py is not written" in err and "--allow-errors" in err


def test_a_broken_fill_is_written_where_that_is_allowed(answer: Answer) -> None:
    answer(rows=BROKEN)
    code, _, err = fill("t.py", "--write", "--allow-errors")
    assert (code, Path("t.py").read_bytes()) == (0, b"def add(a, b):\n    return = =\n")
    assert "syntax error" in err


def test_json_of_a_broken_fill_says_that_nothing_is_written(answer: Answer) -> None:
    answer(rows=BROKEN)
    code, out, _ = fill("t.py", "--write", "--json")
    report = read_report(out)
    assert (code, report.written, report.new_errors > 0) == (6, False, True)


# Alternatives.

ROWS = [["return a + b"], ["return b + a"], ["return sum((a, b))"]]


def test_all_alternatives_are_shown_with_numbers(answer: Answer) -> None:
    answer(rows=ROWS)
    code, out, _ = fill("t.py", "-n", "3")
    assert code == 0
    titles = [line for line in out.decode().splitlines() if line.startswith("# alternative")]
    assert titles == [f"# alternative {number} of 3, adds no syntax error" for number in (1, 2, 3)]
    assert all(row[0].encode() in out for row in ROWS)


def test_one_alternative_is_taken(answer: Answer) -> None:
    answer(rows=ROWS)
    code, out, _ = fill("t.py", "-n", "3", "--take", "2")
    assert out.startswith(b"# alternative 2 of 3, "), out
    subprocess.run(["git", "apply", "-p0"], input=out, check=True)
    assert (code, Path("t.py").read_bytes()) == (0, b"def add(a, b):\n    return b + a\n")
    Path("t.py").write_bytes(SOURCE)
    assert fill("t.py", "-n", "3", "--take", "3", "--write")[0] == 0
    assert Path("t.py").read_bytes() == b"def add(a, b):\n    return sum((a, b))\n"
    Path("t.py").write_bytes(SOURCE)
    report = read_report(fill("t.py:1", "-n", "3", "--take", "2", "--json")[1])
    assert [report.holes[0].text, *(each.holes[0].text for each in report.alternatives)] == [
        "return b + a", "return a + b", "return sum((a, b))",
    ]  # fmt: skip


def test_fewer_alternatives_than_asked_for_are_said(answer: Answer) -> None:
    answer(rows=[*ROWS, ROWS[0]])
    code, out, err = fill("t.py", "-n", "4")
    assert (code, out.count(b"# alternative ")) == (0, 3)
    assert b"midfill: only 3 of 4 fills differ and do something; --seed draws others" in err.encode()
    assert "fills" not in fill("t.py", "-n", "3")[2]


@pytest.mark.parametrize(
    ("words", "says"), [((), "--take 2 of -n 1"), (("-n", "3"), "the fill has 1 alternative, not 2")]
)
def test_an_alternative_that_there_is_not(answer: Answer, words: tuple[str, ...], says: str) -> None:
    code, out, err = fill("t.py", "--take", "2", *words)
    assert (code, out) == (2, b"") and says in err


def three_results() -> Results:
    document = Document(SOURCE, "python", Path("t.py"))
    (hole,) = find_stubs(document)
    rows = [Alternative(splice(document, [hole], row).patch, (PlacedFill(hole, row[0], (), ()),), 0) for row in ROWS]
    return Results(
        Path("t.py"), document, Filled(rows[0], tuple(rows[1:]), Stats(steps=1, forwards=1, tokens=1, ms=1), "fake")
    )


@pytest.mark.parametrize(
    ("keys", "chosen"), [("w", (1, True)), ("q", (1, False)), ("3x9w", (3, True)), ("23\x1b", (3, False))]
)
def test_pressed_keys_show_and_choose_alternatives(
    keys: str, chosen: tuple[int, bool], capfd: pytest.CaptureFixture[str]
) -> None:
    pressed: Iterator[str] = iter(keys)
    assert choose(three_results(), lambda: next(pressed)) == chosen
    shown = capfd.readouterr().out
    assert [number for number in (1, 2, 3) if f"alternative {number} of 3" in shown] == sorted(
        {1, *map(int, filter(str.isdigit, keys.replace("9", "")))}
    )


def test_a_text_from_standard_input_is_not_written_by_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    for stream in (sys.stdin, sys.stdout):
        monkeypatch.setattr(stream, "isatty", lambda: True)
    results = three_results()
    for is_stdin in (False, True):
        source = Source(Target(results.path), results.document, is_stdin)
        assert _can_choose(results, source, Output(diff=is_stdin)) is not is_stdin


def test_who_gave_write_is_not_told_to_add_it(capsys: pytest.CaptureFixture[str]) -> None:
    print_remarks(three_results(), written=False, is_refused=True, wall_ms=1.0, for_person=True)
    assert "nothing written (" in capsys.readouterr().err


def test_an_interrupt_at_the_keys() -> None:
    with pytest.raises(KeyboardInterrupt):
        choose(three_results(), lambda: "\x03")


def test_the_end_of_the_input_at_the_keys_is_an_interrupt() -> None:
    def end() -> str:
        raise EOFError

    with pytest.raises(KeyboardInterrupt):
        choose(three_results(), end)


def test_the_end_of_the_input_at_a_question_is_an_interrupt(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    with pytest.raises(typer.Exit) as ended, report_failures():
        typer.confirm("Go on?", err=True)
    assert ended.value.exit_code == INTERRUPTED
    assert capsys.readouterr().err.endswith("midfill: interrupted; nothing was written.\n")


# Standard input.


def test_standard_input_is_filled_to_standard_output(answer: Answer) -> None:
    assert fill("-", "--language", "python", text=SOURCE) == (0, b"def add(a, b):\n    return a + b\n", "")
    code, out, err = fill("-:1", "--stdin-filename", "src/x.py", "--diff", text=SOURCE.replace(b"\n", b"\r\n"))
    assert (code, err) == (0, "")
    assert b"--- src/x.py\n" in out and b"+    return a + b\r\n" in out
    assert read_report(fill("-", "--language", "python", "--json", text=SOURCE)[1]).file == "stdin"


def test_a_filter_gives_nothing_rather_than_what_does_not_parse(answer: Answer) -> None:
    answer(rows=BROKEN)
    code, out, err = fill("-", "--language", "python", text=SOURCE)
    assert (code, out, err.count("\n")) == (6, b"", 1)
    assert b"return = =" in fill("-", "--language", "python", "--allow-errors", text=SOURCE)[1]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["-"], "unknown_language"), (["-", "--language", "cobol"], "unknown_language"),
        (["-", "--stdin-filename", "x.py", "--write"], "bad_request"),
        (["t.py", "--stdin-filename", "x.py"], "bad_request"),
        (["-", "--stdin-filename", ".env", "--language", "python"], "file_excluded"),
    ],
)  # fmt: skip
def test_standard_input_that_cannot_be_filled(words: list[str], code: str) -> None:
    got, out, err = fill(*words, text=SOURCE)
    assert (got, out, err.count("\n")) == (TABLE[code].exit_code, b"", 1)


def test_standard_input_that_is_too_large() -> None:
    assert fill("-", "--language", "python", text=b"a = 1\n" * 200_000)[0] == TABLE["file_too_large"].exit_code


def test_a_language_by_name(answer: Answer) -> None:
    Path("script").write_bytes(SOURCE)
    assert fill("script:1")[0] == TABLE["unknown_language"].exit_code
    assert b"return a + b" in fill("script:1", "--language", "python")[1]


# Secrets.


@pytest.mark.parametrize("name", [".env", "server.pem", "secrets.js", ".aws/config.py"])
def test_secrets_are_left_out_as_in_editors(answer: Answer, name: str) -> None:
    Path(name).parent.mkdir(exist_ok=True)
    Path(name).write_bytes(SOURCE)
    code, out, err = fill(name, "--hole", "2:5-2:8")
    assert (code, out) == (TABLE["file_excluded"].exit_code, b"")
    assert "its name is that of a file with secrets" in err


def test_what_git_ignores_is_left_out_as_in_editors(answer: Answer, folder: Path) -> None:
    (folder / ".git").mkdir()
    Path(".gitignore").write_text("t.py\n")
    assert "git ignores it" in fill("t.py")[2]


# Large bodies.

LARGE = b"def f():\n" + b"".join(b"    x = %d\n" % number for number in range(60)) + b"\n\ndef g():\n    ...\n"


def test_a_large_body_is_not_replaced_unasked(answer: Answer) -> None:
    Path("t.py").write_bytes(LARGE)
    code, out, err = fill("t.py:5", "--write")
    assert (code, out) == (2, b"") and Path("t.py").read_bytes() == LARGE
    assert "60 of 65 lines (t.py:2 to 61, f)" in err and "--yes" in err
    assert fill("t.py:5", "--write", "--yes")[0] == 0
    assert Path("t.py").read_bytes().startswith(b"def f():\n    return a + b\n\n\ndef g")


def test_a_large_body_is_told_before_a_diff(answer: Answer) -> None:
    Path("t.py").write_bytes(LARGE)
    code, out, err = fill("t.py:5")
    assert code == 0 and "this replaces 60 of 65 lines" in err
    assert out.startswith(b"# t.py:2 f: 60 of 65 lines replaced by 1\n")
    assert fill("t.py:65", "--write")[2] == "", "a stub is none"
    assert fill("-:5", "--language", "python", text=LARGE)[0] == 2, "a filter replaces, too"


@pytest.mark.parametrize(
    ("lines", "of", "is_large"), [(10, 12, False), (11, 100, True), (11, 200, False), (41, 900, True)]
)
def test_only_the_replacement_of_a_large_body_is_announced(answer: Answer, lines: int, of: int, is_large: bool) -> None:
    Path("t.py").write_bytes(b"def f():\n" + b"    x = 1\n" * lines + b"y = 1\n" * (of - lines - 1))
    assert ("this replaces" in fill("t.py:2")[2]) is is_large
    words = ["--hole", f"2:5-{lines + 1}:10", "--write", "--min-certainty", "0"]
    assert fill("t.py", *words)[2] == "", "ends that were given are meant"


# Terminals and pipes.


def test_colours_that_are_forced_draw_no_frame_into_a_pipe(midfill: Midfill, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    out, _ = midfill("fill", "t.py:2").communicate()
    assert b"\x1b" not in out and b"step" not in out
    subprocess.run(["git", "apply", "-p0"], input=out, check=True)


def test_a_stream_of_ascii_takes_everything(midfill: Midfill, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.cli.command import read_all

    Path("t.py").write_text("def add(a, b):\n    # \u00e4\u2192\n    ...\n", "utf-8")
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    ours, theirs = os.openpty()
    process = midfill("fill", "t.py:2", stdout=theirs, stderr=theirs)
    os.close(theirs)
    shown = read_all(ours)
    assert process.wait() == 0
    assert "____" in shown and "+    return a + b" in shown and "\x1b[?25h" in shown, "the cursor is back"


@pytest.mark.parametrize("num_holes", [1, 4, 30])
def test_small_terminals_show_every_hole(num_holes: int) -> None:
    source = "".join(f"def function_with_a_long_name_{n}(a, b):\n    ...\n\n\n" for n in range(num_holes))
    document = Document(source.encode(), "python", Path("t.py"))
    console = Console(file=io.StringIO(), width=40, height=12, force_terminal=True)
    text = "x = 1\n" * 20 + "return a"
    looks = [HoleState(text=text, settled=[(0, 5)], masked=9 if n else 0) for n in range(num_holes)]
    with console.capture() as capture:
        console.print(LiveView(document, find_stubs(document), console)._render(Preview(1, 2, looks)))
    frame = capture.get()
    assert frame.count("\n") < 12
    seen = [n for n in range(num_holes) if f"t.py:{4 * n + 2} " in frame]
    assert seen == list(range(num_holes))[:10] if num_holes < 10 else len(seen) == 10 and 1 in seen
    assert "x = 1" in frame or num_holes > 5


@pytest.mark.parametrize(("code", "advice"), [(errno.ENOSPC, "free some space"), (errno.EFBIG, "`ulimit -f`")])
def test_a_full_disk_is_one_sentence(code: int, advice: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(MidfillError) as error:
        write_atomically(Path("t.py"), SOURCE, b"new")
    assert advice in error.value.sentence and error.value.exit_code == 3
    assert (Path("t.py").read_bytes(), [path.name for path in tmp_path.iterdir()]) == (SOURCE, ["t.py"])


FULL = b"midfill: the output cannot be written (No space left on device); "


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("t.py:2",), FULL + b"free some space and run the command again.\n"),
        (("t.py:2", "--write"), FULL + b"t.py is written.\n"),
        (("t.py:2", "--write", "--json"), FULL + b"t.py is written.\n"),
        (("missing.py", "--json"), b"midfill: missing.py does not exist; check the path.\n"),
    ],
)
def test_a_full_output_is_one_sentence(midfill: Midfill, words: tuple[str, ...], sentence: bytes) -> None:
    with open("/dev/full", "wb") as full:
        process = midfill("fill", *words, stdout=full)
    assert process.wait() == 3 and process.stderr is not None
    with process.stderr as stream:
        assert stream.read() == sentence
    process.stderr = None
    assert ("--write" in words) is (Path("t.py").read_bytes() != SOURCE)


def test_a_reader_that_leaves_ends_the_command_quietly(midfill: Midfill) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    process = midfill("fill", "t.py:2", "--write", "--json", stdout=writing)
    os.close(writing)
    assert process.wait() == 130 and process.stderr is not None
    with process.stderr as stream:
        assert stream.read() == b""
    process.stderr = None


def test_numbers_agree_with_their_words() -> None:
    assert [plural(1, "patch"), plural(2, "patch"), plural(0, "line")] == ["1 patch", "2 patches", "0 lines"]
    assert results.errors_of(three_results().candidates[0]) == "adds no syntax error"
