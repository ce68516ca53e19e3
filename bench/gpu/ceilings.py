"""Measures the machine's peak memory bandwidth and matrix throughput, the references of other figures."""

from dataclasses import dataclass
from typing import Final

import torch

from bench.measure import Clock

NUM_SETS: Final = 2


@dataclass(frozen=True)
class Ceilings:
    """`copy_bytes_per_s`: bytes read and written by an elementwise kernel. Products' rates by number format, in
    operations a second.
    """

    copy_bytes_per_s: float
    product_flops_per_s: dict[str, float]

    def products(self, dtype: str) -> float:
        """The rate of `dtype`, or the fastest measured rate if the format has no product of its own."""
        return self.product_flops_per_s.get(dtype) or max(self.product_flops_per_s.values())


def measure_ceilings(device: torch.device, *, copy_bytes: int, side: int, repeats: int) -> Ceilings:
    """Adds 1 to `copy_bytes` and multiplies square matrices of `side` rows, random numbers, median of `repeats`.

    Not `copy_`: in a captured graph it is a memory copy, which an H200 did more slowly than kernels read.
    """
    clock = Clock(device, repeats, flushes=False)
    source = [torch.randn(copy_bytes // 4, device=device) for _ in range(NUM_SETS)]
    target = torch.empty_like(source[0])
    copy = clock.time([lambda tensor=tensor: torch.add(tensor, 1, out=target) for tensor in source])  # type: ignore[misc]
    dtypes = [torch.float32] if device.type == "cpu" else [torch.bfloat16, torch.float16]
    rates = {str(dtype).removeprefix("torch."): _time_product(clock, device, dtype, side) for dtype in dtypes}
    if device.type == "cpu":
        rates["bfloat16"] = _time_product(Clock(device, max(5, repeats // 20), False), device, torch.bfloat16, side)
    return Ceilings(2 * copy_bytes / copy.median_s, rates)


def _time_product(clock: Clock, device: torch.device, dtype: torch.dtype, side: int) -> float:
    pairs = [(torch.randn(2, side, side, device=device).to(dtype)).unbind() for _ in range(NUM_SETS)]
    timing = clock.time([lambda pair=pair: pair[0] @ pair[1] for pair in pairs])  # type: ignore[misc]
    return 2 * side**3 / timing.median_s
