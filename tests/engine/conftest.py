"""A tiny random model and running services for the engine's tests. None of them needs weights."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import torch
from tests.engine import tiny
from tests.engine.fakes import INFO, FakeFills, Service
from tests.engine.running import RunningServer, serve

from midfill_engine.backends import open_fill
from midfill_engine.families import FAMILIES
from midfill_engine.loading.checkpoints import load_embedded
from midfill_engine.loading.packaged import SMOLLM2
from midfill_engine.loading.runtime import Runtime, load_runtime
from midfill_engine.scheduling.scheduler import Scheduler
from midfill_engine.serving.security import Security
from midfill_engine.serving.service import EngineState, Ready


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where checkpoints of the hub are kept, empty at first."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="session")
def checkpoint_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("random")
    tiny.make_embedded(folder)
    return folder


@pytest.fixture(scope="session")
def open_family(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Runtime]:
    """Tiny random checkpoints of published families, each loaded once."""
    made: dict[str, Runtime] = {}

    def make(name: str) -> Runtime:
        if name not in made:
            folder = tmp_path_factory.mktemp(name)
            tiny.make_random(folder, FAMILIES.find(name))
            made[name] = load_runtime(str(folder), "cpu")
        return made[name]

    return make


@pytest.fixture(scope="session")
def runtime(checkpoint_folder: Path) -> Runtime:
    return Runtime.of(load_embedded(checkpoint_folder), "embedded")


@pytest.fixture
def make_service() -> Iterator[Callable[..., Service]]:
    made: list[Service] = []

    def make(fills: FakeFills, security: Security | None = None, **limits: int) -> Service:
        scheduler = Scheduler(fills, **limits)
        state = EngineState(ready=Ready(INFO, ("fake", "alias"), scheduler))
        made.append(Service(state, scheduler, security or Security.for_unix_socket()))
        return made[-1]

    yield make
    for service in made:
        service.scheduler.close()


@pytest.fixture
async def real_service(runtime: Runtime) -> AsyncIterator[Service]:
    """The service over the tiny model."""
    scheduler = Scheduler(
        lambda request: open_fill(runtime, request), runtime.run, on_out_of_memory=runtime.free_memory
    )
    state = EngineState(ready=Ready(runtime.info, runtime.names, scheduler))
    yield Service(state, scheduler, Security.for_unix_socket())
    await asyncio.to_thread(scheduler.close)


@pytest.fixture
def run_server(tmp_path: Path) -> Iterator[Callable[..., RunningServer]]:
    with ExitStack() as running:
        yield lambda service, **limits: running.enter_context(serve(service, tmp_path / "engine.sock", **limits))


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Runtime:
    folder = tmp_path_factory.mktemp("causal") / "tiny"
    tiny.make_random(folder, FAMILIES.find("causal"))
    return load_runtime(str(folder), "cpu", dtype="fp32")


@pytest.fixture(scope="module")
def weights() -> Path:
    """The pretrained base's file, where it is on this machine."""
    file = Path(os.environ["MIDFILL_TEST_MODELS"]) / SMOLLM2.name / Path(SMOLLM2.member).name
    if not file.is_file():
        pytest.skip("the base is not here: `midfill models get smollm2`")
    return file


@pytest.fixture(scope="module")
def pretrained(weights: Path) -> Runtime:
    return load_runtime(str(weights), "cpu", dtype="fp32", weights="stored")
