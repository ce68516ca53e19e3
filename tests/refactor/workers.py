"""Workers that answer by themselves, for tests: what a fill is follows from its request alone."""

import hashlib
import threading
import time
from collections.abc import Callable, Generator
from typing import Any

import pytest

from midfill_engine.wire import FilledHole, HoleSegment, InfillRequest, InfillResponse, ModelInfo, Stats, StepEvent
from midfill_infill.engines.endpoint import Endpoint
from midfill_infill.errors import MidfillError
from midfill_infill.refactor.generating import engines
from midfill_infill.refactor.generating.engines import Engine

Answer = Callable[[InfillRequest], str]


def by_content(request: InfillRequest) -> str:
    """A body that no other request has."""
    return f"return {int(hashlib.sha256(request.model_dump_json().encode()).hexdigest()[:6], 16)}"


class ScriptedWorkers(Engine):
    """Answers with `answer(request)` after `delay_s`; dies at the requests numbered in `die_at`, until revived."""

    def __init__(
        self, answer: Answer = by_content, *, delay_s: float = 0.0, die_at: tuple[int, ...] = (), weights: str = ""
    ) -> None:
        self.endpoint = Endpoint(url="http://scripted")
        self.answer, self.delay_s, self.die_at, self.weights = answer, delay_s, set(die_at), weights
        self.asked: list[InfillRequest] = []
        self.num_revived = 0
        self._lock = threading.Lock()

    def models(self) -> tuple[ModelInfo, ...]:
        info = ModelInfo(
            id="scripted", family="fake", parameters=1, device="cpu", dtype="float32",
            max_context_tokens=512, max_hole_tokens=64, weights=self.weights,
        )  # fmt: skip
        return (info,)

    def infill(self, request: InfillRequest) -> Generator[StepEvent | InfillResponse, None, None]:
        yield self.answer_one(request)

    def answer_one(self, request: InfillRequest) -> InfillResponse:
        with self._lock:
            self.asked.append(request)
            if len(self.asked) in self.die_at:
                raise MidfillError("engine_died", "the engine is not running")
        time.sleep(self.delay_s)
        text = self.answer(request)
        holes = [segment for segment in request.segments if isinstance(segment, HoleSegment)]
        filled = FilledHole(text=text, tokens=[(0, len(text))] if text else [], confidence=[0.5] if text else [])
        stats = Stats(steps=1, forwards=1, tokens=1, ms=1.0)
        rows = [[filled] * len(holes)] * request.n
        return InfillResponse(model="scripted", holes=rows[0], alternatives=rows[1:], stats=stats)

    def revive(self) -> None:
        self.num_revived += 1

    def close(self) -> None:
        return


def use_workers(monkeypatch: pytest.MonkeyPatch, answer: Answer = by_content, **options: Any) -> None:
    """Commands of this process ask ScriptedWorkers in place of an engine of this machine."""
    monkeypatch.setattr(engines, "LocalEngine", lambda *_: ScriptedWorkers(answer, **options))
