"""How long a causal search may take. Knows clocks; no model, no requests."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

Clock = Callable[[], float]


@dataclass(frozen=True)
class Timer:
    """A search is over from `ends_s` on, in seconds of `clock`. Then it ends with the best that it has."""

    clock: Clock = time.perf_counter
    ends_s: float = math.inf

    @classmethod
    def of(cls, max_ms: int | None, clock: Clock = time.perf_counter) -> "Timer":
        return cls(clock, math.inf if max_ms is None else clock() + max_ms / 1000)

    @property
    def is_over(self) -> bool:
        return math.isfinite(self.ends_s) and self.clock() >= self.ends_s


ENDLESS: Final = Timer()
