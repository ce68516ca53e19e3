"""What an engine sets before torch is loaded."""

import os
from pathlib import Path
from typing import Any

import pytest
import torch

from midfill_engine.loading import runtime
from midfill_engine.serving.serve import load, make_ready
from midfill_engine.serving.service import EngineState
from midfill_engine.starting import ServeOptions

VARIABLES = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY", "TRITON_DEFAULT_FP_FUSION")


@pytest.mark.parametrize(("given", "kept"), [(None, ["16", "16", "1"]), ("7", ["7", "7", "7"])])
def test_compiled_products_are_bounded_unless_the_user_says_otherwise(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, given: str | None, kept: list[str]
) -> None:
    found: list[str | None] = []

    def load_runtime(*_: Any) -> None:
        found.extend(map(os.environ.get, VARIABLES))
        raise InterruptedError

    for variable in VARIABLES:
        monkeypatch.setenv(variable, given or "")
        if given is None:
            monkeypatch.delenv(variable)
    monkeypatch.setattr(runtime, "load_runtime", load_runtime)
    options = ServeOptions(socket=tmp_path / "engine.sock")
    with pytest.raises(InterruptedError):
        make_ready(EngineState(), options)
    assert found == kept


CUDA_MESSAGE = "CUDA out of memory. Tried to allocate 96.00 MiB. GPU 0 has a total capacity of 7.6 GiB.\nSee also ..."


@pytest.mark.parametrize(
    ("error", "code", "reason"),
    [
        (torch.OutOfMemoryError(CUDA_MESSAGE), "out_of_memory", "its device has not enough free memory"),
        (RuntimeError("\nDriver too old\nCompile with TORCH_USE_CUDA_DSA"), "internal", "Driver too old"),
        (AssertionError(), "internal", "AssertionError"),
    ],
)
def test_a_model_that_fails_to_load_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: Exception, code: str, reason: str
) -> None:
    def fail(*_: Any) -> None:
        raise error

    monkeypatch.setattr(runtime, "load_runtime", fail)
    state = EngineState()
    load(state, ServeOptions(socket=tmp_path / "engine.sock", model="large"))
    assert state.failure is not None
    assert (state.failure.code, state.failure.message) == (code, f"The model 'large' cannot be loaded: {reason}")
