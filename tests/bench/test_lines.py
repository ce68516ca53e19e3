"""The suite of lines drawn from archives, and the table of what proposers bring."""

import io
import json
import tarfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

import pytest
import typer
from tests.infill.fake_engines import Recorder
from typer.testing import CliRunner

from bench.quality import drawn, lines, proposals
from bench.quality.calibration import threshold_of
from bench.quality.kept import KeptError
from bench.quality.product import Fill, keep_fills, name_fills
from bench.quality.proposals import measure, recurs
from bench.quality.suite import SuiteError, Task, read_suite
from midfill_infill.engines.client import EngineClient

SOURCE = (
    "import os\n\n\ndef f(a):\n    # why\n    b = [\n        a,\n    ]\n    return b\n\n\ndef g(a):\n    return b\n" * 5
)


def command(main: Callable[..., None]) -> typer.Typer:
    app = typer.Typer()
    app.command()(main)
    return app


def archive(path: Path, source: str = SOURCE) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name, text in (("p/a.py", source), ("p/vendor/b.py", source), ("p/c.md", SOURCE), ("p/d.py", "x = 1\n")):
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text.encode()))
    return path


def test_a_suite_is_drawn_from_an_archive_the_same_every_time(tmp_path: Path) -> None:
    source = str(archive(tmp_path / "p-1.0.tar.gz"))
    for name in ("one", "two"):
        result = CliRunner().invoke(command(lines.main), [str(tmp_path / name), source, "--per-package", "12"])
        assert result.exit_code == 0, result.output
    assert (tmp_path / "one").read_text() == (tmp_path / "two").read_text()
    tasks = read_suite(tmp_path / "one").tasks
    assert len(tasks) == 12 and {task.group for task in tasks} == {"p/p/a.py"}
    for task in tasks:
        assert task.prefix + task.middle + task.suffix == SOURCE
        assert task.middle == task.middle.strip() and not task.middle.startswith("#")


def test_lines_are_logical_ones_up_to_the_first_error() -> None:
    found = [SOURCE[slice(*span)] for span in lines.lines_of(SOURCE, "python")]
    assert "b = [\n        a,\n    ]" in found and "# why" not in found
    assert len(lines.lines_of("x = 1\ny = (\n", "python")) == 1
    physical = 'b = [\n    1,  # one\n    # two\n]\nc = """d\ne"""\nfg\n'
    assert [physical[slice(*span)] for span in lines.lines_of(physical, "python", True)] == ["b = [", "1,  # one", "fg"]
    assert [*map(len, lines.lines_of("ab\n\n  cde\n", "javascript"))] == [2, 2]


def test_parts_of_lines_are_expressions_and_ranges(tmp_path: Path) -> None:
    text = "x = call(first, other[0])\ny = 'über' + str(x)\nlong(\n    argument.name,\n)\nlast = xy"
    found = {text[slice(*span)] for span in lines.parts_of(text)}
    assert found == {"call(first, other[0])", "other[0]", "'über' + str(x)", "'über'", "str(x)", "argument.name"}
    assert lines.parts_of("x = (\n") == []
    source = "def f(x):\n    return call(first, x[0]) + str(x)\n\n\n" * 9
    packed = archive(tmp_path / "p-1.0.tar.gz", source)
    result = CliRunner().invoke(command(lines.main), [str(tmp_path / "one"), str(packed), "--inside"])
    assert result.exit_code == 0, result.output
    tasks = read_suite(tmp_path / "one").tasks
    assert len(tasks) > 9 and all(task.prefix + task.middle + task.suffix == source for task in tasks)
    assert all("\n" not in task.middle and task.prefix.split("\n")[-1].strip() for task in tasks)


