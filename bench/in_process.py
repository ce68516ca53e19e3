"""Fills requests in this process, one after another, without scheduler and service."""

from collections.abc import Generator
from typing import Any

from midfill_engine.backends import open_fill
from midfill_engine.loading.runtime import Runtime
from midfill_engine.scheduling.work import Work
from midfill_engine.wire import InfillRequest, InfillResponse, StepEvent


def denoise(
    runtime: Runtime, request: InfillRequest, *, cache: str | None = None, lengths: str | None = None
) -> Generator[StepEvent, None, InfillResponse]:
    """Fills all holes of `request` jointly. Yields step 0 before any token is settled, then one event per step.

    Closing the generator cancels the work. `cache` and `lengths` override the family's defaults. Events show the first
    row; the answer ranks fills by mean log confidence. Raises RequestError.
    """
    fill = open_fill(runtime, request, cache=cache, lengths=lengths)
    answer: Any = None
    while True:
        try:
            item = fill.send(answer)
        except StopIteration as stop:
            assert isinstance(stop.value, InfillResponse)
            return stop.value
        answer = None
        match item:
            case StepEvent():
                yield item
            case Work():
                if item.event is not None:
                    yield item.event
                answer = runtime.run(item.passes)  # type: ignore[arg-type]  # a fill asks its own runtime


def drain(steps: Generator[StepEvent, None, InfillResponse]) -> InfillResponse:
    """Runs a fill to its end and ignores its events."""
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            assert isinstance(stop.value, InfillResponse)
            return stop.value
