"""Fake fills, and a service and a server around them, for the engine's tests."""

import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from midfill_engine.scheduler import Scheduler
from midfill_engine.security import Security
from midfill_engine.service import EngineState, create_app
from midfill_engine.wire import (
    FilledHole,
    HoleState,
    InfillRequest,
    InfillResponse,
    ModelInfo,
    Stats,
    StepEvent,
)


@dataclass
class FakeFills:
    """Fills of `num_steps` steps of `step_s` each; the text is `filled` or the number of steps. Records its work."""

    num_steps: int = 5
    step_s: float = 0.0
    shown: str = "?"
    filled: str = ""
    stepped: list[InfillRequest] = field(default_factory=list)
    closed: list[InfillRequest] = field(default_factory=list)
    on_step: Callable[[int], None] = lambda step: None

    def __call__(self, request: InfillRequest) -> Generator[StepEvent, None, InfillResponse]:
        try:
            for step in range(self.num_steps):
                time.sleep(self.step_s)
                self.on_step(step)
                self.stepped.append(request)
                hole = HoleState(text=self.shown, settled=[], masked=1)
                yield StepEvent(step=step, num_steps=self.num_steps, holes=[hole])
            filled = FilledHole(text=self.filled or str(self.num_steps), tokens=[(0, 1)], confidence=[0.5])
            stats = Stats(steps=self.num_steps, forwards=1, tokens=1, ms=1.0)
            return InfillResponse(model="fake", holes=[filled], stats=stats)
        finally:
            self.closed.append(request)


@dataclass
class Service:
    """A service over a scheduler, ready or still loading."""

    state: EngineState
    scheduler: Scheduler
    security: Security

    def client(self, **headers: str) -> httpx.AsyncClient:
        transport = httpx.ASGITransport(create_app(self.state, self.security))
        return httpx.AsyncClient(transport=transport, base_url="http://midfill", headers=headers)


INFO = ModelInfo(
    id="fake", family="fake", parameters=1, device="cpu", dtype="none", max_context_tokens=1, max_hole_tokens=1
)


@dataclass
class RunningServer:
    socket: Path

    def client(self) -> httpx.AsyncClient:
        transport = httpx.AsyncHTTPTransport(uds=str(self.socket))
        return httpx.AsyncClient(transport=transport, base_url="http://midfill", timeout=10)
