"""The quality harness: suites, sandbox, scores, floors, calibration, and whole runs against a scripted engine."""

import gzip
import json
import math
import re
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.bench.scripted import ScriptedEngine
from tests.engine.tiny import make_embedded
from typer.testing import CliRunner

from bench.next_edits import rate
from bench.quality.__main__ import app
from bench.quality.calibration import calibrate, right_pieces, settled_tokens, whole_fills
from bench.quality.complete import Completer, Completion, Condition
from bench.quality.engine import running_engine
from bench.quality.floors import fill_with_pass, fill_with_previous_line
from bench.quality.kept import Kept, KeptError
from bench.quality.measure import compare, conditions, measure_floors, measure_model
from bench.quality.sandbox import Limits, best_wall, run, run_programs
from bench.quality.score import difference, score, share
from bench.quality.suite import Suite, SuiteError, Task, read_suite
from midfill_engine import wire
from midfill_engine.tokens.tokenizer import heal
from midfill_infill.engines.client import EngineClient
from midfill_infill.engines.endpoint import Endpoint
from midfill_infill.engines.supervise import probe
from midfill_infill.errors import MidfillError

LIMITS = Limits(cpu_s=5, wall_s=60, memory_bytes=256 << 20)


def make_task(name: str = "a", *, group: str = "one", tests: str | None = "\nassert f(2) == 4\n") -> Task:
    return Task(name, "def f(x):\n", "    return x * 2\n", "\nVERSION = 1\n", tests, group, "single")


def make_suite(*tasks: Task) -> Suite:
    return Suite("toy", "0" * 64, tasks, len(tasks), None, None)


@pytest.fixture
def scripted(tmp_path: Path) -> Iterator[ScriptedEngine]:
    engine = ScriptedEngine(tmp_path / "engine.sock")
    thread = threading.Thread(target=engine.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield engine
    engine.shutdown()
    thread.join()
    engine.server_close()


# --- suites


def write_suite(path: Path, rows: list[dict[str, object]]) -> Path:
    text = "".join(json.dumps(row) + "\n" for row in rows)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def row(name: str, **more: object) -> dict[str, object]:
    return {"id": name, "prefix": "a\n", "middle": "b\n", "suffix": "c\n", **more}


def test_suite_keeps_the_split_and_kind_asked_for(tmp_path: Path) -> None:
    rows = [row("1", split="train"), row("2", split="validation", kind="multi"), row("3", kind="single")]
    path = write_suite(tmp_path / "s.jsonl.gz", rows)
    assert [task.id for task in read_suite(path).tasks] == ["1", "2", "3"]
    assert [task.id for task in read_suite(path, split="validation").tasks] == ["2", "3"]
    assert [task.id for task in read_suite(path, split="validation", kind="single").tasks] == ["3"]


def test_a_limit_keeps_the_same_tasks_whatever_their_order(tmp_path: Path) -> None:
    rows = [row(str(number)) for number in range(40)]
    few = read_suite(write_suite(tmp_path / "a.jsonl", rows), limit=5)
    turned = read_suite(write_suite(tmp_path / "b.jsonl", rows[::-1]), limit=5)
    assert {task.id for task in few.tasks} == {task.id for task in turned.tasks}
    assert (len(few.tasks), few.num_found) == (5, 40)
    assert {task.id for task in few.tasks} != {"0", "1", "2", "3", "4"}


def test_tests_of_a_task_are_read_from_either_key(tmp_path: Path) -> None:
    rows = [row("1", program_tail="\nx"), row("2", tests="\ny"), row("3")]
    tasks = read_suite(write_suite(tmp_path / "s.jsonl", rows)).tasks
    assert [task.tests for task in tasks] == ["\nx", "\ny", None]


def test_humaneval_infilling_rows_are_read(tmp_path: Path) -> None:
    published = {
        "task_id": "RandomSpanInfilling/HumanEval/7/3",
        "entry_point": "f",
        "prompt": "def f(x):\n",
        "canonical_solution": "    return x\n",
        "suffix": "",
        "test": "def check(candidate):\n    assert candidate(3) == 3\n",
    }
    (task,) = read_suite(write_suite(tmp_path / "s.jsonl", [published])).tasks
    assert task.group == "HumanEval/7"
    (good,) = score([task], {task.id: task.middle}, LIMITS, "limits")
    (bad,) = score([task], {task.id: "    return 4\n"}, LIMITS, "limits")
    assert (good.passed, bad.passed) == (True, False)


@pytest.mark.parametrize(
    ("text", "words"),
    [("{}\n", "Line 1"), ("nonsense\n", "Line 1"), ("", "no task"), ('{"id": 1, "prefix": 2}', "Line 1")],
)
def test_a_bad_suite_is_named(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "s.jsonl").write_text(text)
    with pytest.raises(SuiteError, match=words):
        read_suite(tmp_path / "s.jsonl")


def test_two_tasks_of_one_id_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SuiteError, match="same id"):
        read_suite(write_suite(tmp_path / "s.jsonl", [row("1"), row("1")]))


