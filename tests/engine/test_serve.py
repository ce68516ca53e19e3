"""What an engine sets before torch is loaded."""

import os
from pathlib import Path
from typing import Any

import pytest

from midfill_engine.loading import runtime
from midfill_engine.serving.serve import make_ready
from midfill_engine.serving.service import EngineState
from midfill_engine.starting import ServeOptions

VARIABLES = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")


@pytest.mark.parametrize(("given", "kept"), [(None, "16"), ("7", "7")])
def test_compiled_products_are_bounded_unless_the_user_says_otherwise(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, given: str | None, kept: str
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
    assert found == [kept, kept]
