"""Thousands of requests of mixed sizes, some cancelled: nothing fails, nothing is left behind."""

import gc
import os
import random
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from tests.engine import tiny

from midfill_engine.backends import open_fill
from midfill_engine.families import FAMILIES
from midfill_engine.loading.memory import return_freed
from midfill_engine.loading.runtime import Runtime, load_runtime
from midfill_engine.scheduling.scheduler import Scheduler
from midfill_engine.scheduling.turns import Event, Ticket
from midfill_engine.wire import ErrorCode, InfillRequest, InfillResponse, StepEvent

MAX_OPEN = 24
MAX_SLOPE_BYTES = 1024
CANCEL_SLACK_S = 0.05
NUM_REQUESTS = int(os.environ.get("MIDFILL_SOAK_REQUESTS", "20000"))


@dataclass
class Tally:
    """What became of the requests.

    For every cancel: `num_steps` that ended until it was free, and `late_s` from the end of the first of them (the step
    that was running when the cancel came) to then. `step_ends_s` are the latest forwards'.
    """

    filled: int = 0
    cancelled: int = 0
    failures: list[str] = field(default_factory=list)
    num_steps: list[int] = field(default_factory=list)
    late_s: list[float] = field(default_factory=list)
    memory_bytes: list[int] = field(default_factory=list)
    step_ends_s: deque[float] = field(default_factory=lambda: deque(maxlen=1000))

    def note_cancel(self, cancelled_s: float) -> None:
        """Called when its place is free, on the thread that runs the steps."""
        now_s = time.monotonic()
        ends_s = [end_s for end_s in self.step_ends_s if end_s >= cancelled_s]
        self.num_steps.append(len(ends_s))
        self.late_s.append(now_s - ends_s[0] if ends_s else 0.0)
        self.cancelled += 1


def resident_bytes() -> int:
    """What the process holds once free memory went back to the system."""
    gc.collect()
    return_freed()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def draw_request(rng: random.Random) -> InfillRequest:
    segments: list[object] = [{"text": rng.choice(["x = ", "def f(a):\n    ", "", "(" * rng.randint(0, 60)])}]
    for _ in range(rng.choice([1, 1, 1, 1, 2, 3])):
        hole: dict[str, object] = {"max_tokens": rng.choice([1, 2, 4, 8, 24])}
        if rng.random() < 0.2:
            hole |= {"draft": "ab   cd", "keep": [[0, 2]]}
        segments += [{"hole": hole}, {"text": rng.choice([")\n", "\n\nf(1)\n", "y" * rng.randint(0, 40)])}]
    return InfillRequest.model_validate(
        {
            "segments": segments,
            "seed": rng.randint(0, 9),
            "temperature": rng.choice([0.0, 0.0, 0.8]),
            "quality": rng.choice([None, 0.0]),
            "steps": rng.choice([1, 2, 4, 8, None]),
            "n": rng.choice([1, 1, 1, 2]),
            "document": rng.choice([None, "a.py", "b.py"]),
        }
    )


