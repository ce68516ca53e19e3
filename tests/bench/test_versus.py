"""The side-by-side comparison: turns, pairing, bits, and the whole command with two models of random weights."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.bench.test_quality import LIMITS, make_suite, make_task, row, write_suite
from typer.testing import CliRunner

from bench.quality.complete import Completion, Length
from bench.quality.contenders import Autoregressive, Diffusion
from bench.quality.kept import Kept
from bench.quality.score import ratio
from bench.quality.suite import Task
from bench.quality.versus import app, compare, compare_bits, median_ratio, run
from midfill_engine.loading.checkpoint import make_random
from midfill_engine.loading.runtime import load_runtime
from training.baseline import Baseline


class Scripted:
    """Fills with a text, says what a gap costs, and notes who was asked when."""

    def __init__(self, name: str, text: str, nats: float | None, asked: list[str]) -> None:
        self.name, self._text, self._nats, self._asked = name, text, nats, asked

    def fill(self, task: Task, length: Length) -> Completion:
        self._asked.append(f"{self.name} {task.id} {length}")
        return Completion(self._text)

    def nats(self, task: Task, sees_suffix: bool) -> float | None:
        return None if self._nats is None else self._nats * (1 if sees_suffix else 2)


def test_contenders_take_turns_and_what_was_kept_is_not_asked_again(tmp_path: Path) -> None:
    asked: list[str] = []
    both = [Scripted("a", "x", 1.0, asked), Scripted("b", "y", 1.0, asked)]
    tasks = [make_task("1"), make_task("2")]
    with Kept(tmp_path / "kept.jsonl", {"of": "these"}) as kept:
        first = run(both, tasks, kept, print)
    wanted = ["a 1 own", "b 1 own", "a 1 oracle", "b 1 oracle", "b 2 own", "a 2 own", "b 2 oracle", "a 2 oracle"]
    assert asked[2:] == wanted, "after one untimed fill each"
    with Kept(tmp_path / "kept.jsonl", {"of": "these"}) as kept:
        assert run(both, tasks, kept, print) == first
    assert asked[10:] == asked[:2]


def test_differences_are_to_the_last_and_paired() -> None:
    asked: list[str] = []
    both = [Scripted("right", "    return x * 2\n", 1.0, asked), Scripted("wrong", "    return x\n", 2.0, asked)]
    suite = make_suite(make_task("1", group="one"), make_task("2", group="two"))
    fills = {
        (each.name, length): [Completion(each.fill(task, "own").text, ms=ms) for task in suite.tasks]
        for each, ms in zip(both, (30.0, 10.0), strict=True)
        for length in ("own", "oracle")
    }
    found = compare(both, suite, fills, LIMITS, "limits")
    assert [(each.name, each.length) for each in found.against] == [("right", "own"), ("right", "oracle")]
    gain = found.against[0]
    assert gain.pass_at_1 is not None and gain.pass_at_1.percent == 100.0 == gain.exact_match.percent
    assert 0 < gain.edit_similarity.percent < 100 and gain.time_ratio.value == 3.0
    assert [each.suffix_gain_percent for each in found.bits] == pytest.approx([100.0, 100.0], abs=0.2)
    assert found.bits_against["with_suffix"].value < 0


def test_bits_are_compared_over_the_gaps_that_both_can() -> None:
    asked: list[str] = []
    tasks = [make_task("1"), replace(make_task("2"), middle="too large")]

    class Small(Scripted):
        def nats(self, task: Task, sees_suffix: bool) -> float | None:
            return None if task.middle == "too large" else super().nats(task, sees_suffix)

    (small, large), _ = compare_bits([Small("s", "", 1.0, asked), Scripted("l", "", 1.0, asked)], tasks)
    assert small.with_suffix == large.with_suffix
    assert small.with_suffix.value == pytest.approx(1 / 0.6931 / len(tasks[0].middle), abs=1e-3)


def test_a_ratio_is_of_sums_and_its_interval_over_problems() -> None:
    found = ratio([1.0, 1.0, 8.0], [1.0, 1.0, 2.0], ["a", "a", "b"])
    assert (found.value, found.low, found.high) == (2.5, 1.0, 4.0)
    assert median_ratio([2.0, 4.0, 60.0], [1.0, 2.0, 2.0]).value == 2.0


def test_both_kinds_fill_as_many_tokens_as_asked(tmp_path: Path) -> None:
    """One token a byte; a hole at the start of a line begins with the line break that the prefix lends it."""
    make_random(tmp_path)
    runtime = load_runtime(str(tmp_path), "cpu")
    task = replace(make_task(), prefix="x = 1\n", middle="y = 2\n", suffix="z\n")
    for contender in (Diffusion(runtime, "d", 1.0), Autoregressive(Baseline(tmp_path))):
        assert len(contender.fill(task, "oracle").text.encode()) <= len("y = 2\n")
        assert len(contender.fill(replace(task, middle="é"), 12).text.encode()) <= 11
        nats = [contender.nats(task, sees_suffix) for sees_suffix in (True, False)]
        assert all(each is not None and each > 0 for each in nats) and nats[0] != nats[1]
    large = replace(task, middle="y" * 4000)
    diffusion = Diffusion(runtime, "d", 1.0)
    assert diffusion.fill(large, "oracle").refusal is not None and diffusion.nats(large, True) is None


def test_the_command_compares_two_folders(tmp_path: Path) -> None:
    for name, seed in (("model", 0), ("baseline", 1)):
        make_random(tmp_path / name, seed=seed, dim=16)
    (tmp_path / "baseline/state.json").write_text('{"tokens": 12}')
    rows = [row(name, prefix="x = 1\n", middle="y = 2\n", suffix="", tests="assert y") for name in "ab"]
    suite = write_suite(tmp_path / "s.jsonl", rows)
    arguments = [str(suite), str(tmp_path / "baseline"), "--model", str(tmp_path / "model")]
    kept = ["--keep", str(tmp_path / "kept.jsonl")]
    result = CliRunner().invoke(app, [*arguments, *kept, "--out", str(tmp_path / "r.json")])
    assert result.exit_code == 0, result.output
    record = json.loads((tmp_path / "r.json").read_text())
    assert record["makers"]["FIM baseline"]["tokens"] == 12 and record["makers"]["diffusion"]["tokens"] is None
    assert len(record["rows"]) == 6 and len(record["against"]) == 4 and len(record["bits"]) == 2
    assert all(each["median_ms"] > 0 for each in record["rows"])
    assert "<svg" in (plot := (tmp_path / "r.svg").read_text()) and "FIM baseline, oracle" in plot
    again = CliRunner().invoke(app, [*arguments, *kept, "--threads", "2"])
    assert again.exit_code == 2 and "another" in again.output
