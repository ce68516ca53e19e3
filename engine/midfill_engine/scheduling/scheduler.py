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
SECONDS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
ROWS: Final = (16, 32, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 2048, 4096, 8192)

Run = Callable[[list[Any]], list[Any]]
Launch = Callable[[list[Any]], Callable[[], list[Any]]]

logger = logging.getLogger(__name__)


class Metrics:
    """The counters of one scheduler, written from its thread or under its lock."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        counter, gauge = partial(Counter, registry=self._registry), partial(Gauge, registry=self._registry)
        histogram = partial(Histogram, registry=self._registry)
        self.requests = counter("midfill_requests", "Ended requests by outcome", ["outcome"])
        self.seconds = histogram("midfill_fill_seconds", "From a request to its fill", buckets=SECONDS)
        self.depth = gauge("midfill_waiting_requests", "Requests without a place, by kind", ["kind"])
        self.waits = histogram("midfill_wait_seconds", "From request to place, by kind", ["kind"], buckets=SECONDS)
        self.steps = counter("midfill_steps", "Denoise steps of finished fills")
        self.tokens = counter("midfill_tokens", "Tokens of finished fills")
        self.forwards = counter("midfill_forwards", "Forward passes")
        self.forward_seconds = counter("midfill_forward_seconds", "Time in forward passes")
        self.rows = histogram("midfill_forward_rows", "Rows of a forward", buckets=ROWS)
        self.shared = counter("midfill_shared_steps", "Steps that shared their forward")

    def watch(self, name: str, meaning: str, read: Callable[[], float]) -> None:
        """Registers a number that is read on request."""
        Gauge(name, meaning, registry=self._registry).set_function(read)

    def show(self) -> bytes:
        return generate_latest(self._registry)


@dataclass(eq=False)
class Scheduler:
    """`open_fill` starts a request's coroutine, `run` computes a list of passes, in order. `launch` begins that and
    returns what waits for the results: steps are shown meanwhile, otherwise before.

    `max_active` fills of any kind run at once, half as many short ones more. `shared_rows` limits the rows of long
    fills in a forward pass that short ones wait for, `max_bytes` the claims of all fills together. `recover` is called
    after an out-of-memory error, `fail` after the device was lost, `rest` when nothing is open.
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
    recover: Callable[[], None] = lambda: None
    fail: Callable[[], None] = lambda: None
    rest: Callable[[], None] = lambda: None
    clock: Clock = time.monotonic

    def __post_init__(self) -> None:
        self.metrics = Metrics()
        self._turns = Turns(self.max_active, self.clock)
        self._changed = threading.Condition()
        self._waiting: deque[Ticket] = deque()
        self._active: deque[Ticket] = deque()
        self._unseen = list[tuple[Ticket, Showing]]()  # steps that are to be shown
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
        """Raises RequestError (`busy`) if too many requests are open, or too many of a named client."""
        with self._changed:
            if self._is_closed:
                raise is_ending()
            held = [ticket.client for ticket in (*self._waiting, *self._active)]
            share = self.max_requests - self.max_requests // 4
            if len(held) >= self.max_requests or (client and held.count(client) >= share):
                self.metrics.requests.labels("refused").inc()
                message = f"{len(held)} requests are open already"
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
        """Estimated time until a place is free, from recent fills."""
        expected_s = self._mean_fill_s * len(self._waiting) / self._turns.num_places
        return max(1, min(MAX_RETRY_AFTER_S, math.ceil(expected_s)))

    def _serve(self) -> None:
        while self._wait():
            self._join_waiting()
            for ticket in list(self._active):
                self._end_cancelled()
                if not ticket.is_cancelled and ticket.work is None:
                    ticket.work = self._advance(ticket)
            asking = [(ticket, ticket.work) for ticket in self._active if ticket.work and not ticket.is_cancelled]
            chosen = self._turns.choose(asking, self.shared_rows)
            for group in split(chosen, lambda each: each[1].num_rows, self.max_rows):
                self._end_cancelled()
                self._forward([(ticket, work) for ticket, work in group if not ticket.is_cancelled])
            self._show()
            self._end_cancelled()
            if not self.num_open:
                self.rest()

    def _wait(self) -> bool:
        """Waits for work; False when closed and empty."""
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
            stopped = is_ending() if self._is_closed else None
            self._end(ticket, stopped or RequestError(ErrorCode.CANCELLED, "the request was cancelled"))

    def _join_waiting(self) -> None:
        """Admits waiting requests while there are places."""
        with self._changed:
            while chosen := self._turns.next(self._waiting, self._active):
                self._waiting.remove(chosen)
                self._active.append(chosen)
                self.metrics.waits.labels(chosen.kind).observe(self.clock() - chosen.submitted_s)

    def _advance(self, ticket: Ticket) -> Work | None:
        """Runs a fill up to its next forward pass or event. An exception ends only this ticket."""
        try:
            ticket.fill = ticket.fill or self.open_fill(ticket.request)
            while ticket.claim is None or self._admit(ticket, ticket.claim):
                item, ticket.answer = ticket.fill.send(ticket.answer), None
                match item:
                    case Claim():
                        ticket.claim = item
                    case Show():
                        ticket.listener(item.event)
                        return None
                    case Work():
                        if ticket.watches and item.showing is not None:
                            self._unseen.append((ticket, item.showing))
                        return item
        except StopIteration as stop:
            assert isinstance(stop.value, InfillResponse)
            self._end(ticket, stop.value)
        except RequestError as error:
            self._end(ticket, error)
        except Exception as error:  # noqa: BLE001 - one request's failure must never end the thread that serves all
            self._end(ticket, self._explain(error))
        return None

    def _show(self) -> None:
        """Builds and sends the events of steps that nobody has seen yet."""
        unseen, self._unseen = self._unseen, []
        for ticket, showing in unseen:
            try:
                if not ticket.is_cancelled:
                    ticket.listener(showing() if callable(showing) else showing)
            except Exception as error:  # noqa: BLE001 - see _advance
                self._end(ticket, self._explain(error))

    def _admit(self, ticket: Ticket, claim: Claim) -> bool:
        """True if a fill may use memory now. Raises RequestError if it never fits."""
        if ticket.is_admitted:
            return True
        if claim.num_bytes > self.max_bytes:
            message = f"the request needs {claim.num_bytes >> 20} MiB and the engine has {self.max_bytes >> 20}"
            raise RequestError(ErrorCode.TOO_LARGE, message, "ask for fewer holes, alternatives or tokens")
        first = next((other for other in self._active if self._goes_first(other, ticket)), ticket)
        ticket.is_admitted = first is ticket and self.claimed_bytes + claim.num_bytes <= self.max_bytes
        return ticket.is_admitted

    def _goes_first(self, other: Ticket, ticket: Ticket) -> bool:
        """True if `other` waits for memory and gets it first: short fills pass long ones only for a while."""
        is_passed = ticket.kind is Kind.SHORT and other.kind is Kind.LONG
        is_due = not is_passed or self.clock() - other.submitted_s > MAX_PASSED_S
        return other.claim is not None and not other.is_admitted and is_due

    def _forward(self, group: list[tuple[Ticket, Work]]) -> None:
        """One forward pass for all. After a failure they are tried in halves, so that only the cause fails."""
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
                self.recover()
            middle = len(group) // 2
            self._forward(group[:middle])
            self._forward(group[middle:])
            return
        self.metrics.forwards.inc()
        self.metrics.forward_seconds.inc(time.perf_counter() - started_s)
        self.metrics.rows.observe(sum(work.num_rows for _, work in group))
        self.metrics.shared.inc(len(group) if len(group) > 1 else 0)
        found = iter(results)
        for ticket, work in group:
            self._turns.count(ticket.client, work.num_rows)
            ticket.num_rows += work.num_rows
            ticket.work = None
            ticket.answer = list(islice(found, len(work.passes)))

    def _run(self, passes: list[Any], *, is_alone: bool) -> list[Any]:
        """All passes in one forward pass; one request's, after an out-of-memory error, once more in halves."""
        try:
            if self.launch is None:
                self._show()
                return self.run(passes)
            wait = self.launch(passes)
            self._show()
            return wait()
        except Exception as error:
            if not is_alone or not is_out_of_memory(error):
                raise
            self.recover()
        middle = -(-len(passes) // 2)
        halves = (half for half in (passes[:middle], passes[middle:]) if half)
        return [result for half in halves for result in self._run(half, is_alone=False)]

    def _end(self, ticket: Ticket, event: InfillResponse | RequestError) -> None:
        if ticket.fill is not None:
            ticket.fill.close()
            ticket.fill = None
        ticket.answer, ticket.work, ticket.is_cancelled = None, None, True
        with self._changed:
            for queue in (self._waiting, self._active):
                if ticket in queue:
                    queue.remove(ticket)
            self._turns.keep({other.client for other in (*self._waiting, *self._active)})
        seconds = self.clock() - ticket.submitted_s
        if isinstance(event, InfillResponse):
            self._mean_fill_s += 0.2 * (seconds - self._mean_fill_s)
            self.metrics.seconds.observe(seconds)
            self.metrics.steps.inc(event.stats.steps)
            self.metrics.tokens.inc(event.stats.tokens)
        self.metrics.requests.labels("filled" if isinstance(event, InfillResponse) else event.code.value).inc()
        ticket.listener(event)

    def _explain(self, error: Exception) -> RequestError:
        if is_out_of_memory(error):
            self.recover()
            message = "there was not enough memory for this request"
            return RequestError(ErrorCode.OUT_OF_MEMORY, message, "ask for fewer holes, alternatives or tokens")
        logger.error("a fill failed with %s", describe_failure(error))
        if type(error).__name__ == "AcceleratorError":
            self.fail()
        return RequestError(ErrorCode.INTERNAL, f"the fill failed ({type(error).__name__})", "see the engine's log")


def is_ending() -> RequestError:
    message, headers = "the engine is ending", {"retry-after": "1", "connection": "close"}
    return RequestError(ErrorCode.BUSY, message, "ask again: another may answer", status=503, headers=headers)


def is_out_of_memory(error: Exception) -> bool:
    """Recognizes out-of-memory errors of Python, of torch, and of cuBLAS, which raises a bare RuntimeError."""
    is_named = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    signs = ("can't allocate memory", "out of memory", "CUBLAS_STATUS_ALLOC_FAILED")
    return is_named or (isinstance(error, RuntimeError) and any(sign in str(error) for sign in signs))
