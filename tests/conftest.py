"""For all tests: what must be in the environment before anything imports Triton, which reads it once; and luck."""

import os
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import Any
from zlib import crc32

import pytest
import torch
from hypothesis import settings

settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.load_profile("repeatable")

os.environ["MIDFILL_CONFIG"] = os.devnull  # a developer's own settings are no part of a test
os.environ |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}  # nor are those of git
os.environ["XDG_STATE_HOME"] = os.devnull  # nothing is remembered, so nothing is offered
with suppress(ModuleNotFoundError):  # a lent machine has torch and little else
    os.environ.setdefault(
        "MIDFILL_TEST_MODELS", str(import_module("platformdirs").user_data_path("midfill") / "models")
    )
os.environ["XDG_DATA_HOME"] = os.devnull  # no base is here: what a developer fetched is no part of a test

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"


@pytest.fixture(autouse=True)
def own_data(request: pytest.FixtureRequest) -> None:
    """Each test draws its own data, the same every time; MIDFILL_SEED=N draws others."""
    torch.manual_seed(crc32(request.node.nodeid.encode()) + int(os.environ.get("MIDFILL_SEED", "0")))


@pytest.fixture
def record_calls(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any, str], list[tuple[Any, ...]]]:
    """`record_calls(owner, "name")` lists the arguments of each call of that function, which still does its work."""

    def record(owner: Any, name: str) -> list[tuple[Any, ...]]:
        function, calls = getattr(owner, name), list[tuple[Any, ...]]()

        def recorded(*arguments: Any, **options: Any) -> Any:
            calls.append(arguments)
            return function(*arguments, **options)

        monkeypatch.setattr(owner, name, recorded)
        return calls

    return record


@pytest.fixture
def set_proposals(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """`set_proposals(...)` has these proposals made for every hole, and no others."""

    def change(*proposals: Any) -> None:
        monkeypatch.setattr("midfill_infill.filling.fill.propose", lambda *_: list(proposals))

    return change


@pytest.fixture
def no_bubblewrap(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which no sandbox works."""
    monkeypatch.setattr("midfill_infill.sandbox.run.find_bubblewrap", lambda: None)