# --- the sandbox


def test_only_a_program_that_reaches_its_end_passes() -> None:
    programs = {
        "passed": "x = 1",
        "AssertionError": "assert 1 == 2",
        "SystemExit": "import sys\nsys.exit(0)",
        "died": "import os\nos._exit(0)",
        "syntax": "x = (",
        "memory": "x = [0] * 10**9",
        "KeyError": "{}[1]",
    }
    verdicts = run_programs(programs, LIMITS, "limits", num_workers=2)
    assert {key: verdict.why for key, verdict in verdicts.items()} == {key: key for key in programs}
    assert [key for key, verdict in verdicts.items() if verdict.passed] == ["passed"]


def test_a_program_cannot_forge_success_by_printing_or_leave_anything_running(tmp_path: Path) -> None:
    program = "import os, sys, time\nprint('passed')\nsys.stdout.flush()\nchild = os.fork()\n"
    program += (
        f"if child == 0:\n    time.sleep(600)\nopen({str(tmp_path / 'child')!r}, 'w').write(str(child))\nassert 0\n"
    )
    (verdict,) = run_programs({"p": program}, LIMITS, "limits").values()
    assert verdict.why == "AssertionError"
    status = Path("/proc", (tmp_path / "child").read_text(), "stat")
    end = time.monotonic() + 60
    while status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z":
        assert time.monotonic() < end, "its child goes on"
        time.sleep(0.01)


def test_what_a_program_leaves_in_another_session_holds_nothing_up() -> None:
    """It goes on until the program's folder is removed, which comes after the verdict."""
    program = "import os, time\nif os.fork() == 0:\n    os.setsid()\n    home = os.getcwd()\n"
    program += "    while os.path.exists(home):\n        time.sleep(0.01)\n    os._exit(0)\ntime.sleep(600)\n"
    (verdict,) = run_programs({"p": program}, replace(LIMITS, wall_s=2), "limits").values()
    assert verdict.why == "timeout"


@pytest.mark.parametrize("program", ["while True: pass", "import time\ntime.sleep(60)"])
def test_time_is_bounded(program: str) -> None:
    (verdict,) = run_programs({"p": program}, Limits(cpu_s=1, wall_s=1.5), "limits").values()
    assert (verdict.passed, verdict.why) == (False, "timeout")


@pytest.mark.skipif(best_wall() != "bubblewrap", reason="bubblewrap does not work on this machine")
def test_the_wall_hides_network_and_files(tmp_path: Path) -> None:
    here = Path(__file__).parent / "written-by-a-program"
    listener = socket.create_server(("127.0.0.1", 0))
    programs = {
        "write": f"open({str(here)!r}, 'w').write('x')",
        "tmp": f"import os\nassert not os.path.exists({str(tmp_path)!r})\nopen('/tmp/x', 'w').write('x')",
        "net": f"import socket\nsocket.create_connection({listener.getsockname()!r}, 10)",
        "processes": "import os\nassert sum(name.isdigit() for name in os.listdir('/proc')) < 8",
    }
    with listener:
        verdicts = run_programs(programs, LIMITS, "bubblewrap", num_workers=2)
        assert run(programs["net"], LIMITS, "limits").passed, "only the wall is in the way"
    assert {key: verdict.passed for key, verdict in verdicts.items()} == {
        "write": False,
        "tmp": True,
        "net": False,
        "processes": True,
    }
    assert not here.exists()


