"""Repeats a captured step without waiting for it: the host reads who is done one step late. Knows no step."""

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

import torch
from torch import Tensor

ROW_BUCKETS: Final = (32, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
WARM_UPS: Final = 3

Out = TypeVar("Out")


def choose_bucket(num_rows: int, buckets: Sequence[int] = ROW_BUCKETS) -> int:
    """The smallest bucket that holds `num_rows`. Raises ValueError beyond the largest."""
    fitting = [bucket for bucket in buckets if bucket >= num_rows]
    if not fitting:
        raise ValueError(f"a step takes at most {max(buckets)} rows, not {num_rows}: split the batch")
    return min(fitting)


def capture_graph(call: Callable[[], Out]) -> tuple[torch.cuda.CUDAGraph, Out]:
    """`call` as a graph, and what it returned: memory that every replay writes anew. It runs a few times first."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM_UPS):
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = call()
    return graph, result


class StepLoop:
    """Runs `step`, which works on fixed memory and leaves finished sequences alone, until all of `done` [B] is true.

    On a GPU the step is captured once as a graph; replays are queued one ahead of the copy of `done` that the host
    reads, so no replay waits for the host. The price is one replay that changes nothing at the end. Without a GPU
    the step is called directly, in the same order.
    """

    def __init__(self, step: Callable[[], None], done: Tensor) -> None:
        self._done = done
        self._graph: torch.cuda.CUDAGraph | None = None
        self._copies = [torch.zeros(done.shape, dtype=torch.bool, pin_memory=done.is_cuda) for _ in range(2)]
        self._read = [torch.cuda.Event() for _ in range(2)] if done.is_cuda else []
        self._step = step

    def capture(self, restore: Callable[[], None]) -> None:
        """Captures the step as a graph; nothing without a GPU. Warming up takes steps, which `restore` takes back."""
        if not self._done.is_cuda:
            return
        self._graph, _ = capture_graph(self._step)
        restore()

    def run(self, max_steps: int, on_step: Callable[[int], bool] | None = None) -> int:
        """Returns the number of steps started. `on_step` is told of each and stops the loop by answering false."""
        for started in range(1, max_steps + 1):
            self._start(started % 2)
            if on_step is not None and not on_step(started):
                return started
            if started > 1 and self._is_done((started - 1) % 2):
                return started
        return max_steps

    def _start(self, slot: int) -> None:
        if self._graph is not None:
            self._graph.replay()
        else:
            self._step()
        self._copies[slot].copy_(self._done, non_blocking=True)
        if self._read:
            self._read[slot].record()

    def _is_done(self, slot: int) -> bool:
        if self._read:
            self._read[slot].synchronize()
        return bool(self._copies[slot].all())
