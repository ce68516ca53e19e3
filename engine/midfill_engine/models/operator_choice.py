"""Finds what multiplies a model's weights on a device. Knows what each way needs of the machine, computes nothing."""

import logging
import os
from importlib.util import find_spec

import torch

from midfill_engine.models.int8 import Int8Operators
from midfill_engine.models.operators import OperatorsError, TorchOperators
from midfill_engine.models.packing import LaidOperators

logger = logging.getLogger(__name__)


def choose_operators(weights: str, device: torch.device, dtype: torch.dtype) -> TorchOperators:
    """Operators for weights as they are `stored`, or in `int8`. Raises OperatorsError."""
    if weights == "int8":
        return Int8Operators(device, dtype)
    if weights != "stored":
        raise OperatorsError(f"there are no weights in {weights!r}; known: stored, int8")
    if device.type == "cpu" and dtype == torch.bfloat16:
        try:
            return LaidOperators()
        except OperatorsError as error:
            logger.info("weights stay as they are: %s", error)
    return TorchOperators(device, dtype)


def check_kernels(device: torch.device) -> None:
    """Raises OperatorsError where Midfill's kernels cannot run."""
    if find_spec("triton") is None:
        raise OperatorsError("the kernels need the package triton, which is not installed")
    if device.type != "cuda" and os.environ.get("TRITON_INTERPRET") != "1":
        raise OperatorsError(f"the kernels need a GPU, and the model is on the device {device.type!r}")
