"""Kernels are tested on the GPU where there is one, else interpreted on the CPU. What they allocate starts as NaN."""

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")


@pytest.fixture
def device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


@pytest.fixture(autouse=True)
def poisoned_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that forgets to write an element is found out."""
    empty, empty_like = torch.empty, torch.empty_like
    monkeypatch.setattr(torch, "empty", lambda *shape, **options: poison(empty(*shape, **options)))
    monkeypatch.setattr(torch, "empty_like", lambda like, **options: poison(empty_like(like, **options)))


def poison(tensor: Tensor) -> Tensor:
    if tensor.is_floating_point():
        return tensor.fill_(float("nan"))
    return tensor.fill_(True if tensor.dtype == torch.bool else torch.iinfo(tensor.dtype).min)
