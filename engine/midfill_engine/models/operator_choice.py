"""Finds the operators of a name. Knows what each needs of the machine, not what they compute."""

import logging
import os
from importlib.util import find_spec
from typing import Final

import torch

from midfill_engine.models.int8 import Int8Operators
from midfill_engine.models.operators import Operators, OperatorsError, TorchOperators
from midfill_engine.models.packing import LaidOperators

logger = logging.getLogger(__name__)

OPERATORS: Final = ("torch", "torch-int8", "kernels", "kernels-int8")


def name_operators(operators: str, weights: str, device: torch.device) -> str:
    """The operators of that name, with weights in the wanted form: as they are `stored`, or in `int8`.

    Raises OperatorsError.
    """
    if weights == "stored":
        return operators
    if weights != "int8":
        raise OperatorsError(f"there are no weights in {weights!r}; known: stored, int8")
    return "kernels-int8" if device.type == "cuda" else "torch-int8"


def choose_packing(name: str, device: torch.device, dtype: torch.dtype) -> Int8Operators | LaidOperators | None:
    """What lays a loaded model's weights out once, if that is wanted or gains something here. Raises OperatorsError."""
    if name == "torch-int8":
        return Int8Operators(device, dtype)
    if name != "torch" or device.type != "cpu" or dtype != torch.bfloat16:
        return None
    try:
        return LaidOperators()
    except OperatorsError as error:
        logger.info("weights stay as they are: %s", error)
        return None


def choose_operators(name: str, device: torch.device, dtype: torch.dtype) -> Operators:
    """What computes beside the fused transformer, which needs Triton and a GPU. Raises OperatorsError."""
    if name not in OPERATORS:
        raise OperatorsError(f"there are no operators named {name!r}; known: {', '.join(OPERATORS)}")
    if name == "torch":
        return TorchOperators(device, dtype)
    if name == "torch-int8":
        return Int8Operators(device, dtype)
    if find_spec("triton") is None:
        raise OperatorsError("they need the package triton, which is not installed")
    if device.type != "cuda" and os.environ.get("TRITON_INTERPRET") != "1":
        raise OperatorsError(f"they need a GPU, and the model is on the device {device.type!r}")
    return TorchOperators(device, dtype)
