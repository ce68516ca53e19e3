"""The time that a request has. Knows no model."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

Clock = Callable[[], float]


@dataclass(frozen=True)
class Timer:
    """The time of a search is over from `ends_s` on, in seconds of `clock`. Then it ends with the best that it has."""

    clock: Clock = time.perf_counter
    ends_s: float = math.inf

    @classmethod
    def of(cls, max_ms: int | None, clock: Clock = time.perf_counter) -> "Timer":
        if max_ms is None:
            return cls(clock)
        return cls(clock, clock() + max_ms / 1000)

    def begin(self, limit_s: float) -> "Timer":
        """The timer of a search that begins now, takes at most `limit_s` seconds, and ends no later than this timer."""
        if math.isinf(limit_s):
            return self
        return Timer(self.clock, min(self.ends_s, self.clock() + limit_s))

    @property
    def is_over(self) -> bool:
        return math.isfinite(self.ends_s) and self.clock() >= self.ends_s


ENDLESS: Final = Timer()
