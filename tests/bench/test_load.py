"""Benches of speed: what a machine is, when a fill is first seen, and that every scene of a loaded server ends."""

import json
import os
import runpy
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from tests.engine.tiny import make_embedded

from bench import latency, load, until
from midfill_engine.wire import HoleState
from midfill_infill.cli.live import _make_head
from midfill_infill.engines.endpoint import Endpoint
from midfill_infill.errors import MidfillError
from midfill_infill.filling.fill import Preview


def test_a_machine_without_triton_is_described(monkeypatch: pytest.MonkeyPatch) -> None:
    """As macOS is: its benches measure CPUs."""
    monkeypatch.setitem(sys.modules, "triton", None)
    facts = runpy.run_path(load.write_record.__code__.co_filename)["describe"](torch.device("cpu"))
    assert facts["torch"] == torch.__version__ and "triton" not in facts


@pytest.mark.parametrize("is_proposed", [False, True])
def test_the_first_preview_of_the_command_is_seen(is_proposed: bool) -> None:
    preview = Preview(0, 1, [HoleState(text="", settled=[], masked=1)], is_proposed=is_proposed)
    assert latency.FRAME.search(_make_head(preview).plain.encode())


def test_until_asks_an_engine_of_its_own_and_begins_its_record_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(until, "running_engine", lambda model: nullcontext(Endpoint(url="http://127.0.0.1:9")))
    monkeypatch.setattr(until, "run_mbpp", lambda *_: [until.Result("a"), until.Result("b")])
    monkeypatch.setattr(sys, "argv", ["until", "mbpp", "suite", "--out", str(tmp_path / "out")])
    for _ in range(2):
        until.main()
    assert [json.loads(row)["name"] for row in (tmp_path / "out").read_text().splitlines()] == ["a", "b"]


async def test_an_engine_that_does_not_start_ends_the_bench() -> None:
    with pytest.raises(MidfillError, match="no model named 'nothing'"):
        await load.measure("nothing", {}, 0.5, 1, lambda name, found: None)


async def test_every_scene_ends_and_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_embedded(tmp_path / "model")
    paths = os.pathsep.join(str(Path(load.__file__).parents[1] / room) for room in ("engine", "kernels"))
    monkeypatch.setenv("PYTHONPATH", paths)
    told: list[str] = []
    samples: dict[str, load.Sample] = {}

    def tell(name: str, found: dict[str, load.Sample]) -> None:
        told.append(name)
        samples.update(found)

    scenes = load.scenes([2], big="x = 1\n" * 1000)
    await load.measure(str(tmp_path / "model"), scenes, 0.5, 1, tell)
    assert told == list(scenes) == list(samples)
    figures = [sample.figures() for sample in samples.values()]
    assert all(found["failed"] == 0 and found["answered"] > 0 and found["health_p99_s"] > 0 for found in figures)
    assert all(found["line_p50_s"] > 0 for found in figures[:3]) and figures[1]["other_p50_s"] > 0
    json.dumps(figures)
