"""Shuts a server down gracefully: open requests finish, new ones are refused. Knows no requests."""

import logging
import signal
import time
from types import FrameType
from typing import Final

import uvicorn

from midfill_engine.loading.memory import available_bytes, total_bytes
from midfill_engine.serving.service import EngineState

LINGER_S: Final = 0.5  # time to tell clients that still connect
STOP_TIMEOUT_S: Final = 5.0  # time for the answers of cancelled fills

SHORT_IDLE_S: Final = 60.0
TICKS_BETWEEN_LOOKS: Final = 50  # uvicorn ticks ten times a second
SHORT_SHARE: Final = 0.1

logger = logging.getLogger(__name__)


def is_memory_short() -> bool:
    """Whether other programs of this machine could use what an idle engine holds."""
    return available_bytes() < SHORT_SHARE * total_bytes()


class Server(uvicorn.Server):
    """uvicorn's server; a signal drains it for at most `drain_s`, a second one ends it at once.

    It also ends when the engine fails or was idle for too long.
    """

    def __init__(
        self, config: uvicorn.Config, state: EngineState, *, idle_timeout_s: float | None = None, drain_s: float = 0.0
    ) -> None:
        super().__init__(config)
        self._state = state
        state.idle_timeout_s = idle_timeout_s
        self._drain_s = drain_s
        self._asked_s: float | None = None

    async def on_tick(self, counter: int) -> bool:
        if self._state.failure is not None:
            self.should_exit = True
        if not self.is_draining and self._is_idle_too_long(counter):
            logger.info("idle for %.0f s, ending", self._state.idle_s)
            self.drain()
        if self._asked_s is not None and self._is_drained(time.monotonic() - self._asked_s):
            self._stop_fills()
            self.should_exit = True
        return await super().on_tick(counter)

    def _is_idle_too_long(self, counter: int) -> bool:
        """Whether its time is over: that given, or a minute where memory is short. A `serve` without a limit stays."""
        idle_s, limit_s = self._state.idle_s, self._state.idle_timeout_s
        if limit_s is None or idle_s <= min(limit_s, SHORT_IDLE_S):
            return False
        return idle_s > limit_s or (counter % TICKS_BETWEEN_LOOKS == 0 and is_memory_short())

    @property
    def is_draining(self) -> bool:
        return self._asked_s is not None

    def drain(self) -> None:
        """Accepts no new requests; ends when the open ones are answered or time is up."""
        self._state.is_draining = True
        self._asked_s = self._asked_s or time.monotonic()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.is_draining:
            self._drain_s = 0.0
        self.drain()
        if sig == signal.SIGINT and self.should_exit:
            super().handle_exit(sig, frame)

    def _is_drained(self, seconds: float) -> bool:
        is_empty = self._state.num_open == 0
        return seconds >= self._drain_s or (is_empty and seconds >= min(LINGER_S, self._drain_s))

    def _stop_fills(self) -> None:
        if self._state.ready is not None:
            self._state.ready.scheduler.stop()
