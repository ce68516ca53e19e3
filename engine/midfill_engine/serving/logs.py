"""The engine's log: one line per event on stderr, with a rate limit per call site. Knows logging, no requests."""

import logging
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Final

MAX_LINES: Final = 10  # records per call site and interval
INTERVAL_S: Final = 60.0
ACCESS: Final = "midfill.access"  # access lines are never dropped


class RateLimit(logging.Filter):
    """Passes `MAX_LINES` records per call site and interval; the first record of the next interval says how many were
    dropped.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._now = now
        self._started_s = now()
        self._counts: Counter[tuple[str, int]] = Counter()
        self._dropped: Counter[tuple[str, int]] = Counter()

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name == ACCESS:
            return True
        if self._now() - self._started_s >= INTERVAL_S:
            self._started_s = self._now()
            self._counts.clear()
        place = (record.pathname, record.lineno)
        self._counts[place] += 1
        if self._counts[place] > MAX_LINES:
            self._dropped[place] += 1
            return False
        if dropped := self._dropped.pop(place, 0):
            record.msg, record.args = f"{record.getMessage()} ({dropped} more like this were not logged)", ()
        return True


def set_up_logging() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
    handler.addFilter(RateLimit())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    logging.getLogger("uvicorn").setLevel(logging.ERROR)
