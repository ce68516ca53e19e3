"""What a fill asks of the engine between its steps. Knows neither tensors nor who answers."""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, Final

from midfill_engine.wire import InfillResponse, StepEvent

MAX_ROWS: Final = 8192  # of one forward


@dataclass(frozen=True)
class Claim:
    """Memory that a fill will hold until it ends, in bytes. It waits until that is free."""

    num_bytes: int


@dataclass(frozen=True)
class Work:
    """Passes to run, of `num_rows` rows together; their results are sent back in order. `event` is shown first."""

    passes: list[Any]
    num_rows: int
    event: StepEvent | None = None


Fill = Generator[StepEvent | Claim | Work, Any, InfillResponse]
