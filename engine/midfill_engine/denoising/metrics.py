"""The engine's counters in Prometheus' text format. Knows numbers, no text of requests."""

import time
from collections.abc import Callable
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from midfill_engine.wire import Stats

SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
ROWS = (16, 32, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 2048, 4096, 8192)


class Metrics:
    """The counters of one scheduler, written from its thread or under its lock."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        counter, gauge = partial(Counter, registry=self._registry), partial(Gauge, registry=self._registry)
        histogram = partial(Histogram, registry=self._registry)
        self._requests = counter("midfill_requests", "Ended requests by outcome", ["outcome"])
        self._seconds = histogram("midfill_fill_seconds", "From a request to its fill", buckets=SECONDS)
        self.depth = gauge("midfill_waiting_requests", "Requests without a place, by kind", ["kind"])
        self.waits = histogram(
            "midfill_wait_seconds", "From a request to its place, by kind", ["kind"], buckets=SECONDS
        )
        self._steps = counter("midfill_steps", "Denoise steps of finished fills")
        self._tokens = counter("midfill_tokens", "Tokens of finished fills")
        self._forwards = counter("midfill_forwards", "Forward passes")
        self._forward_seconds = counter("midfill_forward_seconds", "Time in forward passes")
        self._rows = histogram("midfill_forward_rows", "Rows of a forward", buckets=ROWS)
        self._shared = counter("midfill_shared_steps", "Steps that shared their forward")

    def watch(self, name: str, meaning: str, read: Callable[[], float]) -> None:
        """Registers a number that is read on request."""
        Gauge(name, meaning, registry=self._registry).set_function(read)

    def count_request(self, outcome: str) -> None:
        self._requests.labels(outcome).inc()

    def count_fill(self, stats: Stats, seconds: float) -> None:
        self._seconds.observe(seconds)
        self._steps.inc(stats.steps)
        self._tokens.inc(stats.tokens)

    def count_forward(self, num_steps: int, num_rows: int, started_s: float) -> None:
        """Counts a forward pass that answered `num_steps` fills."""
        self._forwards.inc()
        self._forward_seconds.inc(time.perf_counter() - started_s)
        self._rows.observe(num_rows)
        if num_steps > 1:
            self._shared.inc(num_steps)

    def show(self) -> bytes:
        """All of them as text."""
        return generate_latest(self._registry)
