"""Starting, finding and losing the engine's process."""

import os
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.cli.fake_engine import Plan

from midfill_infill.engines import records, supervise
from midfill_infill.engines.endpoint import Endpoint
from midfill_infill.engines.records import runtime_folder
from midfill_infill.engines.supervise import EnginePlace, EngineSettings, ensure_engine, find_place
from midfill_infill.errors import MidfillError

SetPlan = Callable[..., Plan]


def started(runtime: Path) -> list[int]:
    return [int(pid) for pid in (runtime / "starts").read_text().split()]


def test_engine_is_started_once_and_found_again(fake_command: Path) -> None:
    phrases: list[str] = []
    first = ensure_engine(EngineSettings(), phrases.append)
    assert phrases[0] == "starting the engine"
    assert ensure_engine(EngineSettings()) == first
    assert len(started(fake_command)) == 1
    assert find_place(EngineSettings()).pid == started(fake_command)[0]


def test_slow_load_is_waited_for(fake_command: Path, set_plan: SetPlan, tmp_path: Path) -> None:
    loaded = tmp_path / "loaded"
    set_plan(load_until=str(loaded))
    phrases: list[str] = []

    def hear(phrase: str) -> None:
        phrases.append(phrase)
        if phrase == "loading the model":
            loaded.touch()

    ensure_engine(EngineSettings(), hear)
    assert phrases == ["starting the engine", "loading the model"]


def test_eight_at_once_start_one_engine(fake_command: Path, set_plan: SetPlan) -> None:
    set_plan(load_s=0.2)
    with ThreadPoolExecutor(8) as pool:
        endpoints = set(pool.map(ensure_engine, [EngineSettings()] * 8))
    assert len(endpoints) == 1
    assert len(started(fake_command)) == 1


def test_other_model_or_device_is_another_engine(fake_command: Path) -> None:
    places = {find_place(EngineSettings(model, device)) for model in (None, "a", "b") for device in ("cpu", "cuda")}
    assert len(places) == 6


def test_the_engine_is_told_folders_by_absolute_paths_and_hub_ids_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("owner/folder", "embedded", "smollm2"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "0123abcd").write_bytes(b"GGUF")
    (tmp_path / "owner/model.gguf").symlink_to("../0123abcd")
    (tmp_path / "linked").symlink_to("owner")
    monkeypatch.chdir(tmp_path)
    told = {
        "embedded": "embedded",
        "smollm2": "smollm2",
        "./embedded": str(tmp_path / "embedded"),
        "owner/name": "owner/name",
        "owner/name@refs/pr/3": "owner/name@refs/pr/3",
        "owner/folder": str(tmp_path / "owner/folder"),
        "./missing": str(tmp_path / "missing"),
        "linked/model.gguf": str(tmp_path / "owner/model.gguf"),
        "a/b/c": str(tmp_path / "a/b/c"),
    }
    for model, argument in told.items():
        assert supervise.engine_arguments(EngineSettings(model, "cpu"))[:2] == ["--model", argument]
    assert supervise.check_model("linked/model.gguf") == told["linked/model.gguf"]


def test_killed_engine_is_replaced(fake_command: Path) -> None:
    ensure_engine(EngineSettings())
    (pid,) = started(fake_command)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert find_place(EngineSettings()).socket.exists(), "kill -9 leaves a stale socket"
    ensure_engine(EngineSettings())
    assert len(started(fake_command)) == 2


def test_engine_that_ends_tells_why(fake_command: Path, set_plan: SetPlan) -> None:
    line = '{"code": "unknown_model", "message": "there is no model x", "next_step": "known are a and b"}'
    set_plan(exit_code=3, exit_line=line)
    with pytest.raises(MidfillError) as error:
        ensure_engine(EngineSettings())
    assert error.value.sentence == "there is no model x; known are a and b."
    assert error.value.exit_code == 5


def test_engine_that_ends_silently_names_the_log(fake_command: Path, set_plan: SetPlan) -> None:
    set_plan(exit_code=1)
    with pytest.raises(MidfillError) as error:
        ensure_engine(EngineSettings())
    assert error.value.code == "engine_failed"
    assert str(find_place(EngineSettings()).log) in error.value.sentence


