"""What launching kernels needs: whether they are interpreted, the GPU's size, captured graphs. If the environment has
`TRITON_INTERPRET=1` before the first import, every kernel runs on the CPU, slowly and exactly.
"""

from collections.abc import Callable
from typing import Final, TypeVar

import torch
import triton
import triton.language as tl

INTERPRETED_PROCESSORS: Final = 2
ROW_BUCKETS: Final = (32, 64, 96, 128, 192, 256, 384, 512, 768, 1024)  # numbers of rows that have a graph each
WARM_UPS: Final = 3  # calls before a capture

Out = TypeVar("Out")


def is_interpreted() -> bool:
    """True if kernels run in Triton's interpreter on the CPU."""
    return bool(triton.knobs.runtime.interpret)


def count_processors(device: torch.device) -> int:
    """The GPU's multiprocessors; without a GPU a number so small that persistent programs take several work items."""
    if device.type != "cuda":
        return INTERPRETED_PROCESSORS
    return torch.cuda.get_device_properties(device).multi_processor_count


def capture_graph(call: Callable[[], Out]) -> tuple[torch.cuda.CUDAGraph, Out]:
    """`call` as a graph, and its result, which every replay overwrites. Runs `call` a few times first."""
    side_stream = torch.cuda.Stream()
    side_stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side_stream):
        for _ in range(WARM_UPS):
            call()
    torch.cuda.current_stream().wait_stream(side_stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = call()
    return graph, result


@triton.jit
def multiply(left, right, accumulator, UPCAST: tl.constexpr):
    """`left @ right + accumulator`. The interpreter needs `UPCAST`, because it multiplies the bit patterns of bf16."""
    if UPCAST:
        left = left.to(tl.float32)
        right = right.to(tl.float32)
    return tl.dot(left, right, accumulator, input_precision="ieee")
