"""An engine that was stopped, a runtime folder without room, a model by the name that is printed, free memory."""

import errno
import os
import re
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.command import Midfill
from tests.cli.fake_engine import FakeEngine, Plan, wait_for
from typer.testing import CliRunner

from midfill_engine.wire import HoleSegment, HoleSpec, InfillRequest
from midfill_infill.cli import build_app, doctor
from midfill_infill.engines import client, records, supervise
from midfill_infill.errors import MidfillError

SOURCE = "def add(a, b):\n    ...\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("t.py").write_text(SOURCE)


def test_doctor_tells_what_takes_long(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_: object, on_progress: Callable[[str], None] = lambda _: None) -> None:
        on_progress("getting a model")
        raise MidfillError("engine_failed", "it ended")

    told: list[str] = []
    monkeypatch.setattr(doctor, "note", told.append, raising=False)
    monkeypatch.setattr(doctor, "ensure_engine", start)
    *_, engine = doctor.examine_engine(supervise.EngineSettings())
    assert told == ["getting a model"] and "it ended" in engine.problem


@pytest.mark.parametrize("waits", [{"step_s": 60.0}, {"accept_s": 60.0}, {}], ids=["in a fill", "before it", "idle"])
def test_a_stopped_engine_is_told_at_once(
    waits: dict[str, float], midfill: Midfill, runtime: Path, set_plan: Callable[..., Plan], tmp_path: Path
) -> None:
    record = tmp_path / "record"
    set_plan(**waits, record=str(record))
    fill = midfill("fill", "t.py:2")
    wait_for(record, "request")
    if not waits:
        assert fill.wait() == 0
    (engine,) = map(int, (runtime / "starts").read_text().split())
    os.kill(engine, signal.SIGSTOP)
    started_s = time.monotonic()
    asked = fill if waits else midfill("fill", "t.py:2")
    out, err = asked.communicate()
    assert (asked.returncode, out) == (4, b"")
    assert f"the engine (process {engine}) is stopped; continue it with `kill -CONT {engine}`" in err.decode()
    assert time.monotonic() - started_s < 60
    os.kill(engine, signal.SIGCONT)


class HangingClient(client.EngineClient):
    """Its engine is never well."""

    def health(self, timeout_s: float = 0.0) -> str:
        raise MidfillError("engine_silent", "it hangs")


def test_a_fill_that_hears_of_its_engine_outlives_one_that_does_not(tmp_path: Path) -> None:
    """Two fills over one client: what ends the silent one, be it before its first byte, is not the other's."""
    engine = FakeEngine(tmp_path / "socket", Plan(endless=True))
    threading.Thread(target=engine.serve_forever, daemon=True).start()
    request = InfillRequest(segments=[HoleSegment(hole=HoleSpec())])
    with HangingClient(client.Endpoint(socket=tmp_path / "socket"), silence_s=60.0) as asked:
        hears = asked.infill(request)
        assert all(next(hears) for _ in range(30))  # meanwhile its watch begins, which reads how long it may wait
        asked.silence_s = 0.3
        engine.plan.accept_s = 60.0
        with pytest.raises(MidfillError, match="it hangs"):
            next(asked.infill(request))
        assert all(next(hears) for _ in range(200))
        hears.close()
    engine.shutdown()
    engine.server_close()


def hang(engine: int, record: Path) -> None:
    """Has the engine accept connections and answer none, as a deadlock does."""
    os.kill(engine, signal.SIGUSR1)
    wait_for(record, "hanging")


@pytest.mark.parametrize("in_a_fill", [True, False])
def test_an_engine_that_hangs_is_told_within_a_bound(
    in_a_fill: bool, runtime: Path, fake_command: Path, set_plan: Callable[..., Plan], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    limits = {"engines.client": {"SILENCE_S": 0.2, "HUNG_S": 1.0, "HEALTH_TIMEOUT_S": 0.5}}
    limits |= {"engines.supervise": {"_HUNG_AT_START_S": 1.0}, "cli.engine": {"GRACE_S": 0.5}}
    for module, name, value in ((module, *each) for module, known in limits.items() for each in known.items()):
        monkeypatch.setattr(f"midfill_infill.{module}.{name}", value)
    record = tmp_path / "record"
    set_plan(step_s=60.0 if in_a_fill else 0.0, record=str(record))
    if not in_a_fill:
        assert CliRunner().invoke(build_app(), ["fill", "t.py:2"]).exit_code == 0
    else:
        supervise.ensure_engine()
    (engine,) = map(int, (runtime / "starts").read_text().split())
    if in_a_fill:
        threading.Timer(1.0, hang, (engine, record)).start()
    else:
        hang(engine, record)
    started_s = time.monotonic()
    result = CliRunner().invoke(build_app(), ["fill", "t.py:2"])
    assert (result.exit_code, result.stdout) == (4, "")
    assert "accepts requests and does not answer; end it with `midfill engine stop`" in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert time.monotonic() - started_s < 60
    assert "does not answer" in CliRunner().invoke(build_app(), ["engine", "ps"]).stdout
    assert CliRunner().invoke(build_app(), ["engine", "stop"]).exit_code == 0
    set_plan()
    assert CliRunner().invoke(build_app(), ["fill", "t.py:2"]).exit_code == 0


@pytest.mark.parametrize("words", [["fill", "t.py:2"], ["doctor"]])
def test_a_full_runtime_folder_is_one_sentence(
    words: list[str], fake_command: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(place: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(supervise, "_take_lock", refuse)
    result = CliRunner().invoke(build_app(), words)
    said = result.stderr + result.stdout
    assert result.exit_code == (1 if words == ["doctor"] else 4)
    assert f"{fake_command} cannot be written (No space left on device); free some space there" in said
    assert "report it" not in said


def test_other_failures_of_the_folder_are_not_hidden(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), records.writable(tmp_path):
        (tmp_path / "none").read_bytes()


def test_the_printed_name_of_the_shipped_model_is_found() -> None:
    from midfill_engine.loading.runtime import find_model

    assert find_model("midfill-embedded") == find_model("embedded")


def test_doctor_counts_memory_as_the_engine_does(monkeypatch: pytest.MonkeyPatch) -> None:
    from midfill_engine.loading.memory import available_bytes, total_bytes

    found = re.fullmatch(r"([\d.]+) GiB, ([\d.]+) GiB available", doctor.describe_memory())
    assert found and float(found.group(1)) == round(total_bytes() / 2**30, 1)
    assert abs(float(found.group(2)) - available_bytes() / 2**30) < 4
    monkeypatch.setattr(doctor, "engine_command", lambda: ["false"])
    assert re.fullmatch(r"[\d.]+ GiB", doctor.describe_memory())
