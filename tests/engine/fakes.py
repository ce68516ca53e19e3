"""Fake fills, and a service and a server around them, for the engine's tests."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

import httpx
from tests.engine.in_process import complete

from midfill_engine.backends import open_fill
from midfill_engine.loading.runtime import Runtime
from midfill_engine.models.packed import Pass, Result
from midfill_engine.scheduling.scheduler import Scheduler
from midfill_engine.scheduling.work import Show, Work
from midfill_engine.serving.security import Security
from midfill_engine.serving.service import EngineState, create_app
from midfill_engine.wire import (
    FilledHole,
    HoleState,
    InfillRequest,
    InfillResponse,
    ModelInfo,
    Stats,
    StepEvent,
)

ENDLESS: Final = 10**9  # steps of a fill that somebody must cancel
LIMIT_S: Final = 60.0  # how long a test waits for what must happen, on the slowest of machines


class CountedFill:
    """A fill whose passes are run one by one; their number and that of their rows may move its clock."""

    def __init__(self) -> None:
        self.passes = self.rows = 0

    def run(self, runtime: Runtime, request: InfillRequest, clock: Callable[[], float]) -> InfillResponse:
        return complete(runtime, open_fill(runtime, request, clock=clock), self._count)

    def _count(self, awaited: object) -> None:
        if isinstance(awaited, Work):
            self.passes += 1
            self.rows += awaited.num_rows


class Pace:
    """Holds every step until it is let through; `FakeFills(on_step=Pace())`."""

    def __init__(self) -> None:
        self._permits = threading.Semaphore(0)
        self._is_free = False

    def __call__(self, step: int) -> None:
        assert self._is_free or self._permits.acquire(timeout=LIMIT_S)

    def allow(self, num_steps: int) -> None:
        self._permits.release(num_steps)

    def free(self) -> None:
        """Nothing is held any more."""
        self._is_free = True
        self._permits.release()


def wait_until(condition: Callable[[], bool]) -> None:
    """From a thread that is no event loop's."""
    deadline_s = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.002)


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

    async def __call__(self, request: InfillRequest) -> InfillResponse:
        try:
            for step in range(self.num_steps):
                time.sleep(self.step_s)
                self.on_step(step)
                self.stepped.append(request)
                hole = HoleState(text=self.shown, settled=[], masked=1)
                await Show(StepEvent(step=step, num_steps=self.num_steps, holes=[hole]))
            filled = FilledHole(text=self.filled or str(self.num_steps), tokens=[(0, 1)], confidence=[0.5])
            stats = Stats(steps=self.num_steps, forwards=1, tokens=1, ms=1.0)
            return InfillResponse(model="fake", holes=[filled], stats=stats)
        finally:
            self.closed.append(request)


@dataclass(repr=False)  # asyncio asks a task's result for its repr, and the model's took up to a second
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


def wanting(runtime: Runtime, wishes: Callable[[int], int]) -> Runtime:
    """A model that proposes `wishes(step)` at every masked position, where it is allowed to."""
    step = 0

    class Wanting(Runtime):
        def run(self, passes: list[Pass]) -> list[Result]:
            nonlocal step
            step += 1
            results = super().run(passes)
            found = []
            for one, result in zip(passes, results, strict=True):
                assert one.choice is not None and result.chosen is not None
                ids = result.chosen.ids.clone()
                token = wishes(step)
                may = one.choice.allowed[one.choice.rule_of, token]
                barred = one.choice.barred.get(token)
                ids[may if barred is None else may & ~barred] = token
                chosen = replace(result.chosen, ids=ids)
                found.append(Result(result.hidden, result.own, chosen))
            return found

    fields = {name: getattr(runtime, name) for name in Runtime.__dataclass_fields__}
    return Wanting(**fields)
