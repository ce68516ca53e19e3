"""Thousands of requests of mixed sizes, some cancelled: nothing fails, nothing is left behind."""

import ctypes
import gc
import os
import random
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from midfill_engine import hub
from midfill_engine.denoise import open_fill
from midfill_engine.models.registry import FAMILIES
from midfill_engine.runtime import Runtime, load_runtime
from midfill_engine.scheduler import Event, Scheduler, Ticket
from midfill_engine.wire import ErrorCode, InfillRequest, InfillResponse, StepEvent

MAX_OPEN = 24
MAX_SLOPE_BYTES = 1024
CANCEL_SLACK_S = 0.05


@dataclass
class Tally:
    """What became of the requests, and how long cancels took beyond the slowest step so far."""

    filled: int = 0
    cancelled: int = 0
    failures: list[str] = field(default_factory=list)
    late_s: list[float] = field(default_factory=list)
    memory_bytes: list[int] = field(default_factory=list)
    slowest_step_s: float = 0.0


def resident_bytes() -> int:
    """What the process holds once free memory went back to the system."""
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
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
    """Keeps requests open, cancels some of them after a while, and notes how each ends."""

    def __init__(self, scheduler: Scheduler, tally: Tally, seed: int) -> None:
        self._scheduler = scheduler
        self._tally = tally
        self._rng = random.Random(seed)
        self._places = threading.Semaphore(MAX_OPEN)
        self._cancelled_s: dict[int, float] = {}

    def run(self, num_requests: int, num_samples: int) -> None:
        every = max(1, num_requests // num_samples)
        for number in range(num_requests):
            assert self._places.acquire(timeout=30), "no place came free"
            ticket = self._scheduler.submit(draw_request(self._rng), lambda event, n=number: self._note(n, event))
            if self._rng.random() < 0.2:
                self._cancel_later(number, ticket)
            if number % every == 0:
                self._tally.memory_bytes.append(resident_bytes())
        for _ in range(MAX_OPEN):
            assert self._places.acquire(timeout=30), "a request never ended"

    def _cancel_later(self, number: int, ticket: Ticket) -> None:
        time.sleep(self._rng.random() * 0.02)
        self._cancelled_s[number] = time.monotonic()
        ticket.cancel()

    def _note(self, number: int, event: Event) -> None:
        if isinstance(event, StepEvent):
            return
        if isinstance(event, InfillResponse):
            self._tally.filled += 1
        elif event.code is ErrorCode.CANCELLED:
            self._tally.cancelled += 1
            waited_s = time.monotonic() - self._cancelled_s.get(number, time.monotonic())
            self._tally.late_s.append(waited_s - self._tally.slowest_step_s)
        else:
            self._tally.failures.append(f"{event.code}: {event.message}")
        self._places.release()


def soak(runtime: Runtime, num_requests: int, num_samples: int) -> Tally:
    tally = Tally()
    last_s = time.monotonic()

    def run(passes: list[object]) -> list[object]:
        """A step is from one forward's end to the next one's: the forward, and what fills make of it."""
        nonlocal last_s
        started_s = time.monotonic()
        results = runtime.run(passes)  # type: ignore[arg-type]
        step_s = time.monotonic() - min(started_s, max(last_s, started_s - 1.0))
        tally.slowest_step_s = max(tally.slowest_step_s, step_s if scheduler.num_active else 0.0)
        last_s = time.monotonic()
        return results  # type: ignore[return-value]

    scheduler = Scheduler(lambda request: open_fill(runtime, request), run, recover=runtime.free_memory)
    try:
        Customer(scheduler, tally, seed=1).run(num_requests, num_samples)
        assert scheduler.num_open == 0
        assert scheduler.claimed_bytes == 0
    finally:
        scheduler.close()
    assert not any(thread.name == "midfill-scheduler" and thread.is_alive() for thread in threading.enumerate())
    return tally


def check(tally: Tally, num_requests: int) -> None:
    assert not tally.failures
    assert tally.filled + tally.cancelled == num_requests
    assert tally.cancelled > 0
    assert max(tally.late_s) <= CANCEL_SLACK_S


def test_a_hundred_and_fifty_requests_leave_nothing_behind(runtime: Runtime) -> None:
    check(soak(runtime, 150, 2), 150)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("family", "num_requests"), [("embedded", 20_000), ("dreamon", 4_000)])
def test_twenty_thousand_requests(runtime: Runtime, tmp_path: Path, family: str, num_requests: int) -> None:
    if family != "embedded":
        hub.make_random(tmp_path, FAMILIES.find(family))
        runtime = load_runtime(str(tmp_path), "cpu")
    tally = soak(runtime, num_requests, num_samples=60)
    samples = np.array(tally.memory_bytes[len(tally.memory_bytes) // 5 :], dtype=float)
    places = np.linspace(num_requests / 5, num_requests, len(samples))
    slope_bytes = float(np.polyfit(places, samples, 1)[0])
    print(
        f"\n{family}: {tally.filled} filled, {tally.cancelled} cancelled, {slope_bytes:.0f} bytes a request, "
        f"slowest step {1000 * tally.slowest_step_s:.0f} ms, latest cancel {1000 * max(tally.late_s):.0f} ms beyond it"
    )
    check(tally, num_requests)
    assert slope_bytes <= MAX_SLOPE_BYTES
