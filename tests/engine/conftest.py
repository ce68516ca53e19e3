"""A tiny random model and running services for the engine's tests. None of them needs weights."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import uvicorn
from tests.engine import tiny
from tests.engine.fakes import INFO, LIMIT_S, FakeFills, RunningServer, Service

from midfill_engine.backends import open_fill
from midfill_engine.families import FAMILIES
from midfill_engine.loading.hub import load_embedded
from midfill_engine.loading.runtime import Runtime, load_runtime
from midfill_engine.scheduling.scheduler import Scheduler
from midfill_engine.serving.connection import ConnectionLimits, timed_protocol
from midfill_engine.serving.security import MAX_HEADER_BYTES, Security
from midfill_engine.serving.service import EngineState, Ready, create_app


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def checkpoint_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("random")
    tiny.make_embedded(folder)
    return folder


@pytest.fixture(scope="session")
def open_family(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Runtime]:
    """Tiny random checkpoints of published families, each loaded once."""
    made: dict[str, Runtime] = {}

    def make(name: str) -> Runtime:
        if name not in made:
            folder = tmp_path_factory.mktemp(name)
            tiny.make_random(folder, FAMILIES.find(name))
            made[name] = load_runtime(str(folder), "cpu")
        return made[name]

    return make


@pytest.fixture(scope="session")
def runtime(checkpoint_folder: Path) -> Runtime:
    return Runtime.of(load_embedded(checkpoint_folder), "embedded")


@pytest.fixture
def make_service() -> Iterator[Callable[..., Service]]:
    made: list[Service] = []

    def make(fills: FakeFills, security: Security | None = None, **limits: int) -> Service:
        scheduler = Scheduler(fills, **limits)
        state = EngineState(ready=Ready(INFO, ("fake", "alias"), scheduler))
        made.append(Service(state, scheduler, security or Security.for_unix_socket()))
        return made[-1]

    yield make
    for service in made:
        service.scheduler.close()


@pytest.fixture
async def real_service(runtime: Runtime) -> AsyncIterator[Service]:
    """The service over the tiny model."""
    scheduler = Scheduler(lambda request: open_fill(runtime, request), runtime.run, recover=runtime.free_memory)
    state = EngineState(ready=Ready(runtime.info, runtime.names, scheduler))
    yield Service(state, scheduler, Security.for_unix_socket())
    await asyncio.to_thread(scheduler.close)


@pytest.fixture
def run_server(tmp_path: Path) -> Iterator[Callable[..., RunningServer]]:
    """Serves an app by uvicorn on a unix socket, in a thread."""
    running: list[tuple[uvicorn.Server, threading.Thread]] = []

    def run(service: Service, **limits: Any) -> RunningServer:
        path = tmp_path / "engine.sock"
        config = uvicorn.Config(
            create_app(service.state, service.security),
            uds=str(path),
            http=timed_protocol(ConnectionLimits(**limits)),
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            h11_max_incomplete_event_size=MAX_HEADER_BYTES,
            timeout_graceful_shutdown=1,
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run)
        thread.start()
        running.append((server, thread))
        while not server.started:
            time.sleep(0.01)
        return RunningServer(path)

    yield run
    for server, thread in running:
        server.should_exit = True
        thread.join(LIMIT_S)
        assert not thread.is_alive()
