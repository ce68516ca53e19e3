"""The command's results: diff, written file, JSON, live view. In this process, with a scripted engine."""

import io
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console
from tests.cli.fake_engine import read_record, read_report
from typer.testing import CliRunner

from midfill_engine.wire import HoleState
from midfill_infill.cli import build_app
from midfill_infill.cli.live import LiveView, color_diff, render_preview
from midfill_infill.errors import MidfillError
from midfill_infill.filling.candidates import Alternative, PlacedFill
from midfill_infill.filling.fill import Preview
from midfill_infill.repository.replace import write_atomically
from midfill_infill.splicing.splice import splice
from midfill_infill.syntax import holes
from midfill_infill.text.diffs import unified_diff
from midfill_infill.text.document import Document
from midfill_infill.text.visible import visible

Answer = Callable[..., None]
RUNNER = CliRunner()
SOURCE = b'def add(a, b):\r\n    """Return the sum of a and b."""\r\n    ...\r\nx = "\xc3\xa4'
TITLE = b"# t.py:3 add: 1 of 4 lines replaced by 1\n"
DIFF = (
    b'--- t.py\n+++ t.py\n@@ -1,4 +1,4 @@\n def add(a, b):\r\n     """Return the sum of a and b."""\r\n'
    b'-    ...\r\n+    return a + b\r\n x = "\xc3\xa4\n\\ No newline at end of file\n'
)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    Path("t.py").write_bytes(SOURCE)
    return Path("t.py")


def test_diff_is_shown_and_nothing_written(file: Path, answer: Answer) -> None:
    result = RUNNER.invoke(build_app(), ["fill", "t.py:3"])
    assert (result.exit_code, result.stdout_bytes, result.stderr) == (0, TITLE + DIFF, "")
    assert file.read_bytes() == SOURCE


@pytest.mark.parametrize("text", ["return a - b", ""])
def test_a_fill_that_changes_nothing_says_so(file: Path, answer: Answer, text: str) -> None:
    answer(rows=[[text]])
    file.write_bytes(b"def add(a, b):\n    return a - b\n")
    result = RUNNER.invoke(build_app(), ["fill", "t.py:1"])
    assert result.stdout == "# t.py:2 add: unchanged\n"


def test_diff_can_be_applied(file: Path, answer: Answer) -> None:
    diff = RUNNER.invoke(build_app(), ["fill", "t.py:3"]).stdout_bytes
    subprocess.run(["git", "apply", "-p0", "--whitespace=nowarn"], input=diff, check=True)
    assert file.read_bytes() == SOURCE.replace(b"...", b"return a + b")


def test_write_changes_only_the_hole_and_keeps_the_mode(file: Path, answer: Answer) -> None:
    file.chmod(0o751)
    result = RUNNER.invoke(build_app(), ["fill", "t.py", "--write"])
    assert result.exit_code == 0
    assert file.read_bytes() == SOURCE.replace(b"...", b"return a + b")
    assert file.stat().st_mode & 0o7777 == 0o751
    assert sorted(path.name for path in Path().iterdir()) == ["t.py"], "no temporary file is left"


def test_json_has_its_schema(file: Path, answer: Answer) -> None:
    answer(rows=[["return a + b"], ["return b + a"]])
    result = RUNNER.invoke(build_app(), ["fill", "t.py:3", "--json", "-n", "2"])
    report = read_report(result.stdout)
    (hole,) = report.holes
    assert (report.file, report.model, report.written, report.new_errors) == ("t.py", "fake", False, 0)
    assert (hole.name, hole.line, hole.column, hole.text) == ("add", 3, 5, "return a + b")
    assert SOURCE[hole.start_byte : hole.end_byte] == b"..."
    assert [hole.text[start:end] for start, end in hole.tokens] == ["retu", "rn a", " + b"]
    assert hole.confidence == [0.9] * 3
    assert report.diff == DIFF.decode()
    assert [each.holes[0].text for each in report.alternatives] == ["return b + a"]
    assert report.stats.wall_ms > report.stats.ms


