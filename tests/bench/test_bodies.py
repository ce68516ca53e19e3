"""Bodies of functions as the bench draws, fills and judges them."""

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from bench.quality import bodies, fitting
from bench.quality.product import keep_fills, open_client
from bench.quality.suite import Task
from midfill_infill.engines.client import EngineClient
from midfill_infill.errors import MidfillError
from midfill_infill.proposals.weights import shipped_weights

SOURCE = """import json


class Shop:
    def __init__(self, path, mode):
        self.left, self.right = path, mode

    def load_apples(self, key):
        with open(self.left) as stream:
            apples = json.load(stream)
        for apple in apples.get(key, ()):
            yield apple.name, apple.price

    def stub(self):
        ...

    def read_left(self, path, mode="r"):
        with open(path, mode) as stream:
            self.left = json.load(stream)
        return self.left.get("rows", ())

    def read_right(self, path, mode="r"):
        with open(path, mode) as stream:
            self.right = json.load(stream)
        return self.right.get("rows", ())
"""


def line_of(group: str, source: str = SOURCE, language: str = "python") -> Task:
    start = source.index("key")
    return Task(f"{group}/1", source[:start], "key", source[start + 3 :], group=group, language=language)


def test_one_body_of_every_python_file_is_drawn_the_same_every_time() -> None:
    tasks = [
        line_of("a"),
        line_of("b"),
        line_of("b"),
        line_of("c", language="javascript"),
        line_of("d", "def f(key): return key\n"),
    ]
    drawn = list(bodies.draw(tasks, 5))
    assert drawn == list(bodies.draw(tasks, 5)) and sorted(task.group for task in drawn) == ["a", "b", "d"]
    for task in drawn:
        whole = SOURCE if task.group != "d" else "def f(key): return key\n"
        assert task.prefix + task.middle + task.suffix == whole
        assert "=" in task.middle or "return" in task.middle
        assert "def" not in task.middle and "..." not in task.middle


def test_long_bodies_and_files_without_any_are_left_out() -> None:
    assert not list(bodies.draw([line_of("a", "key\n")], 5))
    assert not list(bodies.draw([line_of("a")], 5, max_bytes=30))


def test_a_sibling_is_used_only_where_it_is_asked_for() -> None:
    client = open_client("embedded")
    start = SOURCE.rindex("with open")
    task = Task("1", SOURCE[:start], SOURCE[start:].rstrip(), "\n", group="a")
    without, whole = (bodies.write(client, bodies.WAYS[name], task) for name in ("without siblings", "as shipped"))
    assert without.text.strip() and without.text != task.middle
    assert whole.text == task.middle and whole.certainty is not None


def test_siblings_are_worth_what_they_were_by_how_alike_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    tasks = []
    for opening in ("with open", "pass"):
        source = SOURCE + "\n    def close(self):\n        pass\n"
        start = source.rindex(opening)
        end = source.find("\n\n", start) if opening != "pass" else len(source) - 1
        tasks.append(Task(opening, source[:start], source[start:end], source[end:], group="a"))
    found = fitting.fit_bodies(shipped_weights(), tasks)
    said = capsys.readouterr().out
    assert "1 bodies alike by 0.7 and more: 1 right" in said and said.count(": 0 right") == 5
    assert found.of_sibling(0.75) == 0.136 and found.of_sibling(0.1) == 0.045 and found.line == shipped_weights().line


class Refusing:
    """An engine that says no."""

    endpoint = SimpleNamespace(is_outside=False)

    def models(self) -> None:
        raise MidfillError("engine_failed", "no")


def test_a_fill_that_is_refused_is_an_empty_one(tmp_path: Path) -> None:
    task = next(bodies.draw([line_of("a")], 5))
    write = partial(bodies.write, cast(EngineClient, Refusing()), {})
    values = bodies.measure("as shipped", [task], keep_fills(tmp_path, "as shipped", {}, [task], write))
    assert values["exact"] == [0.0] and values["similar"] == [0.0] and (tmp_path / "as shipped.jsonl").exists()