def test_engine_that_never_gets_ready(fake_command: Path, set_plan: SetPlan) -> None:
    set_plan(load_s=60)
    with pytest.raises(MidfillError) as error:
        ensure_engine(EngineSettings(), start_timeout_s=1.0)
    assert error.value.code == "engine_failed"
    assert f"process {find_place(EngineSettings()).pid}" in error.value.sentence


def test_missing_torch_names_the_extra(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervise, "missing_engine_packages", lambda: ["torch"])
    with pytest.raises(MidfillError) as error:
        ensure_engine(EngineSettings())
    assert error.value.code == "engine_missing"
    assert "pip install 'midfill[engine]'" in error.value.sentence


def test_named_engine_is_used_as_it_is(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIDFILL_ENGINE_URL", "http://10.0.0.1:8427/")
    monkeypatch.setenv("MIDFILL_TOKEN", "secret")
    endpoint = ensure_engine(EngineSettings())
    assert endpoint == Endpoint(url="http://10.0.0.1:8427", token="secret")
    assert "secret" not in repr(endpoint)
    for wrong in ("10.0.0.1", "http://[::1", "http://a:port", "https://"):
        monkeypatch.setenv("MIDFILL_ENGINE_URL", wrong)
        with pytest.raises(MidfillError, match="not an http:// or https:// address"):
            ensure_engine(EngineSettings())


def test_the_log_of_an_engine_that_ran_for_long_stays_for_a_while(runtime: Path) -> None:
    place = EnginePlace.at(records.runtime_folder() / "engine-0123456789ab")
    for file in (place.lock, place.log):
        file.touch()
    os.utime(place.lock, (1, 1))
    records.sweep_dead(60)
    assert place.log.exists(), "it logged something a moment ago"
    os.utime(place.log, (1, 1))
    records.sweep_dead(60)
    assert not place.log.exists() and not place.lock.exists()


def test_an_engine_whose_files_another_process_removes_meanwhile_is_not_listed(
    runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = records.runtime_folder() / "engine-0123456789ab.lock"
    with monkeypatch.context() as patched:
        patched.setattr(Path, "glob", lambda *_: iter([gone]))
        assert list(records.list_living()) == []


def test_waiting_ends_when_the_other_starter_dies(fake_command: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock held by a process that never listens is waited for; freed, the next one starts."""
    take_lock = supervise._take_lock
    other = take_lock(find_place(EngineSettings()))
    assert other is not None
    os.write(other, b"1")  # the engine that died
    os.close(other)
    other = take_lock(find_place(EngineSettings()))
    assert other is not None and find_place(EngineSettings()).pid is None, "it is that of no other process"
    taken: list[int | None] = []

    def take_and_free(place: EnginePlace) -> int | None:
        taken.append(take_lock(place))
        if len(taken) == 3:
            os.close(other)
        return taken[-1]

    monkeypatch.setattr(supervise, "_take_lock", take_and_free)
    ensure_engine(EngineSettings())
    assert [lock is None for lock in taken] == [True, True, True, False]
    assert len(started(fake_command)) == 1


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o701])
def test_folder_open_to_others_is_refused(runtime: Path, mode: int) -> None:
    runtime.chmod(mode)
    with pytest.raises(MidfillError) as error:
        runtime_folder()
    assert "chmod 700" in error.value.sentence
    runtime.chmod(0o700)


def test_folder_behind_a_link_is_refused(runtime: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "link").symlink_to(runtime)
    monkeypatch.setenv("MIDFILL_RUNTIME_DIR", str(tmp_path / "link"))
    with pytest.raises(MidfillError):
        runtime_folder()


def test_long_folder_falls_back_to_a_short_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIDFILL_RUNTIME_DIR", str(tmp_path / ("x" * 90)))
    folder = runtime_folder()
    assert len(str(folder)) < 70
    assert folder.stat().st_mode & 0o777 == 0o700
    monkeypatch.setenv("MIDFILL_RUNTIME_DIR", str(tmp_path / ("y" * 90)))
    assert runtime_folder() != folder, "two folders must not share engines"
    runtime_folder().rmdir()
    folder.rmdir()
