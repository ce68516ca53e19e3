"""What a fill awaits: memory, forward passes, and that an event is shown. A fill is a coroutine without an event loop:
the scheduler resumes it by `send`, with the result of what it awaits. Knows neither tensors nor the scheduler.
"""

from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar, overload

from midfill_engine.groups import split
from midfill_engine.wire import InfillResponse, StepEvent

if TYPE_CHECKING:  # the service imports this module, and no torch
    from midfill_engine.loading.canvas_model import CanvasPass
    from midfill_engine.models.packed import Pass

MAX_ROWS: Final = 8192  # of one forward pass

T = TypeVar("T")
U = TypeVar("U")
V = TypeVar("V")


class Awaited(Awaitable[T]):
    """What a coroutine awaits: it is yielded to the scheduler, which sends the result. Nothing else is ever yielded."""

    def __await__(self) -> "Generator[Awaited[T], T, T]":
        return (yield self)


@dataclass(frozen=True)
class Claim(Awaited[None]):
    """Claims memory, which the fill may use until it ends. The fill waits until so much is free."""

    num_bytes: int


@dataclass(frozen=True)
class Show(Awaited[None]):
    """An event that is sent to the listener at once."""

    event: StepEvent


Showing = StepEvent | Callable[[], StepEvent]  # an event, or a function that builds it if somebody watches


@dataclass(eq=False)
class Work(Awaited[list[Any]]):
    """Passes to run, which have `num_rows` rows together; their results are sent back in order. `showing` shows the
    fill as it is before these passes, so its event is built before the fill goes on with their results.
    """

    passes: "list[Pass] | list[CanvasPass]"
    num_rows: int
    showing: Showing | None = None

    @property
    def event(self) -> StepEvent | None:
        return self.showing() if callable(self.showing) else self.showing


Fill = Coroutine[Claim | Show | Work, Any, InfillResponse]


def count_rows(step: "Pass | CanvasPass") -> int:
    return step.ids.shape[0]


async def forward(passes: Sequence[Any], showing: Showing | None = None) -> list[Any]:
    """Runs passes in forward passes of at most MAX_ROWS rows; returns their results. `showing` goes with the first."""
    num_rows = sum(map(count_rows, passes))
    if 0 < num_rows <= MAX_ROWS:
        return await Work(list(passes), num_rows, showing)
    results: list[Any] = []
    next_showing = showing
    for part in split(passes, count_rows, MAX_ROWS):
        results += await Work(part, sum(map(count_rows, part)), next_showing)
        next_showing = None
    return results


@overload
async def gather(first: Coroutine[Any, Any, T], second: Coroutine[Any, Any, U], /) -> tuple[T, U]: ...
@overload
async def gather(
    first: Coroutine[Any, Any, T], second: Coroutine[Any, Any, U], third: Coroutine[Any, Any, V], /
) -> tuple[T, U, V]: ...
@overload
async def gather(*coroutines: Coroutine[Any, Any, T]) -> tuple[T, ...]: ...
async def gather(*coroutines: Coroutine[Any, Any, Any]) -> tuple[Any, ...]:
    """Advances coroutines that await only Work side by side, and returns what each returns. In each round the passes
    that they await go into one forward pass, or into several if they have more than MAX_ROWS rows.
    """
    returned: dict[int, Any] = {}
    results: dict[int, list[Any] | None] = dict.fromkeys(range(len(coroutines)))  # to send; None starts a coroutine
    try:
        while results:
            awaited: dict[int, Work] = {}
            for index, result in results.items():
                try:
                    awaited[index] = coroutines[index].send(result)
                except StopIteration as stop:
                    returned[index] = stop.value
            results = {}
            for group in split(awaited.items(), lambda item: item[1].num_rows, MAX_ROWS):
                results |= await _run_together(dict(group))
    finally:
        for coroutine in coroutines:
            coroutine.close()
    return tuple(returned[index] for index in range(len(coroutines)))


async def _run_together(works: dict[int, Work]) -> dict[int, list[Any]]:
    """Runs these works in one forward pass, with the first `showing` of them; returns the results by key."""
    passes: list[Any] = []
    for work in works.values():
        passes += work.passes
    num_rows = sum(work.num_rows for work in works.values())
    showing = next((work.showing for work in works.values() if work.showing), None)
    computed = await Work(passes, num_rows, showing)
    results = {}
    start = 0
    for index, work in works.items():
        results[index] = computed[start : start + len(work.passes)]
        start += len(work.passes)
    return results


@dataclass
class ForwardCounter:
    """Counts the forward passes of the coroutines that it runs, which await only Work."""

    count: int = 0

    async def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        results: list[Any] | None = None
        with closing(coroutine):
            while True:
                try:
                    work: Work = coroutine.send(results)
                except StopIteration as stop:
                    return stop.value  # type: ignore[no-any-return]
                results = await work
                self.count += 1
