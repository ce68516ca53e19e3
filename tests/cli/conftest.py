"""A runtime folder of its own and a scripted engine in place of the real one, for every test of the command."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.command import HERE, ROOT, python_path
from tests.cli.engines import StartEngine, choose_answers, start_engines
from tests.cli.fake_engine import Plan

from midfill_engine.wire import StoredModels
from midfill_infill.engines import fetching, supervise


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The runtime folder; every engine that was started in it is ended with the test."""
    folder = tmp_path / "run"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("MIDFILL_RUNTIME_DIR", str(folder))
    for name in ("MIDFILL_ENGINE_URL", "MIDFILL_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    yield folder
    for lock in folder.glob("*.lock"):
        pid = lock.read_text()
        if pid and int(pid) != os.getpid() and b"engine" in command_line(int(pid)):
            os.kill(int(pid), signal.SIGKILL)
    for process in supervise._started:
        process.wait(timeout=60)
    supervise._started.clear()


def command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@pytest.fixture
def set_plan(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Plan]:
    """Chooses what engines started from now on answer."""

    def change(**what: Any) -> Plan:
        plan = Plan(**what)
        monkeypatch.setenv("FAKE_ENGINE_PLAN", plan.to_json())
        return plan

    return change


@pytest.fixture
def set_stock(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[..., StoredModels]], None]:
    """Sets what lists the models on this machine, in place of a process of the engine's package."""
    return lambda list_stock: monkeypatch.setattr(fetching, "list_stock", list_stock)


@pytest.fixture
def fake_installation(runtime: Path, tmp_path: Path, set_plan: Callable[..., Plan]) -> Callable[[], dict[str, str]]:
    """An environment where `python -m midfill_engine` is the scripted engine, for tests of the real command."""
    package = tmp_path / "fake" / "midfill_engine"
    package.mkdir(parents=True)
    package.joinpath("__init__.py").write_text(f"__path__.append({str(ROOT / 'engine/midfill_engine')!r})\n")
    package.joinpath("__main__.py").write_text("from fake_engine import main\nmain()\n")
    set_plan()
    return lambda: dict(os.environ, PYTHONPATH=python_path(tmp_path / "fake", HERE))


@pytest.fixture
def fake_command(
    runtime: Path, fake_installation: Callable[[], dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> Path:
    """This process starts scripted engines; returns the runtime folder."""
    monkeypatch.setenv("PYTHONPATH", fake_installation()["PYTHONPATH"])
    return runtime


@pytest.fixture
def midfill(fake_installation: Callable[[], dict[str, str]]) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts the command as a process, which is gone when the test ends."""
    started: list[subprocess.Popen[bytes]] = []
    # A shell starts what it runs in the background with interrupts ignored, and children would inherit that.
    old_handler = signal.signal(signal.SIGINT, signal.default_int_handler)

    def start(*words: str, **options: Any) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "midfill_infill", *words]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
        started.append(subprocess.Popen(command, env=fake_installation(), **{**pipes, **options}))
        return started[-1]

    yield start
    signal.signal(signal.SIGINT, old_handler)
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def engine_client(tmp_path: Path) -> Iterator[StartEngine]:
    with start_engines(tmp_path) as start:
        yield start


@pytest.fixture
def answer(engine_client: StartEngine, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    return choose_answers(engine_client, monkeypatch)
