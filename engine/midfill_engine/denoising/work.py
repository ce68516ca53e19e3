"""Messages from a fill to the scheduler: memory claims and forward passes. Knows neither tensors nor the scheduler."""

from collections.abc import Generator, Sequence
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


@dataclass(frozen=True)
class Work:
    """Passes to run, `num_rows` rows together; their results are sent back in order. `event` is shown first."""

    passes: "list[Pass] | list[CanvasPass]"
    num_rows: int
    event: StepEvent | None = None


Asking = Generator[Work, list[Any], T]  # a part of a fill that asks for forward passes and returns T


def ask(passes: Sequence[Any], event: StepEvent | None = None) -> Asking[list[Any]]:
    """Runs passes in as many forward passes as their rows need and returns the results; shows `event` first."""
    found: list[Any] = []
    for part in split(passes, lambda step: len(step.ids), MAX_ROWS):
        found += yield Work(part, sum(len(step.ids) for step in part), event)
        event = None
    return found


Fill = Generator[StepEvent | Claim | Work, Any, InfillResponse]