@pytest.mark.parametrize(
    ("source", "words", "rows"),
    [
        (b"def f():\r\n    # do it\r\n\r\nx = '\xc3\xa4'\r\n", ["t.py:1"], ["a = 1\nreturn a"]),
        ("\ufeffdef f():\n    a = 'ä'\n\n    return a\n".encode(), ["t.py:3"], ["b = 'ü'"]),
        (b"# coding: latin-1\ndef f():\n    ...\n\ndef g():\n    return '\xe4'\n", ["t.py", "--stubs"], ["return 1"]),
        (b"def f():\n    a('\xff')\n\ndef g(): ...\n", ["t.py:1", "--function", "g"], ["", "return 1"]),
        (b"def f():\n    x()\n", ["t.py:3"], ["y()"]),
    ],
)
def test_json_holds_the_edits_that_write_makes(
    file: Path, answer: Answer, source: bytes, words: list[str], rows: list[str]
) -> None:
    answer(rows=[rows])
    file.write_bytes(source)
    report = json.loads(RUNNER.invoke(build_app(), ["fill", *words, "--json"]).stdout_bytes)
    data = bytearray(source)
    for hole in reversed(report["holes"]):
        replacement = hole["replacement"].encode(report["encoding"], "surrogateescape")
        data[hole["start_byte"] : hole["end_byte"]] = replacement
    assert RUNNER.invoke(build_app(), ["fill", *words, "--write"]).exit_code == 0
    assert bytes(data) == file.read_bytes() != source


def test_name_that_is_no_text_is_no_obstacle(file: Path, answer: Answer) -> None:
    name = os.fsdecode(b"caf\xe9.py")
    Path(name).write_bytes(SOURCE)
    result = RUNNER.invoke(build_app(), ["fill", f"{name}:3", "--json"])
    assert read_report(result.stdout_bytes).file == "caf?.py"


def test_several_holes_are_filled_jointly(file: Path, answer: Answer, tmp_path: Path) -> None:
    record = tmp_path / "record"
    answer(rows=[["return a", "40 + 2"]], record=str(record))
    file.write_bytes(b"def f(a):\n    ...\n\nx = 42\ny = x\n")
    words = ["--hole", "4:5-4:7", "--function", "f", "--write"]
    assert RUNNER.invoke(build_app(), ["fill", "t.py", *words]).exit_code == 0
    assert file.read_bytes() == b"def f(a):\n    return a\n\nx = 40 + 2\ny = x\n"
    assert len(read_record(record)) == 1


def test_new_syntax_errors_are_said(file: Path, answer: Answer) -> None:
    answer(rows=[["return = ="]])
    result = RUNNER.invoke(build_app(), ["fill", "t.py:3"])
    assert result.exit_code == 0
    assert "syntax error" in result.stderr


def test_changed_file_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "t.py"
    path.write_bytes(b"new")
    with pytest.raises(MidfillError) as error:
        write_atomically(path, b"old", b"filled")
    assert error.value.code == "file_changed"
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


def test_links_target_is_written(tmp_path: Path) -> None:
    (tmp_path / "real.py").write_bytes(b"old")
    (tmp_path / "link.py").symlink_to("real.py")
    write_atomically(tmp_path / "link.py", b"old", b"new")
    assert (tmp_path / "link.py").is_symlink()
    assert (tmp_path / "real.py").read_bytes() == b"new"


def test_diff_of_nothing_is_empty() -> None:
    assert unified_diff(b"a\n", b"a\n", b"t") == b""
    assert unified_diff(b"", b"a", b"t") == b"--- t\n+++ t\n@@ -0,0 +1 @@\n+a\n\\ No newline at end of file\n"


@pytest.mark.parametrize("names", [["f3"], ["f3", "f60"]])
def test_a_diff_leaves_out_what_a_fill_only_repeats(names: list[str]) -> None:
    bodies = {f"f{number}": [f"    return {number}"] for number in range(70)}
    bodies["f30"] = [f"    step(a, {number})" for number in range(9)]

    def write() -> bytes:
        lines = (line for name in bodies for line in (f"def {name}(a):", "    check(a)", *bodies[name], ""))
        return "\n".join(lines).encode()

    before = write()
    bodies |= dict.fromkeys(names, bodies["f30"])
    diff = unified_diff(before, write(), b"t").splitlines()[2:]
    assert [line for line in diff if line.startswith(b"-")] == [b"-    return " + name[1:].encode() for name in names]
    assert sum(line.startswith(b"+") for line in diff) == 9 * len(names)


def test_control_characters_cannot_act_on_the_terminal() -> None:
    text = "a\x1b[31m\r\x9b\u202e\udc80\tb\n\N{NO-BREAK SPACE}é"
    shown = visible(text)
    assert len(shown) == len(text)
    assert shown == "a\u241b[31m\u240d\ufffd\ufffd\ufffd\tb\n\N{NO-BREAK SPACE}é"


STEPS = [
    Preview(0, 2, [HoleState(text="", settled=[], masked=4)]),
    Preview(1, 2, [HoleState(text="return a - b", settled=[(0, 8)], masked=2)]),
    Preview(2, 2, [HoleState(text="return a + b", settled=[(0, 12)], masked=0)], is_chosen=True),
]
FRAMES = [
    """\
draft, step 0 of 2  4 masked
-- t.py:2 add
def add(a, b):
    ░░░░
print(add(1, 2))
""",
    """\
draft, step 1 of 2  2 masked
-- t.py:2 add
def add(a, b):
    return a - b
print(add(1, 2))
""",
    """\
fill, step 2 of 2  0 masked
-- t.py:2 add
def add(a, b):
    return a + b
print(add(1, 2))
""",
]


