"""For all tests: what must be in the environment before anything imports Triton, which reads it once; and luck."""

import os
from contextlib import suppress
from importlib import import_module
from zlib import crc32

import pytest
import torch
from hypothesis import settings

settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.load_profile("repeatable")

os.environ["MIDFILL_CONFIG"] = os.devnull  # a developer's own settings are no part of a test
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
