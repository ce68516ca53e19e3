"""A stay on a lent machine, rehearsed without one: a bare tree, such a machine's packages, small parts, lost calls."""

import os
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpu import stay as staying
from gpu.__main__ import tree_bytes
from gpu.machine import MIB, Limits, State, is_running
from gpu.parcels import fill_calls, join, send
from gpu.plans import FIRST, PLANS, RECIPE, TOY, Bench, Way
from gpu.stay import Stay, end, is_healthy, options_of, read_log, summarize
from midfill_engine.loading import checkpoint
from training.data.pack import squeeze

ROOT = Path(__file__).parent.parent.parent
# What our code may import where the machine has torch and none of this project's other needs.
GUARD = """
import builtins
import sys

OURS = set("__main__ gpu training bench tests midfill_engine midfill_kernels conftest".split())
THERE = set("torch triton numpy safetensors tokenizers huggingface_hub typer rich pytest _pytest hypothesis".split())
THERE |= sys.stdlib_module_names
load = builtins.__import__


def guarded(name, globals=None, locals=None, fromlist=(), level=0):
    importer = (globals or {}).get("__name__", "").partition(".")[0]
    if importer in OURS and level == 0 and name.partition(".")[0] not in OURS | THERE:
        raise ModuleNotFoundError(f"not on a lent machine: {name}", name=name)
    return load(name, globals, locals, fromlist, level)


builtins.__import__ = guarded
"""
Begin = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What travels with a call: files that git knows or does not ignore, without their history."""
    folder = tmp_path_factory.mktemp("tree")
    command = ["git", "ls-files", "-co", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def sets(pack_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("squeezed")
    for name in ("set-00", "set-01"):
        squeeze(pack_folder / name, folder / name)
    shutil.copy(pack_folder / "tokenizer.json", folder)
    return folder


@pytest.fixture
def begin(tree: Path, tmp_path: Path) -> Begin:
    """A call to the machine whose state is in `state`; its files for home are in `out`, emptied before."""
    (tmp_path / "guard").mkdir()
    (tmp_path / "guard/sitecustomize.py").write_text(GUARD)
    places = os.pathsep.join(map(str, (tmp_path / "guard", tree / "engine", tree / "kernels")))
    environment = {**os.environ, "PYTHONPATH": places, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}

    def start(carried: Path, state: str, *more: str) -> "subprocess.Popen[str]":
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
        options = [
            "--out",
            tmp_path / "out",
            "--state",
            tmp_path / state,
            "--plan",
            "toy",
            "--call-s",
            "1000",
            "--out-mib",
            "0.06",
            *more,
        ]
        command = [sys.executable, "-m", "gpu", "work", carried, *options]
        return subprocess.Popen([*command, *more], cwd=tree, env=environment, stdout=subprocess.PIPE, text=True)

    return start


def carry(target: Path, *paths: Path) -> Path:
    target.mkdir()
    for path in paths:
        if path.is_dir():
            shutil.copytree(path, target / path.name)
        else:
            shutil.copy(path, target)
    return target


def wait_for(condition: Callable[[], object], call: "subprocess.Popen[str]") -> None:
    while not condition():
        assert call.poll() is None, call.communicate()[0]
        time.sleep(0.2)


@pytest.mark.timeout(1800)  # a minute of processor time, on a machine that may have other work
def test_the_hour_at_toy_size(tree: Path, sets: Path, begin: Begin, tmp_path: Path) -> None:
    """The first call is lost while the run goes on, the second brings all home, a fresh machine goes on from there."""
    assert sum(path.stat().st_size for path in tree.rglob("*") if path.is_file()) < 40 * MIB
    first = carry(tmp_path / "1", sets / "set-00", sets / "tokenizer.json")
    call, run = begin(first, "machine"), tmp_path / "machine/run"
    wait_for(lambda: (run / "log.jsonl").exists(), call)
    call.kill()
    call.communicate()
    state = State.open(tmp_path / "machine", 0)
    assert state.done == {"tests": "green", "way": "0"} and state.calls == 1

    call = begin(carry(tmp_path / "2", sets / "set-01"), "machine", "--bring", "plateau")
    told, _ = call.communicate()
    assert call.returncode == 0 and "model goes home" in told and "set-01 is unpacked" in told, told
    state = State.open(tmp_path / "machine", 0)
    assert state.attempts == 1 and set(state.done) == {"tests", "way", "training", "export", "lengths"}
    home = tmp_path / "out"
    assert len([*home.glob("model.tar.*")]) > 1
    assert max(path.stat().st_size for path in home.glob("*.tar.*[0-9]")) <= 0.06 * MIB
    join(home, "model", tmp_path / "model")
    trained = checkpoint.load(tmp_path / "model").config.training
    assert trained["steps"] == TOY.train["num_steps"] and "length_head" in trained
    with tarfile.open(home / "results.tar.gz") as results:
        assert {"log.jsonl", "run.log", "tests.log", "state.json", "stay.log"} <= set(results.getnames())

    elsewhere = State(time.time(), {"tests": "green", "way": "0", "lengths": "not here"})
    (tmp_path / "fresh").mkdir()
    elsewhere.write(tmp_path / "fresh")
    call = begin(carry(tmp_path / "3", first / "set-00", first / "tokenizer.json", *home.glob("plateau.*")), "fresh")
    told, _ = call.communicate()
    assert call.returncode == 0 and "from plateau" in told, told
    steps = [row for row in read_log(tmp_path / "fresh/run") if "token_nats" in row]
    assert steps[0]["step"] > read_log(run)[0]["step"] and {row["stage"] for row in steps} <= {"spans", "cooldown"}


@pytest.fixture
def make_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Stay]:
    """A stay whose trainer is a script: it writes the losses it is told, then ends."""
    (tmp_path / "stay/pack").mkdir(parents=True)
    (tmp_path / "stay/tree-0").mkdir()

    def make(script: str, **changes: object) -> Stay:
        monkeypatch.setattr(
            Stay, "trainer_arguments", lambda stay, out, options, way: ["-c", script, str(stay.folder / out), way.name]
        )
        monkeypatch.setattr(staying.time, "sleep", lambda seconds: None)
        plan = replace(TOY, **changes)  # type: ignore[arg-type]
        state = State.open(tmp_path / "stay", 0)
        return Stay(plan, Limits(), tmp_path / "stay", tmp_path / "carried", tmp_path / "out", time.time() + 60, state)

    return make


WRITE = """
import json, pathlib, sys
out, way = pathlib.Path(sys.argv[1]), sys.argv[2]
out.mkdir(exist_ok=True)
def tell(**row):
    with (out / "log.jsonl").open("a") as log:
        log.write(json.dumps(row) + chr(10))