def live_document() -> Document:
    text = "\ufeffdef add(a, b):\r\n    ...\r\nprint(add(1, 2))\r\nend = 1\r\n"  # the view shows no byte order mark
    return Document(text.encode(), "python", Path("t.py"))


@pytest.mark.parametrize(("preview", "frame"), list(zip(STEPS, FRAMES, strict=True)))
def test_frames_of_the_live_view(preview: Preview, frame: str) -> None:
    document = live_document()
    console = Console(file=io.StringIO(), width=60)
    with console.capture() as capture:
        console.print(render_preview(document, holes.find_stubs(document), preview))
    assert capture.get() == frame


def test_a_model_that_writes_from_the_left_knows_no_last_step() -> None:
    document = live_document()
    preview = Preview(5, 320, [HoleState(text="return a", settled=[], masked=1)])
    console = Console(file=io.StringIO(), width=60)
    with console.capture() as capture:
        console.print(render_preview(document, holes.find_stubs(document), preview))
    assert capture.get().startswith("draft, step 5\n")


def test_guesses_look_unlike_settled_text() -> None:
    document = live_document()
    console = Console(file=io.StringIO(), width=60, force_terminal=True, color_system="standard")
    segments = list(console.render(render_preview(document, holes.find_stubs(document), STEPS[1])))
    guessed = "".join(part.text for part in segments if part.style and part.style.dim and part.style.italic)
    assert guessed == " - b"


def test_live_view_leaves_nothing_behind() -> None:
    document = live_document()
    console = Console(file=io.StringIO(), width=60, force_terminal=True)
    with console.capture() as capture, LiveView(document, holes.find_stubs(document), console) as view:
        view.note("starting the engine")
        for preview in STEPS:
            view.show(preview)
    assert "fill, step 2 of 2" in capture.get()
    assert capture.get().endswith("\x1b[2K"), "the frame is erased"


def test_a_proposal_is_shown_while_the_engine_starts() -> None:
    document = live_document()
    stubs = holes.find_stubs(document)
    found = Alternative(splice(document, stubs, ["return a"]).patch, (PlacedFill(stubs[0], "return a", (), ()),), 0)
    console = Console(file=io.StringIO(), width=60, force_terminal=True, color_system=None)
    with console.capture() as capture, LiveView(document, stubs, console, propose=lambda: found) as view:
        view.note("starting the engine")
    assert "proposed by the file" in capture.get() and "    return a\n" in capture.get()
    assert "starting the engine ..." in capture.get()


def test_diff_is_coloured_by_its_signs() -> None:
    text = color_diff("--- t\n+++ t\n@@ -1 +1 @@\n-a\n+b\n c\n")
    assert [str(span.style) for span in text.spans] == ["bold", "bold", "cyan", "red", "green"]


