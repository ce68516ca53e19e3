"""The engine's counters in Prometheus' text format. Knows numbers, no text of requests."""

import time
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from midfill_engine.wire import Stats

SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
ROWS = (16, 32, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 2048, 4096, 8192)


class Metrics:
    """The counters of one scheduler, written from its thread or under its lock."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter("midfill_requests", "Ended requests by outcome", ["outcome"], registry=self._registry)
        self._seconds = Histogram(
            "midfill_fill_seconds", "From a request to its fill", buckets=SECONDS, registry=self._registry
        )
        self._depth = Gauge(
            "midfill_waiting_requests", "Requests without a place, by kind", ["kind"], registry=self._registry
        )
        self._waits = Histogram(
            "midfill_wait_seconds",
            "From a request to its place, by kind",
            ["kind"],
            buckets=SECONDS,
            registry=self._registry,
        )
        self._steps = Counter("midfill_steps", "Denoise steps of finished fills", registry=self._registry)
        self._tokens = Counter("midfill_tokens", "Tokens of finished fills", registry=self._registry)
        self._forwards = Counter("midfill_forwards", "Forward passes", registry=self._registry)
        self._forward_seconds = Counter("midfill_forward_seconds", "Time in forward passes", registry=self._registry)
        self._rows = Histogram("midfill_forward_rows", "Rows of a forward", buckets=ROWS, registry=self._registry)
        self._shared = Counter("midfill_shared_steps", "Steps that shared their forward", registry=self._registry)

    def watch(self, name: str, meaning: str, read: Callable[[], float]) -> None:
        """Registers a number that is read on request."""
        Gauge(name, meaning, registry=self._registry).set_function(read)

    def watch_kind(self, kind: str, count: Callable[[], float]) -> None:
        """Registers the number of waiting requests of a kind."""
        self._depth.labels(kind).set_function(count)

    def count_wait(self, kind: str, seconds: float) -> None:
        self._waits.labels(kind).observe(seconds)

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
