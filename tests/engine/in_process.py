"""Fills requests in this process, without scheduler and service, for tests and benches."""

from collections.abc import Callable, Coroutine, Generator, Sequence
from typing import Any, TypeVar

import torch

from midfill_engine.backends import open_fill
from midfill_engine.causal.branches import log_probs
from midfill_engine.loading.runtime import Runtime
from midfill_engine.models.packed import Pass
from midfill_engine.scheduling.work import Claim, Fill, Show, Work
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


def run(fill: Generator[StepEvent, None, InfillResponse]) -> tuple[list[StepEvent], InfillResponse]:
    """The events of a fill and its answer."""
    events = []
    while True:
        try:
            events.append(next(fill))
        except StopIteration as stop:
            return events, stop.value


def read_whole(base: Runtime, ids: list[int]) -> torch.Tensor:
    """ln probabilities [L, V] of what follows each id, from one pass without any keys kept."""
    rows = torch.arange(len(ids))
    mask = torch.ones(len(ids), len(ids), dtype=torch.bool).tril()
    (result,) = base.run([Pass(torch.tensor(ids), rows, rows, attention_mask=mask)])
    return log_probs(base, result.hidden)


def run_together(runtime: Runtime, fills: Sequence[Fill]) -> list[InfillResponse]:
    """All fills in lockstep: the passes of one round are one call of the runtime."""
    answers: dict[int, InfillResponse] = {}
    replies: dict[int, object] = dict.fromkeys(range(len(fills)))
    while replies:
        asked: dict[int, Work] = {}
        for number, reply in list(replies.items()):
            try:
                message = fills[number].send(reply)
                while not isinstance(message, Work):
                    message = fills[number].send(None)
                asked[number] = message
            except StopIteration as stop:
                answers[number] = stop.value
        results = iter(runtime.run([step for work in asked.values() for step in work.passes]) if asked else [])  # type: ignore[misc]  # its own
        replies = {number: [next(results) for _ in work.passes] for number, work in asked.items()}
    return [answers[number] for number in range(len(fills))]


def answer_of(runtime: Runtime, request: InfillRequest) -> InfillResponse:
    return drain(denoise(runtime, request))


def works_of(runtime: Runtime, request: InfillRequest, lengths: str | None = None) -> tuple[int, list[Work], list[Any]]:
    """The memory that a fill claims, all that it asks for, and its answer's holes."""
    seen = list[object]()
    answer = complete(runtime, open_fill(runtime, request, lengths=lengths), seen.append)
    claimed = sum(awaited.num_bytes for awaited in seen if isinstance(awaited, Claim))
    return claimed, [awaited for awaited in seen if isinstance(awaited, Work)], answer.holes