# --- scores


def test_scores_of_right_wrong_and_broken_fills() -> None:
    tasks = [make_task(name) for name in ("exact", "equal", "wrong", "broken")]
    texts = {
        "exact": "    return x * 2\n",
        "equal": "    return 2 * x\n",
        "wrong": "    return x\n",
        "broken": "    return (\n",
    }
    rows = dict(zip(texts, score(tasks, texts, LIMITS, "limits"), strict=True))
    assert [each.passed for each in rows.values()] == [True, True, False, False]
    assert [each.exact for each in rows.values()] == [True, False, False, False]
    assert [each.parses for each in rows.values()] == [True, True, True, False]
    assert rows["exact"].similarity == 1.0 > rows["equal"].similarity > 0.5
    assert (rows["wrong"].why, rows["broken"].why) == ("AssertionError", "syntax")


def test_without_tests_nothing_passes_and_other_languages_are_not_parsed() -> None:
    task = replace(make_task(tests=None), language="rust")
    (only,) = score([task], {"a": "let x;"}, LIMITS, "limits")
    assert (only.passed, only.parses, only.why) == (None, None, "no tests")


def test_intervals_are_over_problems_not_tasks() -> None:
    values = [1.0, 0.0] * 50
    alone = share(values, [str(index) for index in range(100)])
    tied = share([1.0] * 50 + [0.0] * 50, ["one"] * 50 + ["two"] * 50)
    assert alone.percent == tied.percent == 50.0
    assert 38 < alone.low < 42 and 58 < alone.high < 62
    assert (tied.low, tied.high) == (0.0, 100.0)


def test_an_empty_bootstrap_falls_back_to_wilson() -> None:
    none = share([0.0] * 100, [str(index) for index in range(100)])
    assert none.low == 0.0 and none.high == pytest.approx(3.70, abs=0.01)
    assert share([1.0] * 100, [str(index) for index in range(100)]).low == pytest.approx(96.30, abs=0.01)


def test_rates_of_next_edits_have_an_interval_where_all_or_none_are_right() -> None:
    assert dict(rate([(1, 1, 1)] * 8))["precision"] == "8/8 = 100.0 % (67.6 to 100.0)"
    assert dict(rate([(0, 2, 1)] * 4))["recall"] == "0/4 = 0.0 % (0.0 to 49.0)" and not dict(rate([]))


def test_differences_are_paired() -> None:
    groups = [str(index) for index in range(200)]
    first = [float(index % 2) for index in range(200)]
    second = [float(index % 2 and index % 10 != 1) for index in range(200)]
    gain = difference(first, second, groups)
    assert gain.percent == 10.0 and 5 < gain.low < gain.high < 15
    assert difference(first, first, groups) == difference(second, second, groups)


# --- calibration


def test_calibration_of_known_pairs() -> None:
    pairs = [(0.95, True)] * 8 + [(0.95, False)] * 2 + [(0.25, False)] * 10
    found = calibrate(pairs)
    assert found is not None
    assert [(each.low, each.count, each.right) for each in found.bins] == [(0.2, 10, 0.0), (0.9, 10, 0.8)]
    assert found.error == pytest.approx(0.5 * 0.25 + 0.5 * 0.15, abs=1e-4)
    assert calibrate([]) is None
    assert calibrate([(1.0, True)]) is not None


def test_tokens_are_compared_by_place_or_aligned() -> None:
    assert right_pieces(["a", "b", "c"], ["a", "x", "c"]) == [True, False, True]
    assert right_pieces(["z", "a", "b"], ["a", "b"]) == [False, True, True]
    assert right_pieces(["a", "b"], []) == [False, False]
    fill = Completion("ab", ("a", "b"), (0.9, 0.4), ("a", "c"))
    assert settled_tokens([fill]) == [(0.9, True), (0.4, False)]
    ((confidence, success),) = whole_fills([fill, Completion("")], [True, False])
    assert success and confidence == pytest.approx(math.sqrt(0.36))


