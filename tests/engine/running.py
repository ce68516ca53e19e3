"""Services behind sockets, for tests of all that asks one."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from tests.engine import tiny
from tests.engine.fakes import LIMIT_S, Service

from midfill_engine.backends import open_fill
from midfill_engine.families import FAMILIES
from midfill_engine.loading.runtime import load_runtime
from midfill_engine.scheduling.scheduler import Scheduler
from midfill_engine.serving.connection import ConnectionLimits, timed_protocol
from midfill_engine.serving.security import MAX_HEADER_BYTES, Security
from midfill_engine.serving.service import EngineState, Ready, create_app


@dataclass
class RunningServer:
    socket: Path

    def client(self) -> httpx.AsyncClient:
        transport = httpx.AsyncHTTPTransport(uds=str(self.socket))
        return httpx.AsyncClient(transport=transport, base_url="http://midfill", timeout=LIMIT_S)


@contextmanager
def serve(service: Service, socket: Path, **limits: Any) -> Iterator[RunningServer]:
    """Serves it by uvicorn on a unix socket, in a thread."""
    config = uvicorn.Config(
        create_app(service.state, service.security),
        uds=str(socket),
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
    while not server.started:
        time.sleep(0.01)
    yield RunningServer(socket)
    server.should_exit = True
    thread.join(LIMIT_S)
    assert not thread.is_alive()


@contextmanager
def serve_causal(folder: Path) -> Iterator[RunningServer]:
    """Serves a tiny random causal model; it and the socket are in `folder`."""
    tiny.make_random(folder / "tiny", FAMILIES.find("causal"))
    runtime = load_runtime(str(folder / "tiny"), "cpu", dtype="fp32")
    assert runtime.pace.pass_s >= 0, "measured as the model is loaded"
    scheduler = Scheduler(lambda request: open_fill(runtime, request), runtime.run)
    state = EngineState(ready=Ready(runtime.info, runtime.names, scheduler))
    with serve(Service(state, scheduler, Security.for_unix_socket()), folder / "engine.sock") as server:
        yield server
    scheduler.close()
