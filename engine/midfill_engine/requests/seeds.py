"""Seeds: drawn where a request has none, and one generator for each alternative. Knows no tokens."""

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


def seeded(seed: int | None, alternative: int) -> torch.Generator:
    """The generator of an alternative by its index. That of 0 is the same however many are requested."""
    return torch.Generator().manual_seed(((seed or 0) + alternative * 0x9E3779B97F4A7C15) % 2**63)