"""


def test_the_first_way_whose_losses_are_numbers_is_taken(make_stay: Callable[..., Stay]) -> None:
    script = "tell(token_nats={'A=1': float('nan'), 'B=2': 1.0}.get(way, 2.0), gradient_norm=1.0)\nsys.exit(way == '')"
    stay = make_stay(WRITE + script, ways=(Way(), Way({"A": "1"}), Way({"B": "2"}), Way(compiles=False)))
    stay.find_way()
    assert stay.state.done["way"] == "2"


def test_where_no_way_works_the_plainest_is_tried(make_stay: Callable[..., Stay]) -> None:
    stay = make_stay("raise SystemExit(3)", ways=(Way(), Way(compiles=False)))
    stay.find_way()
    assert stay.state.done["way"] == "1"


def test_an_ill_run_begins_once_more_and_not_twice(make_stay: Callable[..., Stay]) -> None:
    step = "tell(token_nats=float('nan'), gradient_norm=1.0, stage='x', step=1, tokens=1, seconds=1)\n"
    stay = make_stay(WRITE + step + "import time\ntime.sleep(60)")
    stay.train()
    stay.watch()
    assert stay.state.attempts == 2 and stay.state.done["training"] == "ended early twice"
    assert not is_running(stay.state.trainer)


def test_a_run_that_ended_is_not_begun_again(make_stay: Callable[..., Stay]) -> None:
    step = "tell(token_nats=2.0, gradient_norm=1.0, stage='x', step=1, tokens=1, seconds=1)\n"
    stay = make_stay(WRITE + step + "tell(saved='plateau')\ntell(saved='snapshot')")
    stay.train()
    stay.watch()
    assert stay.state.attempts == 1 and stay.state.done["training"] == "ended, x step 1, 2.0 nats"
    stay.train()
    assert stay.state.attempts == 1


@pytest.mark.parametrize("look", [1, 2])
def test_a_run_that_ends_while_it_is_looked_at_is_not_begun_again(
    make_stay: Callable[..., Stay], monkeypatch: pytest.MonkeyPatch, look: int
) -> None:
    """The log is read, and before anything else is asked the run writes its last lines and ends."""
    step = "tell(token_nats=2.0, gradient_norm=1.0, stage='x', step=1, tokens=1, seconds=1)\n"
    linger = "import time\nwhile not (out / 'go').exists(): time.sleep(0.01)\n"
    stay = make_stay(WRITE + step + linger + "tell(saved='plateau')\ntell(saved='snapshot')")
    stay.train()
    while not read_log(stay.run):
        time.sleep(0.01)
    looks = iter(range(1, 1000))

    def read_before_the_end(run: Path) -> list[dict[str, Any]]:
        rows = read_log(run)
        if next(looks) == look:
            (run / "go").touch()
            while is_running(stay.state.trainer):
                pass
        return rows

    monkeypatch.setattr(staying, "read_log", read_before_the_end)
    stay.watch()
    assert stay.state.attempts == 1 and stay.state.done["training"] == "ended, x step 1, 2.0 nats"


def test_a_second_attempt_that_ended_between_two_calls_ended_well(make_stay: Callable[..., Stay]) -> None:
    step = "tell(token_nats=2.0, gradient_norm=1.0, stage='x', step=1, tokens=1, seconds=1)\n"
    stay = make_stay(WRITE + step + "tell(saved='plateau')\ntell(saved='snapshot')")
    stay.train()
    while is_running(stay.state.trainer):
        pass
    stay.state.attempts = 2
    stay.train()
    assert not stay.is_done("training")
    stay.watch()
    assert stay.state.done["training"] == "ended, x step 1, 2.0 nats"


def test_a_bench_has_its_time_and_no_more(make_stay: Callable[..., Stay], monkeypatch: pytest.MonkeyPatch) -> None:
    stay = make_stay("")
    stay.measure(Bench("late", "timeit", (), 10, -1.0))
    assert not stay.state.done
    monkeypatch.setattr(Stay, "call", lambda stay, name, arguments, limit_s: -9 if "slow" in name else 0)
    stay.measure(Bench("slow", "timeit", (), 10, 10.0))
    stay.measure(Bench("quick", "timeit", (), 10, 10.0))
    assert stay.state.done == {"slow": "stopped", "quick": "measured"}


def test_a_call_that_ends_marks_nothing_and_leaves_nothing_running(
    make_stay: Callable[..., Stay], monkeypatch: pytest.MonkeyPatch
) -> None:
    stay = make_stay("import time\ntime.sleep(60)")
    stay.ends_at = time.time() + 1
    monkeypatch.setattr(Stay, "take_in", lambda stay: None)
    monkeypatch.setattr(Stay, "verify", Stay.find_way)
    started: list[int] = []
    monkeypatch.setattr(staying, "end", lambda process: (started.append(process), end(process)))
    stay.work()
    assert stay.state.done == {} and stay.state.helpers == [] and not any(map(is_running, started)) and started
    assert (stay.out / "results.tar.gz").exists()


def test_losses_that_are_no_numbers_or_unlikely_are_ill() -> None:
    fine = {"token_nats": 9.7, "gradient_norm": 50.0}
    assert is_healthy([fine, {"validation_nats": 5.0}]) and is_healthy([])
    for row in ({"token_nats": 25.0}, *({name: float("nan")} for name in (*fine, "validation_nats"))):
        assert not is_healthy([fine, row])


def test_a_parcel_is_whole_or_refused(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/data").write_bytes(os.urandom(30_000))
    (tmp_path / "out").mkdir()
    written = send(tmp_path / "a", tmp_path / "out", "x", 8192)
    assert len(written) > 4 and all(path.stat().st_size <= 8192 for path in written)
    join(tmp_path / "out", "x", tmp_path / "again")
    assert (tmp_path / "again/b/data").read_bytes() == (tmp_path / "a/b/data").read_bytes()
    (tmp_path / "out/x.tar.01").write_bytes(b"other")
    with pytest.raises(ValueError, match="damaged or of another sending"):
        join(tmp_path / "out", "x", tmp_path / "third")
    (tmp_path / "out/x.tar.01").unlink()
    with pytest.raises(ValueError, match=r"lacks x\.tar\.01"):
        join(tmp_path / "out", "x", tmp_path / "third")
    assert not (tmp_path / "third").exists()


def test_calls_are_filled_in_order_and_no_further(tmp_path: Path) -> None:
    items = []
    for number, size in enumerate((30, 40, 20, 50)):
        items.append(tmp_path / str(number))
        items[-1].write_bytes(bytes(size))
    assert fill_calls(items, 60) == [[items[0]], [items[1], items[2]], [items[3]]]
    with pytest.raises(ValueError, match="there is room for 45"):
        fill_calls(items, 45)
    assert 4 * MIB < tree_bytes() < 40 * MIB


def test_every_plan_names_options_that_the_trainer_has_and_fits_the_stay(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from training.__main__ import app

    told = CliRunner().invoke(app, ["train", "--help"], terminal_width=200).output
    for plan in PLANS.values():
        options = options_of({**plan.train, **staying.PREFLIGHT, **staying.MORE_SLOWLY, "resume": "x", "end_at_s": 1})
        assert [flag for flag in options if flag.startswith("--") and flag not in told] == []
        assert plan.ways[-1].compiles is False
        assert all(bench.limit_s + 100 < Limits.call_s and bench.latest_s < plan.train_end_s for bench in plan.benches)
    assert FIRST.train is RECIPE and FIRST.train_end_s + FIRST.finish_s < Limits.stay_s


def test_where_a_run_stands_is_one_line() -> None:
    row = {"stage": "causal", "token_nats": 3.0}
    rows = [{**row, "step": step, "tokens": step * 100, "seconds": step} for step in (1, 2)]
    assert summarize(rows) == "causal step 2, 3.0 nats, 100 tokens/s" and summarize([]) == "no step yet"
