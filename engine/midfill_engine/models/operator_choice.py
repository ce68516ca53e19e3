"""Finds the operators of a name. Knows what each needs of the machine, not what they compute."""

import os
from importlib.util import find_spec
from typing import Final

import torch

from midfill_engine.models.operators import Operators, OperatorsError, TorchOperators

OPERATORS: Final = ("torch", "kernels", "kernels-fp8", "kernels-int8", "kernels-int4")


def choose_operators(name: str, device: torch.device, dtype: torch.dtype) -> Operators:
    """`torch`, or those of `midfill_kernels`, which need Triton. Raises OperatorsError for another name."""
    if name not in OPERATORS:
        raise OperatorsError(f"there are no operators named {name!r}; known: {', '.join(OPERATORS)}")
    if name == "torch":
        return TorchOperators(device, dtype)
    if find_spec("triton") is None:
        raise OperatorsError("they need the package triton, which is not installed")
    if device.type != "cuda" and os.environ.get("TRITON_INTERPRET") != "1":
        raise OperatorsError(f"they need a GPU, and the model is on the device {device.type!r}")
    from midfill_engine.models.kernel_operators import KernelOperators  # only now: it needs Triton

    return KernelOperators(device, dtype)
