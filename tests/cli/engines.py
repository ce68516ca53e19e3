"""Engines in the process of a test, for commands that run in it, too."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.cli.fake_engine import FakeEngine, Plan

from midfill_infill.engines import supervise
from midfill_infill.engines.client import EngineClient
from midfill_infill.engines.endpoint import Endpoint

StartEngine = Callable[[Plan], EngineClient]


@contextmanager
def start_engines(folder: Path) -> Iterator[StartEngine]:
    """Starts scripted engines, each on a thread, and gives a client of each."""
    running: list[tuple[FakeEngine, EngineClient]] = []

    def start(plan: Plan) -> EngineClient:
        socket = folder / f"{len(running)}.sock"
        engine = FakeEngine(socket, plan)
        threading.Thread(target=engine.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        running.append((engine, EngineClient(Endpoint(socket=socket))))
        return running[-1][1]

    yield start
    for engine, client in running:
        client.close()
        engine.shutdown()
        engine.server_close()


def use_engine(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    """What runs in this process asks this engine, whichever it wants."""
    monkeypatch.setattr(supervise, "ensure_engine", lambda *_: endpoint)


def choose_answers(start: StartEngine, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Sets what the engine of this process's commands answers, at first `return a + b`."""

    def change(**plan: object) -> None:
        use_engine(start(Plan(**plan)).endpoint, monkeypatch)  # type: ignore[arg-type]

    change()
    return change
