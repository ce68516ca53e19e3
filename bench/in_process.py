"""Fills requests in this process, one after another, without scheduler and service."""

from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar

from midfill_engine.backends import open_fill
from midfill_engine.loading.runtime import Runtime
from midfill_engine.scheduling.work import Show, Work
from midfill_engine.wire import InfillRequest, InfillResponse, StepEvent

T = TypeVar("T")


def complete(
    runtime: Runtime, coroutine: Coroutine[Any, Any, T], see: Callable[[Any], object] = lambda awaited: None
) -> T:
    """The result of a fill or of a part of it, each of whose forwards runs by itself. `see` gets all that it awaits."""
    results: list[Any] | None = None
    while True:
        try:
            awaited = coroutine.send(results)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        see(awaited)
        results = runtime.run(awaited.passes) if isinstance(awaited, Work) else None  # type: ignore[arg-type]  # its own


def denoise(
    runtime: Runtime, request: InfillRequest, *, cache: str | None = None, lengths: str | None = None
) -> Generator[StepEvent, None, InfillResponse]:
    """Fills all holes of `request` jointly. Yields step 0 before any token is settled, then one event per step.

    Closing the generator cancels the work. `cache` and `lengths` override the family's defaults. Events show the first
    row; the answer ranks fills by mean log confidence. Raises RequestError.
    """
    fill = open_fill(runtime, request, cache=cache, lengths=lengths)
    results: list[Any] | None = None
    while True:
        try:
            awaited = fill.send(results)
        except StopIteration as stop:
            assert isinstance(stop.value, InfillResponse)
            return stop.value
        if isinstance(awaited, Show | Work) and awaited.event is not None:
            yield awaited.event
        results = runtime.run(awaited.passes) if isinstance(awaited, Work) else None  # type: ignore[arg-type]  # its own


def drain(steps: Generator[StepEvent, None, InfillResponse]) -> InfillResponse:
    """Runs a fill to its end and ignores its events."""
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            assert isinstance(stop.value, InfillResponse)
            return stop.value