def test_a_cell_of_a_notebook_is_filled_and_nothing_else(
    answer: Answer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    answer(rows=[["return 1"]])
    cells = [{"cell_type": "markdown", "source": "# é"}, {"cell_type": "code", "source": ["def f():\n", "    ..."]}]
    Path("x.ipynb").write_text(json.dumps({"cells": cells, "metadata": {}}, indent=1))
    before = Path("x.ipynb").read_bytes()
    shown = RUNNER.invoke(build_app(), ["fill", "x.ipynb:2:2"])
    assert shown.stdout.startswith("# x.ipynb:2:2 f: 1 of 2 lines replaced by 1\n--- x.ipynb\n+++ x.ipynb\n")
    report = read_report(RUNNER.invoke(build_app(), ["fill", "x.ipynb:2", "--json"]).stdout)
    assert (report.holes[0].cell, report.holes[0].line, report.holes[0].start_byte) == (2, 2, 13)
    assert RUNNER.invoke(build_app(), ["fill", "x.ipynb:2:1", "--write"]).exit_code == 0
    assert Path("x.ipynb").read_bytes() == before.replace(b"    ...", b"    return 1")
    for place in ("-:2:1", "-:2:2:5"):
        filtered = RUNNER.invoke(build_app(), ["fill", place, "--stdin-filename", "x.ipynb"], input=before)
        assert filtered.stdout_bytes == Path("x.ipynb").read_bytes()
    refused = RUNNER.invoke(build_app(), ["fill", "-:2:2:5", "--stdin-filename", "x.py"], input=before)
    assert refused.exit_code == 2 and "standard input is no notebook; write -:LINE:COL." in refused.stderr
    for place, said in (("x.ipynb:1:1", "cell 1 of x.ipynb is markdown"), ("x.ipynb:3:1", "has 2 cells, not 3")):
        refused = RUNNER.invoke(build_app(), ["fill", place])
        assert refused.exit_code == 2 and said in refused.stderr


def test_a_line_at_the_end_of_a_file_ends_as_the_file_did(
    answer: Answer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    answer(rows=[["y = 2"]], certainty=0.9)
    for newline in ("\n", "\r\n"):
        Path("a.py").write_bytes(f"x = 1{newline}".encode())
        assert RUNNER.invoke(build_app(), ["fill", "a.py:2", "--write"]).exit_code == 0
        assert Path("a.py").read_bytes() == f"x = 1{newline}y = 2{newline}".encode()


def test_more_similar_files_than_a_request_holds(file: Path, answer: Answer) -> None:
    for number in range(17):
        Path(f"part{number}.py").write_text(f"def part{number}(n): return sum(n)\n")
    Path("total.py").write_text("from parts import sum\n\n\ndef total(n): pass\n")
    result = RUNNER.invoke(build_app(), ["fill", "total.py"])
    assert (result.exit_code, result.stderr) == (0, "") and "return" in result.stdout


def test_an_internal_error_quotes_no_code(file: Path, answer: Answer, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ValueError("def secret(): pass")

    monkeypatch.setattr("midfill_infill.filling.fill.find_excerpts", fail)
    for options in ([], ["--json"]):
        result = RUNNER.invoke(build_app(), ["fill", "t.py:3", *options])
        assert result.exit_code == 70 and "ValueError in " in result.stderr
        assert "secret" not in result.stderr + result.stdout


def test_a_link_to_itself_does_not_stop_the_fills_of_its_folder(file: Path, answer: Answer) -> None:
    Path("t_loop.py").symlink_to("t_loop.py")
    result = RUNNER.invoke(build_app(), ["fill", "t.py", "--write"])
    assert result.exit_code == 0 and b"return a + b" in file.read_bytes()
    with pytest.raises(MidfillError, match="t_loop.py cannot be written"):
        write_atomically(Path("t_loop.py"), b"", b"x")


def test_a_file_that_is_not_utf8_gets_ascii_or_a_refusal(file: Path, answer: Answer) -> None:
    data = b'void a(int n) {\n    say("Gr\xf6\xdfe", n);\n}\n\nvoid b(int n) {\n    say("Gr\xf6\xdfe", n);\n}\n\n'
    source = data + b"void c(int n) {\n}\n"
    Path("t.c").write_bytes(source)
    answer(rows=[['say("Gr\ufffd\ufffde", n);']])
    result = RUNNER.invoke(build_app(), ["fill", "t.c", "--write"])
    assert result.exit_code == 3 and Path("t.c").read_bytes() == source
    assert result.stderr == "midfill: the fill holds U+FFFD, and t.c is not valid UTF-8; save the file as UTF-8.\n"
    answer(rows=[["say(n);"]])
    assert RUNNER.invoke(build_app(), ["fill", "t.c", "--write"]).exit_code == 0
    assert Path("t.c").read_bytes() == data + b"void c(int n) {\n    say(n);\n}\n"


def test_what_git_ignores_is_refused_and_what_it_tracks_is_filled(
    file: Path, answer: Answer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "config/git").mkdir(parents=True)
    (tmp_path / "config/git/ignore").write_text("t.py\n")
    subprocess.run(["git", "init", "-q"], check=True)
    result = RUNNER.invoke(build_app(), ["fill", "t.py", "--write"])
    assert result.exit_code == 3 and "t.py is left out: git ignores it" in result.stderr
    subprocess.run(["git", "add", "-f", "t.py"], check=True)
    assert RUNNER.invoke(build_app(), ["fill", "t.py", "--write"]).exit_code == 0
    assert b"return a + b" in file.read_bytes()


def test_a_file_with_several_links_is_refused_before_the_engine_is_asked(
    file: Path, answer: Answer, tmp_path: Path
) -> None:
    os.link(file, tmp_path / "other.py")
    answer(record=str(tmp_path / "record"))
    result = RUNNER.invoke(build_app(), ["fill", "t.py", "--write"])
    said = "t.py has 2 hard links, which a replacement would split; replace it with a copy."
    assert (result.exit_code, result.stderr) == (3, f"midfill: {said}\n")
    assert file.read_bytes() == SOURCE and not read_record(tmp_path / "record") and file.stat().st_nlink == 2
    assert RUNNER.invoke(build_app(), ["fill", "t.py"]).exit_code == 0
