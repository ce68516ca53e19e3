"""Runs all open fills on one thread: the forwards that their next steps need go through the model together.

Knows coroutines of `work.py`, their memory claims and their order; no tensors, no HTTP. The step is the quantum: fills
join, leave and are cancelled between two forwards.
"""

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final

from midfill_engine.denoising.metrics import Metrics
from midfill_engine.denoising.work import MAX_ROWS, Claim, Fill, Work
from midfill_engine.errors import RequestError, describe_failure
from midfill_engine.wire import ErrorCode, InfillRequest, InfillResponse, StepEvent

MAX_REQUESTS: Final = 32
MAX_ACTIVE: Final = 8  # fills that take part in a forward; the others wait for their turn
MAX_BYTES: Final = 2**33  # that all fills together may claim, where nobody measured the device
MAX_RETRY_AFTER_S: Final = 30

Event = StepEvent | InfillResponse | RequestError
Listener = Callable[[Event], None]
Run = Callable[[list[Any]], list[Any]]

logger = logging.getLogger(__name__)


class Ticket:
    """One request's place. Its listener is called from the worker thread; the last event is no StepEvent."""

    def __init__(self, request: InfillRequest, listener: Listener, wake: Callable[[], None]) -> None:
        self.request = request
        self.listener = listener
        self.fill: Fill | None = None
        self.answer: Any = None
        self.claim: Claim | None = None
        self.is_admitted = False
        self.is_cancelled = False
        self.submitted_s = time.monotonic()
        self._wake = wake

    def cancel(self) -> None:
        """The work ends before its next step. Harmless when it has ended already; any thread."""
        self.is_cancelled = True
        self._wake()


