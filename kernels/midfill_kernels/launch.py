"""What every kernel needs of the machine: interpreted or compiled, and how wide it is. Knows no operator.

With `TRITON_INTERPRET=1` in the environment before the first import, every kernel runs on the CPU, slowly and exactly.
"""

from typing import Final

import torch
import triton
import triton.language as tl

INTERPRETED_PROCESSORS: Final = 2


def is_interpreted() -> bool:
    """Whether kernels run in Triton's interpreter on the CPU."""
    return bool(triton.knobs.runtime.interpret)


def count_processors(device: torch.device) -> int:
    """The GPU's multiprocessors; a small constant without one, so that persistent loops still turn."""
    if device.type != "cuda":
        return INTERPRETED_PROCESSORS
    return torch.cuda.get_device_properties(device).multi_processor_count


def ceil_div(dividend: int, divisor: int) -> int:
    return -(-dividend // divisor)


@triton.jit
def multiply(left, right, accumulator, UPCAST: tl.constexpr):
    """`left @ right + accumulator`. The interpreter would multiply the bit patterns of bf16, so there it is widened."""
    if UPCAST:
        left = left.to(tl.float32)
        right = right.to(tl.float32)
    return tl.dot(left, right, accumulator, input_precision="ieee")


@triton.jit
def widen(narrow, dtype: tl.constexpr, UPCAST: tl.constexpr):
    """`narrow` in the dtype of the other operand; through fp32 where the interpreter knows no direct way."""
    if UPCAST:
        return narrow.to(tl.float32)
    return narrow.to(dtype)
