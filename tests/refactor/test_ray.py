"""Actors die and nothing is lost or done twice. Needs Ray; runs with the long tests only."""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from tests.cli.fake_engine import Plan

from midfill_infill.engines.supervise import EngineSettings
from midfill_infill.refactor.generating.engines import LocalEngine
from midfill_infill.refactor.generating.generate import generate
from midfill_infill.refactor.journal.journal import Journal
from midfill_infill.refactor.journal.records import State
from midfill_infill.refactor.planning.plan import Planning, Request, make_run
from midfill_infill.refactor.planning.selection import Selection
from midfill_infill.refactor.reporting.export import exported, patch
from midfill_infill.repository.roots import Repository, find_repository

ROOT = Path(__file__).parent.parent.parent
PER_FILE = 10


@pytest.fixture
def scripted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every process that starts an engine, on the cluster too, starts the scripted one."""
    package = tmp_path / "fake" / "midfill_engine"
    package.mkdir(parents=True)
    package.joinpath("__init__.py").write_text(f"__path__.append({str(ROOT / 'engine/midfill_engine')!r})\n")
    package.joinpath("__main__.py").write_text("from fake_engine import main\nmain()\n")
    rooms = [ROOT / room for room in ("lsp", "infill", "engine", "kernels")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, [package.parent, ROOT / "tests/cli", *rooms])))
    monkeypatch.setenv("FAKE_ENGINE_PLAN", Plan(num_steps=1, step_s=0.02).to_json())
    yield


def make_place(root: Path, num_files: int) -> Repository:
    root.mkdir()
    for number in range(num_files):
        functions = (f"def f_{number}_{index}(a, b):\n    ...\n" for index in range(PER_FILE))
        (root / f"m{number}.py").write_text("\n\n".join(functions))
    return find_repository(root)


def fill_run(place: Repository, workers: Any, jobs: int) -> tuple[Path, bytes]:
    run = make_run(place, Request(Selection(stubs=True)), Planning())
    with Journal(run) as journal:
        generate(journal, place.root, workers, jobs=jobs)
        assert set(journal.counts()) == {State.GENERATED}
        return run, b"".join(patch(one) for one in exported(journal, (State.GENERATED,)))


def test_nothing_of_ray_is_imported_unless_asked_for() -> None:
    modules = "midfill_infill.cli, midfill_infill.refactor.generating.ray_workers"
    code = f"import sys, {modules}; assert 'ray' not in sys.modules"
    assert os.spawnv(os.P_WAIT, sys.executable, [sys.executable, "-c", code]) == 0


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.filterwarnings("default")
@pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed")
def test_one_of_two_actors_is_killed_fifty_times(tmp_path: Path, scripted: None) -> None:
    place = make_place(tmp_path / "repo", 30)
    from midfill_infill.refactor.generating.ray_workers import RayWorkers

    local = LocalEngine(EngineSettings())
    try:
        expected = fill_run(place, local, jobs=4)[1]
    finally:
        local.close()
    workers = RayWorkers(EngineSettings(), 2)
    killed: list[int] = []
    stop = threading.Event()

    def kill() -> None:
        while not stop.is_set() and len(killed) < 50:
            try:
                pid = int(workers._ray.get(workers.actors[0].pid.remote(), timeout=20))
                os.kill(pid, signal.SIGKILL)
            except (workers._ray.exceptions.RayError, ProcessLookupError):
                continue
            killed.append(pid)
            time.sleep(0.1)

    killer = threading.Thread(target=kill)
    try:
        workers.models()
        killer.start()
        rounds = 0
        while len(killed) < 50:
            run, got = fill_run(place, workers, jobs=4)
            rounds += 1
            assert got == expected
            with Journal(run) as journal:
                assert sum(journal.counts().values()) == 30 * PER_FILE
    finally:
        stop.set()
        killer.join()
        workers.close()
    holes = rounds * 30 * PER_FILE
    print(f"{len(killed)} kills of one actor in {holes} holes: 0 lost, 0 twice, the same patch")
