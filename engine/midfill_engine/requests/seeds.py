"""Seeds: drawn where a request has none, and one generator for each row. Knows no tokens."""

import secrets
from typing import Final

import torch

from midfill_engine.wire import InfillRequest

MIN_TEMPERATURE: Final = 1e-6  # a smaller one counts as zero, because scores divided by it overflow


def with_seed(request: InfillRequest) -> InfillRequest:
    """The request with a seed: a random one if it has none and tokens are sampled."""
    if request.temperature < MIN_TEMPERATURE:
        request = request.model_copy(update={"temperature": 0.0})
    if request.seed is not None:
        return request
    seed = secrets.randbelow(2**31) if request.temperature else 0
    return request.model_copy(update={"seed": seed})


def seeded(seed: int | None, row: int) -> torch.Generator:
    """The generator of a row. Row 0 of a seed is the same whatever else is requested."""
    return torch.Generator().manual_seed(((seed or 0) + row * 0x9E3779B97F4A7C15) % 2**63)