class Customer:
    """Keeps requests open, cancels a fifth of them, and notes how each ends.

    `share_in_step` of all are cancelled in the middle of their first step, the others after a while.
    """

    def __init__(self, scheduler: Scheduler, tally: Tally, seed: int, share_in_step: float) -> None:
        self._scheduler = scheduler
        self._tally = tally
        self._rng = random.Random(seed)
        self._share_in_step = share_in_step
        self._places = threading.Semaphore(MAX_OPEN)
        self._cancelled_s: dict[int, float] = {}
        self._lock = threading.Lock()
        self._meant: set[int] = set()  # requests to be cancelled in the middle of their first step
        self._tickets: dict[int, Ticket] = {}
        self._due: list[int] = []

    def run(self, num_requests: int, num_samples: int) -> None:
        every = max(1, num_requests // num_samples)
        for number in range(num_requests):
            assert self._places.acquire(timeout=60), "no place came free"
            request, fate = draw_request(self._rng), self._rng.random()
            is_meant = fate < self._share_in_step
            with self._lock:
                if is_meant:
                    self._meant.add(number)
                ticket = self._scheduler.submit(request, lambda event, n=number: self._note(n, event))
                if is_meant:
                    self._tickets[number] = ticket
            if not is_meant and fate < 0.2:
                self._cancel_later(number, ticket)
            if number % every == 0:
                self._drain()
                self._tally.memory_bytes.append(resident_bytes())
        self._drain()

    def _drain(self) -> None:
        """Waits until nothing is open: collecting garbage stops all threads, and a cancel that waits would count it."""
        for _ in range(MAX_OPEN):
            assert self._places.acquire(timeout=60), "a request never ended"
        self._places.release(MAX_OPEN)

    def _cancel_later(self, number: int, ticket: Ticket) -> None:
        time.sleep(self._rng.random() * 0.02)
        with self._lock:
            self._cancel(number, ticket)

    def _cancel(self, number: int, ticket: Ticket) -> None:
        """The time is taken when it is told: no step may begin after that."""
        ticket.cancel()
        self._cancelled_s[number] = time.monotonic()

    def cancel_due(self) -> None:
        """Called while a step runs: those that it is the first of are cancelled."""
        with self._lock:
            for number in self._due:
                self._cancel(number, self._tickets.pop(number))
            self._due.clear()

    def _note(self, number: int, event: Event) -> None:
        if isinstance(event, StepEvent):
            if number in self._meant:
                self._meant.remove(number)
                self._due.append(number)
            return
        if isinstance(event, InfillResponse):
            self._tally.filled += 1
        elif event.code is ErrorCode.CANCELLED:
            with self._lock:
                cancelled_s = self._cancelled_s.pop(number)
            self._tally.note_cancel(cancelled_s)
        else:
            self._tally.failures.append(f"{event.code}: {event.message}")
        self._places.release()


def soak(runtime: Runtime, num_requests: int, num_samples: int, share_in_step: float = 0.0) -> Tally:
    tally, others = Tally(), set(threading.enumerate())

    def run(passes: list[object]) -> list[object]:
        customer.cancel_due()
        results = runtime.run(passes)  # type: ignore[arg-type]
        tally.step_ends_s.append(time.monotonic())
        return results  # type: ignore[return-value]

    scheduler = Scheduler(lambda request: open_fill(runtime, request), run, on_out_of_memory=runtime.free_memory)
    customer = Customer(scheduler, tally, seed=1, share_in_step=share_in_step)
    try:
        customer.run(num_requests, num_samples)
        assert scheduler.num_open == 0
        assert scheduler.claimed_bytes == 0
    finally:
        scheduler.close()
    left = [thread for thread in threading.enumerate() if thread not in others]
    assert not any(thread.name == "midfill-scheduler" for thread in left)
    return tally


def check(tally: Tally, num_requests: int) -> None:
    """Some cancels met a step in progress, and none waited for a second one, however slow the machine."""
    assert not tally.failures
    assert tally.filled + tally.cancelled == num_requests
    assert max(tally.num_steps) == 1


def test_a_hundred_and_fifty_requests_leave_nothing_behind(runtime: Runtime) -> None:
    check(soak(runtime, 150, 2, share_in_step=0.1), 150)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("family", "num_requests"), [("embedded", NUM_REQUESTS), ("dreamon", NUM_REQUESTS // 5)])
def test_many_thousand_requests(runtime: Runtime, tmp_path: Path, family: str, num_requests: int) -> None:
    if family != "embedded":
        tiny.make_random(tmp_path, FAMILIES.find(family))
        runtime = load_runtime(str(tmp_path), "cpu")
    tally = soak(runtime, num_requests, num_samples=60)
    samples = np.array(tally.memory_bytes[len(tally.memory_bytes) // 5 :], dtype=float)
    places = np.linspace(num_requests / 5, num_requests, len(samples))
    slope_bytes = float(np.polyfit(places, samples, 1)[0])
    print(
        f"\n{family}: {tally.filled} filled, {tally.cancelled} cancelled, {slope_bytes:.0f} bytes a request, "
        f"free {1000 * float(np.median(tally.late_s)):.1f} ms after the step that a cancel met (99 %: "
        f"{1000 * float(np.quantile(tally.late_s, 0.99)):.1f}, latest {1000 * max(tally.late_s):.1f})"
    )
    check(tally, num_requests)
    assert max(tally.late_s) <= CANCEL_SLACK_S
    assert slope_bytes <= MAX_SLOPE_BYTES
