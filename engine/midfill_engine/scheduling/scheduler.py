"""Runs all open fills on one thread, and packs the forward passes of their next steps into one. Fills join, leave and
are cancelled between forward passes. Knows no tensors, no HTTP.
"""

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from functools import partial
from itertools import islice
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from midfill_engine.errors import RequestError, describe_failure
from midfill_engine.groups import split
from midfill_engine.scheduling.turns import MAX_PASSED_S, Clock, Kind, Listener, Ticket, Turns
from midfill_engine.scheduling.work import MAX_ROWS, Claim, Fill, Show, Showing, Work
from midfill_engine.wire import ErrorCode, InfillRequest, InfillResponse

MAX_ACTIVE: Final = 8
SHARED_ROWS: Final = 64
MAX_RETRY_AFTER_S: Final = 30
LATEST_SHARE: Final = 0.2  # of the latest fill in the mean time of fills
SECONDS_BUCKETS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)  # of histograms
ROWS_BUCKETS: Final = (16, 32, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 2048, 4096, 8192)

Run = Callable[[list[Any]], list[Any]]  # from passes to their results, in order
Launch = Callable[[list[Any]], Callable[[], list[Any]]]  # returns what waits for the results

logger = logging.getLogger(__name__)


class Metrics:
    """The counters of one scheduler, written from its thread or under its lock."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        counter, gauge = partial(Counter, registry=self._registry), partial(Gauge, registry=self._registry)
        histogram = partial(Histogram, registry=self._registry)
        self.requests = counter("midfill_requests", "Ended requests by outcome", ["outcome"])
        self.seconds = histogram("midfill_fill_seconds", "From a request to its fill", buckets=SECONDS_BUCKETS)
        self.depth = gauge("midfill_waiting_requests", "Requests without a place, by kind", ["kind"])
        self.waits = histogram(
            "midfill_wait_seconds", "From request to place, by kind", ["kind"], buckets=SECONDS_BUCKETS
        )
        self.steps = counter("midfill_steps", "Denoise steps of finished fills")
        self.tokens = counter("midfill_tokens", "Tokens of finished fills")
        self.forwards = counter("midfill_forwards", "Forward passes")
        self.forward_seconds = counter("midfill_forward_seconds", "Time in forward passes")
        self.rows = histogram("midfill_forward_rows", "Rows of a forward", buckets=ROWS_BUCKETS)
        self.shared = counter("midfill_shared_steps", "Steps that shared their forward")

    def watch(self, name: str, meaning: str, read: Callable[[], float]) -> None:
        """Registers a number that is read whenever the metrics are shown."""
        Gauge(name, meaning, registry=self._registry).set_function(read)

    def show(self) -> bytes:
        return generate_latest(self._registry)


@dataclass(eq=False)
class Scheduler:
    """Runs fills on a thread of its own. `open_fill` opens a request's coroutine, `run` computes passes in one forward
    pass. A `launch`, if there is one, does so instead: it begins the pass, steps are shown meanwhile, and what it
    returns waits for the results.

    `max_requests` may be open; `max_active` fills of any kind run at once, and half as many short ones more. A forward
    pass has at most `max_rows` rows; if it has short fills, at most `shared_rows` are of long ones. The claims of all
    fills together are at most `max_bytes`. `on_out_of_memory` is called after an out-of-memory error, `on_device_lost`
    after the device was lost, `on_idle` whenever no request is open any more.
    """

    open_fill: Callable[[InfillRequest], Fill]
    run: Run = lambda passes: []
    _: KW_ONLY
    launch: Launch | None = None
    max_requests: int = 64
    max_active: int = MAX_ACTIVE
    max_rows: int = MAX_ROWS
    shared_rows: int = SHARED_ROWS
    max_bytes: int = 2**33
    on_out_of_memory: Callable[[], None] = lambda: None
    on_device_lost: Callable[[], None] = lambda: None
    on_idle: Callable[[], None] = lambda: None
    clock: Clock = time.monotonic

    def __post_init__(self) -> None:
        self.metrics = Metrics()
        self._turns = Turns(self.max_active, self.clock)
        self._changed = threading.Condition()
        self._waiting: deque[Ticket] = deque()
        self._active: deque[Ticket] = deque()
        self._unshown = list[tuple[Ticket, Showing]]()  # the events of steps that are to be shown
        self._has_cancelled = False
        for kind in Kind:
            self.metrics.depth.labels(kind).set_function(partial(self._count_waiting, kind))
        self._is_closed = False
        self._mean_fill_s = 0.0
        self._thread = threading.Thread(target=self._serve, name="midfill-scheduler", daemon=True)
        self._thread.start()

    @property
    def num_open(self) -> int:
        with self._changed:
            return len(self._waiting) + len(self._active)

    @property
    def claimed_bytes(self) -> int:
        with self._changed:
            return sum(ticket.claim.num_bytes for ticket in self._active if ticket.is_admitted and ticket.claim)

    def _count_waiting(self, kind: Kind) -> int:
        with self._changed:
            return sum(ticket.kind is kind for ticket in self._waiting)

    def submit(self, request: InfillRequest, listener: Listener, client: str = "", *, watches: bool = True) -> Ticket:
        """Opens a request. Raises RequestError (`busy`) if closed, or if too many are open, also of a named client."""
        with self._changed:
            if self._is_closed:
                raise ending_error()
            open_clients = [ticket.client for ticket in (*self._waiting, *self._active)]
            max_of_client = self.max_requests - self.max_requests // 4
            if len(open_clients) >= self.max_requests or (client and open_clients.count(client) >= max_of_client):
                self.metrics.requests.labels("refused").inc()
                message = f"{len(open_clients)} requests are open already"
                headers = {"retry-after": str(self._retry_after_s())}
                raise RequestError(ErrorCode.BUSY, message, "try again in a moment", headers=headers)
            ticket = Ticket(request, listener, self._wake, client, watches, submitted_s=self.clock())
            self._waiting.append(ticket)
            self._changed.notify()
        return ticket

    def close(self, timeout_s: float = 5.0) -> None:
        """Cancels everything and waits for the thread to end."""
        self.stop()
        self._thread.join(timeout_s)

    def stop(self) -> None:
        """Cancels everything and accepts no more; does not wait."""
        with self._changed:
            self._is_closed = True
            for ticket in (*self._waiting, *self._active):
                ticket.is_cancelled = True
            self._has_cancelled = True
            self._changed.notify()

    def _wake(self) -> None:
        with self._changed:
            self._has_cancelled = True
            self._changed.notify()

    def _retry_after_s(self) -> int:
        """The estimated seconds until a place is free, by the time that recent fills took once they had a place."""
        expected_s = self._mean_fill_s * len(self._waiting) / self._turns.num_places
        return max(1, min(MAX_RETRY_AFTER_S, math.ceil(expected_s)))

    def _serve(self) -> None:
        """Runs on the thread. Each round advances all fills to their next passes, and runs some of these together."""
        while self._wait():
            self._join_waiting()
            for ticket in list(self._active):
                self._end_cancelled()
                if not ticket.is_cancelled and ticket.work is None:
                    ticket.work = self._advance(ticket)
            asking = [(ticket, ticket.work) for ticket in self._active if ticket.work and not ticket.is_cancelled]
            chosen = self._turns.choose(asking, self.shared_rows)
            for group in split(chosen, lambda pair: pair[1].num_rows, self.max_rows):
                self._end_cancelled()
                self._forward([(ticket, work) for ticket, work in group if not ticket.is_cancelled])
            self._show_steps()
            self._end_cancelled()
            if not self.num_open:
                self.on_idle()

    def _wait(self) -> bool:
        """Waits until a request is open; returns False if the scheduler is closed and none is."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._active or self._is_closed)
            return bool(self._waiting or self._active)

    def _end_cancelled(self) -> None:
        if not self._has_cancelled:
            return
        with self._changed:
            self._has_cancelled = False
            cancelled = [ticket for ticket in (*self._waiting, *self._active) if ticket.is_cancelled]
        for ticket in cancelled:
            if self._is_closed:
                self._end(ticket, ending_error())
            else:
                self._end(ticket, RequestError(ErrorCode.CANCELLED, "the request was cancelled"))

    def _join_waiting(self) -> None:
        """Admits waiting requests while there are places."""
        with self._changed:
            while chosen := self._turns.next(self._waiting, self._active):
                self._waiting.remove(chosen)
                self._active.append(chosen)
                chosen.placed_s = self.clock()
                self.metrics.waits.labels(chosen.kind).observe(chosen.placed_s - chosen.submitted_s)

    def _advance(self, ticket: Ticket) -> Work | None:
        """Runs a fill up to its next passes; returns None if it waits for memory, has shown an event, or has ended."""
        try:
            ticket.fill = ticket.fill or self.open_fill(ticket.request)
            while ticket.claim is None or self._admit(ticket, ticket.claim):
                awaited = ticket.fill.send(ticket.answer)
                ticket.answer = None
                match awaited:
                    case Work():
                        if ticket.watches and awaited.showing is not None:
                            self._unshown.append((ticket, awaited.showing))
                        return awaited
                    case Claim():
                        ticket.claim = awaited
                    case Show():
                        ticket.listener(awaited.event)
                        return None
        except StopIteration as stop:
            assert isinstance(stop.value, InfillResponse)
            self._end(ticket, stop.value)
        except RequestError as error:
            self._end(ticket, error)
        except Exception as error:  # noqa: BLE001 - one request's failure must never end the thread that serves all
            self._end(ticket, self._explain(error))
        return None

    def _show_steps(self) -> None:
        """Builds the events of steps that were not shown yet, and sends them to the listeners."""
        unshown, self._unshown = self._unshown, []
        for ticket, showing in unshown:
            try:
                if not ticket.is_cancelled:
                    ticket.listener(showing() if callable(showing) else showing)
            except Exception as error:  # noqa: BLE001 - see _advance
                self._end(ticket, self._explain(error))

    def _admit(self, ticket: Ticket, claim: Claim) -> bool:
        """True if a fill may use the memory that it claims. Raises RequestError if that never fits."""
        if ticket.is_admitted:
            return True
        if claim.num_bytes > self.max_bytes:
            needed, limit = claim.num_bytes >> 20, self.max_bytes >> 20
            message = f"the request needs {needed} MiB of memory, and the engine has {limit} MiB"
            raise RequestError(ErrorCode.TOO_LARGE, message, "ask for fewer holes, alternatives or tokens")
        first = next((other for other in self._active if self._goes_first(other, ticket)), ticket)
        ticket.is_admitted = first is ticket and self.claimed_bytes + claim.num_bytes <= self.max_bytes
        return ticket.is_admitted

    def _goes_first(self, other: Ticket, ticket: Ticket) -> bool:
        """True if `other` waits for memory and `ticket` may not pass it: short fills may pass long ones for a while."""
        may_pass = ticket.kind is Kind.SHORT and other.kind is Kind.LONG
        is_due = not may_pass or self.clock() - other.submitted_s > MAX_PASSED_S
        return other.claim is not None and not other.is_admitted and is_due

    def _forward(self, group: list[tuple[Ticket, Work]]) -> None:
        """Runs one forward pass for all. If it fails, it runs each half by itself, so that only the cause is ended."""
        if not group:
            return
        started_s = time.perf_counter()
        passes = [step for _, work in group for step in work.passes]
        try:
            results = self._run(passes, is_alone=len(group) == 1)
        except Exception as error:  # noqa: BLE001 - see _advance
            if len(group) == 1:
                self._end(group[0][0], self._explain(error))
                return
            if is_out_of_memory(error):
                self._make_room()
            middle = len(group) // 2
            self._forward(group[:middle])
            self._forward(group[middle:])
            return
        self.metrics.forwards.inc()
        self.metrics.forward_seconds.inc(time.perf_counter() - started_s)
        self.metrics.rows.observe(sum(work.num_rows for _, work in group))
        self.metrics.shared.inc(len(group) if len(group) > 1 else 0)
        remaining = iter(results)
        for ticket, work in group:
            self._turns.count(ticket.client, work.num_rows)
            ticket.num_rows += work.num_rows
            ticket.work = None
            ticket.answer = list(islice(remaining, len(work.passes)))

    def _run(self, passes: list[Any], *, is_alone: bool) -> list[Any]:
        """Runs all passes in one forward pass. If memory does not suffice for those of a single request (`is_alone`),
        runs each half of them by itself.
        """
        try:
            if self.launch is None:
                self._show_steps()
                return self.run(passes)
            wait = self.launch(passes)
            self._show_steps()
            return wait()
        except Exception as error:
            if not is_alone or not is_out_of_memory(error):
                raise
            self._make_room()
        middle = -(-len(passes) // 2)
        halves = (half for half in (passes[:middle], passes[middle:]) if half)
        return [result for half in halves for result in self._run(half, is_alone=False)]

    def _end(self, ticket: Ticket, event: InfillResponse | RequestError) -> None:
        """Closes a request's fill and sends its last event."""
        if ticket.fill is not None:
            ticket.fill.close()
            ticket.fill = None
        ticket.answer, ticket.work, ticket.is_cancelled = None, None, True
        with self._changed:
            for queue in (self._waiting, self._active):
                if ticket in queue:
                    queue.remove(ticket)
            self._turns.keep({other.client for other in (*self._waiting, *self._active)})
        if isinstance(event, InfillResponse):
            now_s = self.clock()
            self._mean_fill_s += LATEST_SHARE * (now_s - ticket.placed_s - self._mean_fill_s)
            self.metrics.seconds.observe(now_s - ticket.submitted_s)
            self.metrics.steps.inc(event.stats.steps)
            self.metrics.tokens.inc(event.stats.tokens)
        self.metrics.requests.labels("filled" if isinstance(event, InfillResponse) else event.code.value).inc()
        ticket.listener(event)

    def _make_room(self) -> None:
        """Calls `on_out_of_memory`, which may fail on a device that has failed."""
        try:
            self.on_out_of_memory()
        except Exception as error:  # noqa: BLE001 - see _advance
            logger.error("no memory was freed: %s", describe_failure(error))

    def _explain(self, error: Exception) -> RequestError:
        """The error that ends a request whose fill failed. Calls `on_out_of_memory` or `on_device_lost` if that is the
        cause.
        """
        if is_out_of_memory(error):
            self._make_room()
            message = "there was not enough memory for this request"
            return RequestError(ErrorCode.OUT_OF_MEMORY, message, "ask for fewer holes, alternatives or tokens")
        logger.error("a fill failed with %s", describe_failure(error))
        if type(error).__name__ == "AcceleratorError":
            self.on_device_lost()
        return RequestError(ErrorCode.INTERNAL, f"the fill failed ({type(error).__name__})", "see the engine's log")


def ending_error() -> RequestError:
    """The error that answers requests while the engine ends."""
    message, headers = "the engine is ending", {"retry-after": "1", "connection": "close"}
    return RequestError(ErrorCode.BUSY, message, "ask again: another may answer", status=503, headers=headers)


def is_out_of_memory(error: Exception) -> bool:
    """Recognizes out-of-memory errors of Python, of torch, and of cuBLAS, which raises a bare RuntimeError."""
    is_named = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    signs = ("can't allocate memory", "out of memory", "CUBLAS_STATUS_ALLOC_FAILED")
    return is_named or (isinstance(error, RuntimeError) and any(sign in str(error) for sign in signs))
