"""How kernels are compared with their references."""

import torch
from torch import Tensor

# Relative errors, of the norm of the whole: what rounding to the type costs, with room for the order of sums.
# bf16 gets twice that: the interpreter cuts off where a GPU rounds, and short rows do not average it.
TOLERANCES = {torch.float32: 1e-5, torch.float16: 1e-3, torch.bfloat16: 1.6e-2}


def assert_close(found: Tensor, expected: Tensor, dtype: torch.dtype) -> None:
    """Raises AssertionError if |found - expected| / |expected| is over the tolerance of `dtype`, or not a number."""
    assert found.shape == expected.shape
    error = (found.double() - expected.double()).norm() / expected.double().norm().clamp(min=1e-30)
    assert error <= TOLERANCES[dtype], f"relative error {error:.2e}"