class Scheduler:
    """`open_fill` starts a request's work, `run` answers the passes of a forward, in order.

    `recover` is called after a lack of memory, `fail` after a lost device.
    """

    def __init__(
        self,
        open_fill: Callable[[InfillRequest], Fill],
        run: Run = lambda passes: [],
        *,
        max_requests: int = MAX_REQUESTS,
        max_active: int = MAX_ACTIVE,
        max_rows: int = MAX_ROWS,
        max_bytes: int = MAX_BYTES,
        recover: Callable[[], None] = lambda: None,
        fail: Callable[[], None] = lambda: None,
        metrics: Metrics | None = None,
    ) -> None:
        self._open_fill = open_fill
        self._run_passes = run
        self._max_requests = max_requests
        self._max_active = max_active
        self._max_rows = max_rows
        self._max_bytes = max_bytes
        self._recover = recover
        self._fail = fail
        self.metrics = metrics or Metrics()
        self._changed = threading.Condition()
        self._waiting: deque[Ticket] = deque()
        self._active: deque[Ticket] = deque()
        self._is_closed = False
        self._mean_fill_s = 0.0
        self._thread = threading.Thread(target=self._serve, name="midfill-scheduler", daemon=True)
        self._thread.start()

    @property
    def num_open(self) -> int:
        with self._changed:
            return len(self._waiting) + len(self._active)

    @property
    def num_active(self) -> int:
        with self._changed:
            return len(self._active)

    @property
    def claimed_bytes(self) -> int:
        """What the admitted fills hold."""
        with self._changed:
            return sum(ticket.claim.num_bytes for ticket in self._active if ticket.is_admitted and ticket.claim)

    def submit(self, request: InfillRequest, listener: Listener) -> Ticket:
        """Raises RequestError (`busy`) when too many requests are open."""
        with self._changed:
            if self._is_closed:
                raise is_ending()
            if len(self._waiting) + len(self._active) >= self._max_requests:
                self.metrics.count_request("refused")
                message = f"{self._max_requests} requests are open already"
                headers = {"retry-after": str(self._retry_after_s())}
                raise RequestError(ErrorCode.BUSY, message, "try again in a moment", headers=headers)
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

    def _retry_after_s(self) -> int:
        """When a place will be free, from how long fills took lately."""
        expected_s = self._mean_fill_s * len(self._waiting) / self._max_active
        return max(1, min(MAX_RETRY_AFTER_S, math.ceil(expected_s)))

    def _serve(self) -> None:
        while self._wait():
            self._join_waiting()
            asking: list[tuple[Ticket, Work]] = []
            for ticket in list(self._active):
                self._end_cancelled()
                if not ticket.is_cancelled:
                    work = self._advance(ticket)
                    if work is not None:
                        asking.append((ticket, work))
            for group in self._group(asking):
                self._end_cancelled()
                self._forward([(ticket, work) for ticket, work in group if not ticket.is_cancelled])
            self._end_cancelled()

    def _wait(self) -> bool:
        """Waits for work; False when closed and empty."""
        with self._changed:
            while not self._waiting and not self._active:
                if self._is_closed:
                    return False
                self._changed.wait()
        return True

    def _end_cancelled(self) -> None:
        with self._changed:
            cancelled = [ticket for ticket in (*self._waiting, *self._active) if ticket.is_cancelled]
        for ticket in cancelled:
            stopped = is_ending() if self._is_closed else None
            self._end(ticket, stopped or RequestError(ErrorCode.CANCELLED, "the request was cancelled"))

    def _join_waiting(self) -> None:
        """Takes waiting requests in, the oldest first, but of one document the newest."""
        with self._changed:
            while self._waiting and len(self._active) < self._max_active:
                oldest = self._waiting[0]
                name = oldest.request.document
                same = [ticket for ticket in self._waiting if name is not None and ticket.request.document == name]
                chosen = same[-1] if same else oldest
                self._waiting.remove(chosen)
                self._active.append(chosen)

    def _advance(self, ticket: Ticket) -> Work | None:
        """Runs a fill up to its next forward, or by one event. Whatever goes wrong in it ends this ticket only."""
        try:
            ticket.fill = ticket.fill or self._open_fill(ticket.request)
            while ticket.claim is None or self._admit(ticket, ticket.claim):
                item, ticket.answer = ticket.fill.send(ticket.answer), None
                match item:
                    case Claim():
                        ticket.claim = item
                    case StepEvent():
                        ticket.listener(item)
                        return None
                    case Work():
                        if item.event is not None:
                            ticket.listener(item.event)
                        return item
        except StopIteration as stop:
            assert isinstance(stop.value, InfillResponse)
            self._end(ticket, stop.value)
        except RequestError as error:
            self._end(ticket, error)
        except Exception as error:  # noqa: BLE001 - one request's failure must never end the thread that serves all
            self._end(ticket, self._explain(error))
        return None

    def _admit(self, ticket: Ticket, claim: Claim) -> bool:
        """Whether a fill may use memory: once what others hold leaves room. Raises RequestError where it never will."""
        if ticket.is_admitted:
            return True
        if claim.num_bytes > self._max_bytes:
            message = f"the request needs {claim.num_bytes >> 20} MiB and the engine has {self._max_bytes >> 20}"
            raise RequestError(ErrorCode.TOO_LARGE, message, "ask for fewer holes, alternatives or tokens")
        first = next((other for other in self._active if other.claim and not other.is_admitted), ticket)
        ticket.is_admitted = first is ticket and self.claimed_bytes + claim.num_bytes <= self._max_bytes
        return ticket.is_admitted

    def _group(self, asking: list[tuple[Ticket, Work]]) -> Iterator[list[tuple[Ticket, Work]]]:
        """Cuts what is asked into forwards of at most `max_rows` rows."""
        group: list[tuple[Ticket, Work]] = []
        for ticket, work in asking:
            if group and sum(other.num_rows for _, other in group) + work.num_rows > self._max_rows:
                yield group
                group = []
            group.append((ticket, work))
        if group:
            yield group

    def _forward(self, group: list[tuple[Ticket, Work]]) -> None:
        """One forward for all of them. After a failure they are tried in halves, so that only the cause fails."""
        if not group:
            return
        started_s = time.perf_counter()
        passes = [step for _, work in group for step in work.passes]
        try:
            results = self._run_passes(passes) if len(group) > 1 else self._run_alone(passes)
        except Exception as error:  # noqa: BLE001 - see _advance
            if len(group) == 1:
                self._end(group[0][0], self._explain(error))
                return
            if is_out_of_memory(error):
                self._recover()
            middle = len(group) // 2
            self._forward(group[:middle])
            self._forward(group[middle:])
            return
        self.metrics.count_forward(len(group), sum(work.num_rows for _, work in group), started_s)
        for ticket, work in group:
            ticket.answer, results = results[: len(work.passes)], results[len(work.passes) :]

    def _run_alone(self, passes: list[Any]) -> list[Any]:
        """One request's passes: together, and after a lack of memory once more in halves."""
        try:
            return self._run_passes(passes)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            self._recover()
        middle = -(-len(passes) // 2)
        return self._run_passes(passes[:middle]) + (self._run_passes(passes[middle:]) if passes[middle:] else [])

    def _end(self, ticket: Ticket, event: InfillResponse | RequestError) -> None:
        if ticket.fill is not None:
            ticket.fill.close()
            ticket.fill = None
        ticket.answer, ticket.is_cancelled = None, True
        with self._changed:
            for queue in (self._waiting, self._active):
                if ticket in queue:
                    queue.remove(ticket)
        seconds = time.monotonic() - ticket.submitted_s
        if isinstance(event, InfillResponse):
            self._mean_fill_s += 0.2 * (seconds - self._mean_fill_s)
            self.metrics.count_fill(event.stats, seconds)
        self.metrics.count_request("filled" if isinstance(event, InfillResponse) else event.code.value)
        ticket.listener(event)

    def _explain(self, error: Exception) -> RequestError:
        if is_out_of_memory(error):
            self._recover()
            message = "there was not enough memory for this request"
            return RequestError(ErrorCode.OUT_OF_MEMORY, message, "ask for fewer holes, alternatives or tokens")
        logger.error("a fill failed with %s", describe_failure(error))
        if type(error).__name__ == "AcceleratorError":
            self._fail()
        return RequestError(ErrorCode.INTERNAL, f"the fill failed ({type(error).__name__})", "see the engine's log")


def is_ending() -> RequestError:
    headers = {"retry-after": "1", "connection": "close"}
    return RequestError(
        ErrorCode.BUSY, "the engine is ending", "ask again: another may answer", status=503, headers=headers
    )


def is_out_of_memory(error: Exception) -> bool:
    """Of torch on a GPU, of Python, or of what raises a bare RuntimeError: torch on a CPU or on Apple's GPU, cuBLAS."""
    is_named = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    signs = ("can't allocate memory", "out of memory", "CUBLAS_STATUS_ALLOC_FAILED")
    return is_named or (isinstance(error, RuntimeError) and any(sign in str(error) for sign in signs))
