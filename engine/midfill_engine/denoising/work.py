"""What a fill asks of the engine between its steps. Knows neither tensors nor the scheduler."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

from midfill_engine.wire import InfillResponse, StepEvent

if TYPE_CHECKING:  # the service imports this module, and no torch
    from midfill_engine.loading.canvas_model import CanvasPass
    from midfill_engine.models.packed import Pass

MAX_ROWS: Final = 8192  # of one forward pass


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


def ask(passes: Sequence[Any], event: StepEvent | None = None) -> Generator[Work, list[Any], list[Any]]:
    """Runs passes in as many forward passes as their rows need and returns the results; shows `event` first."""
    found: list[Any] = []
    rest = list(passes)
    while rest:
        ends = accumulate(len(step.ids) for step in rest)
        count = max(1, sum(end <= MAX_ROWS for end in ends))
        part, rest = rest[:count], rest[count:]
        found += yield Work(part, sum(len(step.ids) for step in part), event)
        event = None
    return found


Fill = Generator[StepEvent | Claim | Work, Any, InfillResponse]