@pytest.mark.parametrize(("text", "certainty", "exact"), [("return b", 0.9, 100.0), ("return c", 0.2, 0.0)])
def test_recurring_lines_and_sure_fills_are_counted_apart(text: str, certainty: float, exact: float) -> None:
    tasks = [
        Task("1", "def f():\n    ", "return b", "\ndef g():\n    return b\n", group="one"),
        Task("2", "def f():\n    ", "return b", "\n", group="two"),
    ]
    assert [recurs(task) for task in tasks] == [True, False] and proposals.shared(tasks) == 50.0
    row, scores = measure("it", tasks, [Fill(text, certainty, 1.0)] * 2)
    assert (row.exact.percent, row.recurring.percent, row.others.percent) == (exact, exact, exact)
    assert row.sure is not None and row.sure.percent == (100.0 if certainty >= 0.5 else 0.0)
    assert (row.right is None) == (certainty < 0.5) and row.error == pytest.approx(abs(certainty - exact / 100))
    assert len(scores) == 2 and json.dumps(row.cpu_ms)
    alone, _ = measure("it", tasks[1:], [Fill(text, certainty, 1.0)])
    assert alone.recurring is None and alone.others is not None and alone.others.percent == exact


def test_fills_that_are_kept_are_not_made_again(tmp_path: Path) -> None:
    tasks = [Task(name, "a = ", "1", "\n") for name in ("one", "two", "three")]
    asked: list[str] = []

    def make(task: Task) -> Fill:
        asked.append(task.id)
        return Fill(task.id, 0.5, 0.0)

    def keep(folder: Path | None, code: str, tasks: Sequence[Task]) -> list[str]:
        return [fill.text for fill in keep_fills(folder, "it", {"code": code}, tasks, make)]

    assert keep(tmp_path, "a", tasks[:2]) == ["one", "two"]
    with (tmp_path / "it.jsonl").open("a") as half_written:
        half_written.write('{"id": "thr')
    assert keep(tmp_path, "a", tasks) == ["one", "two", "three"]
    assert asked == ["one", "two", "three"] and keep(None, "a", tasks[:1]) == ["one"]
    with pytest.raises(KeptError, match="other code"):
        keep(tmp_path, "b", tasks)


def test_fills_of_other_weights_are_kept_apart(tmp_path: Path) -> None:
    """As of an adapter that was trained again, wherever it is; they never go into its folder."""
    names = []
    for rank in (1, 2, 1):
        (tmp_path / "adapter_config.json").write_text(f'{{"r": {rank}}}')
        names.append(name_fills(str(tmp_path)))
    assert names[0] == names[2] != names[1] and Path(names[0]).name == names[0]


def test_a_suite_is_made_again_from_its_places(tmp_path: Path) -> None:
    source, suite = archive(tmp_path / "p-1.0.tar.gz"), tmp_path / "one"
    lines.main(suite, [source], per_package=3)
    result = CliRunner().invoke(command(drawn.main), [str(suite), str(source)])
    (places := tmp_path / "drawn.jsonl").write_text(result.output)
    assert "return b" not in result.output

    def rows(path: Path) -> list[str]:
        tasks = read_suite(path).tasks
        return sorted(f"{task.group}|{task.prefix}|{task.middle}|{task.suffix}" for task in tasks)

    assert rows(drawn.rebuild("python", places, tmp_path)) == rows(suite)
    (tmp_path / "python.jsonl").unlink()
    source.write_bytes(b"other")
    with pytest.raises(SuiteError, match="SHA-256"):
        drawn.rebuild("python", places, tmp_path)


def test_the_committed_places_are_lines_of_named_archives() -> None:
    rows = [json.loads(row) for row in drawn.DRAWN.read_text().splitlines()]
    num_lines = Counter[str]()
    for row in rows:
        num_lines[row["language"]] += sum(map(len, row["lines"].values()))
        assert len(row["sha256"]) == 64 and row["version"] in row["archive"]
    assert num_lines["python"] >= 600 and min(num_lines.values()) >= 200 and len(num_lines) == 3


def test_the_threshold_is_the_least_from_which_three_of_four_are_right() -> None:
    pairs = [(0.9, True), (0.8, True), (0.7, False), (0.6, True), (0.5, False)]
    assert threshold_of(pairs) == 0.6 and threshold_of([(0.9, False)]) is None


@pytest.mark.parametrize(("prefix", "middle", "suffix"), [("a = 1\n", "b = 2\n", "c = 3\n"), ("a = ", "1", "\n")])
def test_a_gap_is_filled_where_it_was(prefix: str, middle: str, suffix: str) -> None:
    client = cast(EngineClient, Recorder(middle))
    assert proposals.by_product(client, Task("1", prefix, middle, suffix)).text == middle
