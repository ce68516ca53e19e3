"""Captures a call as a CUDA graph, for the row count of a bucket. Knows no step."""

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

import torch

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
