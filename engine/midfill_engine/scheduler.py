"""Runs all open fills on one thread, a step each in turn. Knows generators of events; no tensors, no HTTP."""

import logging
import threading
import traceback
from collections import deque
from collections.abc import Callable, Generator
from typing import Final

from midfill_engine.errors import RequestError
from midfill_engine.wire import ErrorCode, InfillRequest, InfillResponse, StepEvent

MAX_REQUESTS: Final = 32
MAX_ACTIVE: Final = 8  # fills that hold memory at once; the others wait for their turn

Fill = Generator[StepEvent, None, InfillResponse]
Event = StepEvent | InfillResponse | RequestError
Listener = Callable[[Event], None]

logger = logging.getLogger(__name__)


class Ticket:
    """One request's place. Its listener is called from the worker thread; the last event is no StepEvent."""

    def __init__(self, request: InfillRequest, listener: Listener, wake: Callable[[], None]) -> None:
        self.request = request
        self.listener = listener
        self.fill: Fill | None = None
        self.is_cancelled = False
        self._wake = wake

    def cancel(self) -> None:
        """The work ends before its next step. Harmless when it has ended already; any thread."""
        self.is_cancelled = True
        self._wake()


class Scheduler:
    """`open_fill` starts a request's work. `recover` is called after a lack of memory, `fail` after a lost device."""

    def __init__(
        self,
        open_fill: Callable[[InfillRequest], Fill],
        *,
        max_requests: int = MAX_REQUESTS,
        max_active: int = MAX_ACTIVE,
        recover: Callable[[], None] = lambda: None,
        fail: Callable[[], None] = lambda: None,
    ) -> None:
        self._open_fill = open_fill
        self._max_requests = max_requests
        self._max_active = max_active
        self._recover = recover
        self._fail = fail
        self._changed = threading.Condition()
        self._waiting: deque[Ticket] = deque()
        self._active: deque[Ticket] = deque()
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="midfill-scheduler", daemon=True)
        self._thread.start()

    @property
    def num_open(self) -> int:
        with self._changed:
            return len(self._waiting) + len(self._active)

    def submit(self, request: InfillRequest, listener: Listener) -> Ticket:
        """Raises RequestError (`busy`) when too many requests are open."""
        with self._changed:
            if self._is_closed:
                raise RequestError(ErrorCode.BUSY, "the engine is stopping", "try again", status=503)
            if len(self._waiting) + len(self._active) >= self._max_requests:
                message = f"{self._max_requests} requests are open already"
                raise RequestError(ErrorCode.BUSY, message, "try again in a moment", headers={"retry-after": "1"})
            ticket = Ticket(request, listener, self._wake)
            self._waiting.append(ticket)
            self._changed.notify()
        return ticket

    def close(self, timeout_s: float = 5.0) -> None:
        """Cancels everything and waits for the thread to end."""
        self.stop()
        self._thread.join(timeout_s)

    def stop(self) -> None:
        """Cancels everything and takes nothing more; does not wait."""
        with self._changed:
            self._is_closed = True
            for ticket in (*self._waiting, *self._active):
                ticket.is_cancelled = True
            self._changed.notify()

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify()

    def _run(self) -> None:
        while (ticket := self._next()) is not None:
            event = self._advance(ticket)
            if not isinstance(event, StepEvent):
                self._end(ticket, event)
            else:
                ticket.listener(event)

    def _next(self) -> Ticket | None:
        """Waits for work and takes the ticket whose turn it is; None when closed and empty."""
        with self._changed:
            while not self._waiting and not self._active:
                if self._is_closed:
                    return None
                self._changed.wait()
            for queue in (self._active, self._waiting):
                for ticket in queue:
                    if ticket.is_cancelled:
                        return ticket
            while self._waiting and len(self._active) < self._max_active:
                self._active.append(self._waiting.popleft())
            self._active.rotate(-1)
            return self._active[-1]

    def _advance(self, ticket: Ticket) -> Event:
        """One step. Whatever goes wrong in it ends this ticket only."""
        if ticket.is_cancelled:
            return RequestError(ErrorCode.CANCELLED, "the request was cancelled")
        try:
            ticket.fill = ticket.fill or self._open_fill(ticket.request)
            return next(ticket.fill)
        except StopIteration as stop:
            assert isinstance(stop.value, InfillResponse)
            return stop.value
        except RequestError as error:
            return error
        except Exception as error:  # noqa: BLE001 - one request's failure must never end the thread that serves all
            return self._explain(error)

    def _end(self, ticket: Ticket, event: Event) -> None:
        if ticket.fill is not None:
            ticket.fill.close()
            ticket.fill = None
        with self._changed:
            for queue in (self._waiting, self._active):
                if ticket in queue:
                    queue.remove(ticket)
        ticket.listener(event)

    def _explain(self, error: Exception) -> RequestError:
        if is_out_of_memory(error):
            self._recover()
            message = "there was not enough memory for this request"
            return RequestError(ErrorCode.OUT_OF_MEMORY, message, "ask for fewer holes, alternatives or tokens")
        # The message could quote the user's code, so only the kind and the place are logged.
        frames = "".join(traceback.format_tb(error.__traceback__))
        logger.error("a fill failed with %s\n%s", type(error).__name__, frames)
        if type(error).__name__ == "AcceleratorError":
            self._fail()
        return RequestError(ErrorCode.INTERNAL, f"the fill failed ({type(error).__name__})", "see the engine's log")


def is_out_of_memory(error: Exception) -> bool:
    """Of the GPU (torch.OutOfMemoryError), of Python, or of torch's CPU allocator, which raises a bare RuntimeError."""
    is_named = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    return is_named or (isinstance(error, RuntimeError) and "can't allocate memory" in str(error))
