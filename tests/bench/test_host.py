"""The bench of the host's part of a step, at tiny size: every scene ends, and times are measured."""

import json
import runpy
import sys

import pytest

from bench import host


@pytest.mark.parametrize("name", list(host.SCENES))
def test_every_scene_is_timed(name: str) -> None:
    record = host.run([name], [2], layers=1, context=36, repeats=1, kernels=False, watches=True)
    (found,) = record["steps"]
    is_causal = host.SCENES[name].family == "causal"
    assert found["forwards"] > 2 and (is_causal or found["forwards"] >= host.STEPS)
    assert 0 < found["between_ms"] and 0 < found["beside_ms"] and 0 < found["whole_ms"]
    json.dumps(record)


def test_the_runner_of_the_kernels_is_timed_apart() -> None:
    record = host.run(["dual"], [1], layers=1, context=36, repeats=1, kernels=True, watches=False)
    assert record["steps"][0]["runner_ms"] > 0


def test_a_machine_without_triton_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "midfill_engine.models.fused_runner", None)
    run = runpy.run_path(host.__file__)["run"]
    record = run(["lines"], [1], layers=1, context=36, repeats=1, kernels=False, watches=False)
    assert record["steps"][0]["whole_ms"] > 0


def test_steps_that_nobody_watches_take_no_time_to_show() -> None:
    runtime = host.open_runtime(host.SCENES["dual"], 1)
    events = [host.play(runtime, host.SCENES["dual"], 1, 36, watches=watches)[0].beside_s for watches in (True, False)]
    assert sum(events[0]) > 3 * sum(events[1])