# --- floors


def test_pass_and_the_line_before_take_the_indent_of_the_place() -> None:
    task = make_task()
    assert fill_with_pass(task) == "    pass\n".removesuffix("\n")  # the suffix begins with the line break
    inside = replace(task, prefix="def f(x):\n    y = x\n", suffix="    return y\n")
    assert fill_with_previous_line(inside) == "    y = x\n"
    assert fill_with_pass(replace(task, prefix="x = ")) == "pass"


# --- completions and whole runs


def test_oracle_and_fixed_lengths_are_exact_and_own_is_open(scripted: ScriptedEngine) -> None:
    task = make_task()
    with EngineClient(Endpoint(socket=scripted.path)) as client:
        completer = Completer(client)
        fills = [completer.fill(task, Condition(length)) for length in ("own", "oracle", 8)]
        blind = completer.fill(task, Condition("own", sees_suffix=False))
    asked = [request.segments[1] for request in scripted.requests if len(request.segments) == 3]
    bounds = [(hole.hole.min_tokens, hole.hole.max_tokens) for hole in asked if isinstance(hole, wire.HoleSegment)]
    num_true = len(scripted.cut(task.middle))
    assert bounds == [(0, None), (num_true, num_true), (8, 8), (0, None)]
    assert {request.temperature for request in scripted.requests} == {0.0}
    assert fills[1].true_pieces == tuple(scripted.cut(task.middle))
    assert [segment.text for segment in scripted.requests[-1].segments if isinstance(segment, wire.TextSegment)] == [
        task.prefix,
        "",
    ]
    assert blind.text == fills[0].text


def test_a_healing_model_counts_the_white_space_that_moves_into_the_hole(scripted: ScriptedEngine) -> None:
    scripted.family = "embedded"
    task = replace(make_task(), prefix="x = 1\n", middle="y = 2\n", suffix="    z\n")
    edges = heal(task.prefix, task.suffix)
    assert (edges.lead, edges.tail) == ("\n", "\n")
    with EngineClient(Endpoint(socket=scripted.path)) as client:
        fill = Completer(client).fill(task, Condition("oracle"))
    hole = scripted.requests[-1].segments[1]
    assert isinstance(hole, wire.HoleSegment) and hole.hole.max_tokens == len(scripted.cut("\ny = 2"))
    assert "".join(fill.true_pieces) == "y = 2"


def test_a_gap_too_large_is_a_failure_and_other_errors_end_the_run(scripted: ScriptedEngine) -> None:
    with EngineClient(Endpoint(socket=scripted.path)) as client:
        completer = Completer(client)
        scripted.refusal = wire.ErrorCode.TOO_LARGE
        measured = measure_model(completer, make_suite(make_task()), [Condition("own")], wall="limits")
        assert measured[0].row.num_refused == 1 and measured[0].row.pass_at_1 is not None
        assert measured[0].row.pass_at_1.percent == 0.0
        scripted.refusal = wire.ErrorCode.OUT_OF_MEMORY
        with pytest.raises(MidfillError, match="refused"):
            measure_model(completer, make_suite(make_task()), [Condition("own")], wall="limits")


def test_a_scripted_model_is_measured_beside_the_floors(scripted: ScriptedEngine) -> None:
    suite = make_suite(make_task("a", group="one"), make_task("b", group="two"))
    scripted.fills = {"own": "    return x\n", "bounded": "    return x * 2\n"}
    with EngineClient(Endpoint(socket=scripted.path)) as client:
        wanted = conditions(["own", "oracle", "fixed"])
        measured = measure_model(Completer(client), suite, wanted, limits=LIMITS, wall="limits")
    measured += measure_floors({"pass": fill_with_pass}, suite, LIMITS, "limits")
    shares = {each.row.name: each.row.pass_at_1.percent for each in measured if each.row.pass_at_1}
    names = ["own", "own, no suffix", "oracle", "oracle, no suffix", "fixed 4", "fixed 8", "fixed 16", "fixed 32"]
    assert list(shares) == [*names, "fixed 64", "fixed", "pass"]
    assert (shares["own"], shares["oracle"], shares["fixed"], shares["pass"]) == (0.0, 100.0, 100.0, 0.0)
    gains = {(each.first, each.second): each.points.percent for each in compare(measured, suite)}
    assert gains["oracle", "own"] == 100.0 and gains["own", "own, no suffix"] == 0.0
    assert gains["own", "pass"] == 0.0


