"""Messages from a fill to the scheduler: memory claims and forward passes. Knows neither tensors nor the scheduler."""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from midfill_engine.groups import split
from midfill_engine.wire import InfillResponse, StepEvent

if TYPE_CHECKING:  # the service imports this module, and no torch
    from midfill_engine.loading.canvas_model import CanvasPass
    from midfill_engine.models.packed import Pass

MAX_ROWS: Final = 8192  # of one forward pass

T = TypeVar("T")


@dataclass(frozen=True)
class Claim:
    """Memory in bytes that a fill holds until it ends. The fill waits until it is free."""

    num_bytes: int


Showing = StepEvent | Callable[[], StepEvent]  # an event, or what builds it where somebody wants to see it


@dataclass(frozen=True)
class Work:
    """Passes to run, `num_rows` rows together; their results are sent back in order. `showing` is the event that shows
    the fill before these, and is built before they are sent back.
    """

    passes: "list[Pass] | list[CanvasPass]"
    num_rows: int
    showing: Showing | None = None

    @property
    def event(self) -> StepEvent | None:
        return self.showing() if callable(self.showing) else self.showing


Asking = Generator[Work, list[Any], T]  # a part of a fill that asks for forward passes and returns T


def count_rows(step: "Pass | CanvasPass") -> int:
    return step.ids.shape[0]


def ask(passes: Sequence[Any], showing: Showing | None = None) -> Asking[list[Any]]:
    """Runs passes in as many forward passes as their rows need and returns the results; the first has an event."""
    found: list[Any] = []
    for part in split(passes, count_rows, MAX_ROWS) if len(passes) > 1 else [list(passes)] if passes else []:
        found += yield Work(part, sum(map(count_rows, part)), showing)
        showing = None
    return found


def counted(asking: Asking[T]) -> Asking[tuple[T, int]]:
    """The result of `asking` and the number of forward passes that it took."""
    answer, count = None, 0
    while True:
        try:
            work = asking.send(answer)  # type: ignore[arg-type]
        except StopIteration as stop:
            return stop.value, count
        answer, count = (yield work), count + 1


def together(*askings: Asking[Any]) -> Asking[list[Any]]:
    """The results of `askings`, which advance side by side: passes that they ask for at once go into one forward."""
    found: list[Any] = [None] * len(askings)
    answers: dict[int, list[Any] | None] = dict.fromkeys(range(len(askings)))
    while answers:
        asked = dict[int, Work]()
        for number, answer in answers.items():
            try:
                asked[number] = askings[number].send(answer)  # type: ignore[arg-type]
            except StopIteration as stop:
                found[number] = stop.value
        answers = {}
        for group in split(asked.items(), lambda each: each[1].num_rows, MAX_ROWS):
            passes: list[Any] = [step for _, work in group for step in work.passes]
            showing = next((work.showing for _, work in group if work.showing), None)
            results = iter((yield Work(passes, sum(work.num_rows for _, work in group), showing)))
            answers |= {number: [next(results) for _ in work.passes] for number, work in group}
    return found


Fill = Generator[StepEvent | Claim | Work, Any, InfillResponse]
