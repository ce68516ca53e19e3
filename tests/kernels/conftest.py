"""Kernels are tested on the GPU where there is one, else interpreted on the CPU. What they allocate starts as NaN."""

import inspect
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")


@pytest.fixture(scope="session", autouse=True)
def language_searched_once() -> Iterator[None]:
    """Triton's interpreter searches its language for what it replaces whenever a kernel calls a function, which took
    half of these tests' time. The members are always the same ones.
    """
    from triton.language import core
    from triton.runtime import interpreter

    @lru_cache
    def find_builtins(owner: object) -> list[tuple[str, Any]]:
        return [(name, member) for name, member in inspect.getmembers(owner) if core.is_builtin(member)]

    def replace_builtins(owner: object, *others: Any) -> None:
        for name, member in find_builtins(owner):
            if getattr(owner, name) is member:
                interpreter._patch_attr(owner, name, member, *others)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interpreter, "_patch_builtin", replace_builtins, raising=False)
        yield


@pytest.fixture
def device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


@pytest.fixture(autouse=True)
def poisoned_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that forgets to write an element is found out."""
    for name in ("empty", "empty_like"):
        make = getattr(torch, name)
        monkeypatch.setattr(torch, name, lambda *of, make=make, **options: poison(make(*of, **options)))


def poison(tensor: Tensor) -> Tensor:
    if tensor.is_floating_point():
        return tensor.fill_(float("nan"))
    return tensor.fill_(True if tensor.dtype == torch.bool else torch.iinfo(tensor.dtype).min)