def test_a_real_engine_cuts_text_fills_and_ends(tmp_path: Path) -> None:
    """One token a byte: the true lengths are known without asking."""
    make_embedded(tmp_path / "random")
    task = replace(make_task(), prefix="x = 1\n", middle="y = 2\n", suffix="    z\n")
    with running_engine(str(tmp_path / "random"), "cpu") as endpoint, EngineClient(endpoint) as client:
        completer = Completer(client)
        assert completer.count_tokens("abc  \n") == 6
        fills = [completer.fill(task, condition) for condition in conditions(["oracle"])]
        large = completer.fill(replace(task, middle="y" * 4000), Condition("oracle"))
    assert endpoint.socket is not None and probe(endpoint) is None and not endpoint.socket.exists()
    assert [fill.true_pieces for fill in fills] == [tuple("y = 2"), tuple("y = 2\n")]
    assert all(fill.refusal is None and len(fill.pieces) == len(fill.confidence) for fill in fills)
    assert large.refusal is not None and large.text == ""


def test_unknown_length_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match="fixed, oracle, own"):
        conditions(["owl"])


def test_kept_completions_are_not_asked_for_again(scripted: ScriptedEngine, tmp_path: Path) -> None:
    suite, path = make_suite(make_task("a"), make_task("b")), tmp_path / "kept.jsonl"
    with EngineClient(Endpoint(socket=scripted.path)) as client:
        completer = Completer(client)
        with Kept(path, {"model": "m"}) as kept:
            first = measure_model(completer, suite, [Condition("own")], kept=kept, wall="limits")
        path.write_text(path.read_text() + '{"condition": "own", "id": "b", "te')
        num_requests = len(scripted.requests)
        with Kept(path, {"model": "m"}) as kept:
            again = measure_model(completer, suite, [Condition("own")], kept=kept, wall="limits")
    assert len(scripted.requests) == num_requests
    assert again == first
    with pytest.raises(KeptError, match="another suite or model"):
        Kept(path, {"model": "other"})


def test_the_command_writes_a_record_and_a_plot(scripted: ScriptedEngine, tmp_path: Path) -> None:
    rows = [
        row(name, prefix="def f(x):\n", middle="    return x * 2\n", suffix="", tests="assert f(2) == 4")
        for name in "ab"
    ]
    suite = write_suite(tmp_path / "s.jsonl.gz", rows)
    scripted.fills = {"own": "    return x * 2\n", "bounded": "    return\n"}
    arguments = [str(suite), "--url", scripted.url(), "--lengths", "own,oracle", "--out", str(tmp_path / "r.json")]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    record = json.loads((tmp_path / "r.json").read_text())
    by_name = {each["name"]: each for each in record["rows"]}
    assert by_name["own"]["pass_at_1"]["percent"] == 100.0 and by_name["oracle"]["pass_at_1"]["percent"] == 0.0
    assert {"date", "commit", "interval", "wall", "differences", "decoding"} <= record.keys()
    assert all(each["pass_at_1"]["low"] <= each["pass_at_1"]["high"] for each in record["rows"])
    assert {"pass", "previous line"} <= by_name.keys()
    plot = (tmp_path / "r.svg").read_text()
    assert "<svg" in plot and "floor: pass" in plot and record["date"] in plot


def test_the_command_says_what_is_wrong_with_its_suite(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, [str(tmp_path / "none.jsonl"), "--url", "http://127.0.0.1:9"])
    assert result.exit_code == 2 and "cannotberead" in letters(result.output)


def letters(text: str) -> str:
    """Whatever box and line breaks an error was printed with."""
    return "".join(re.findall(r"[a-z]", text))
