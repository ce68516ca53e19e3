"""The command as a process: killed engines, Ctrl-C, terminals, pipes, start-up, the real engine."""

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.command import Midfill, read_all
from tests.cli.fake_engine import Plan, read_report, wait_for

SetPlan = Callable[..., Plan]
EXAMPLE = 'def add(a, b):\n    """Return the sum of a and b."""\n    ...\n'


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("t.py").write_text(EXAMPLE)
    return tmp_path / "t.py"


def test_kill_of_the_engine_is_told_and_the_next_fill_works(
    file: Path, midfill: Midfill, runtime: Path, set_plan: SetPlan, tmp_path: Path
) -> None:
    record = tmp_path / "record"
    set_plan(endless=True, record=str(record))
    process = midfill("fill", "t.py:3", "--write")
    wait_for(record, "request")
    (engine,) = map(int, (runtime / "starts").read_text().split())
    os.kill(engine, signal.SIGKILL)
    out, err = process.communicate()
    assert (process.returncode, out) == (4, b"")
    assert (
        err == b"midfill: the engine ended in the middle of the fill; run the command again: it starts a new engine.\n"
    )
    assert file.read_text() == EXAMPLE
    set_plan()
    again = midfill("fill", "t.py:3", "--write")
    assert (again.communicate()[1], again.returncode) == (b"", 0)
    assert file.read_text() == EXAMPLE.replace("...", "return a + b")


def test_interrupt_stops_the_work(file: Path, midfill: Midfill, set_plan: SetPlan, tmp_path: Path) -> None:
    record = tmp_path / "record"
    set_plan(endless=True, record=str(record))
    process = midfill("fill", "t.py:3")
    wait_for(record, "request")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate()
    assert (process.returncode, out, err) == (130, b"", b"midfill: interrupted; nothing was written.\n")
    wait_for(record, '{"closed": "step"}')


def test_eight_commands_share_one_engine(midfill: Midfill, runtime: Path, set_plan: SetPlan) -> None:
    set_plan(load_s=0.5)
    processes = [midfill("models") for _ in range(8)]
    results = {(process.communicate(), process.returncode) for process in processes}
    ((out, err), code) = results.pop()
    assert not results and (code, err) == (0, b"") and out.startswith(b"fake  ")
    assert len((runtime / "starts").read_text().split()) == 1


def test_terminal_shows_steps_and_then_a_diff(file: Path, midfill: Midfill, set_plan: SetPlan) -> None:
    set_plan(step_s=0.02)
    ours, theirs = pty.openpty()
    process = midfill("fill", "t.py:3", stdout=theirs, stderr=theirs)
    os.close(theirs)
    shown = read_all(ours)
    assert process.wait() == 0
    assert process.stdout is None
    for words in ("starting the engine", "step 0 of 3", "step 3 of 3", "+    return a + b", "nothing written"):
        assert words in shown, shown


def test_reader_that_leaves_early_is_no_error(file: Path, midfill: Midfill) -> None:
    process = midfill("fill", "t.py:3", "--json")
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    assert b"Traceback" not in process.stderr.read()
    process.stderr.close()
    assert process.wait() == 130


def test_models_and_doctor(file: Path, midfill: Midfill, set_plan: SetPlan) -> None:
    models = midfill("models").communicate()[0]
    assert models.startswith(b"fake  ")
    doctor = midfill("doctor")
    out, _ = doctor.communicate()
    assert doctor.returncode == 0
    assert b"all is well" in out and b"fake on cpu" in out and b"(running)" in out


def test_doctor_names_what_is_wrong(file: Path, midfill: Midfill, set_plan: SetPlan) -> None:
    set_plan(exit_code=3, exit_line='{"code": "unknown_model", "message": "no model x", "next_step": "known: a"}')
    doctor = midfill("doctor", "--model", "x")
    out, _ = doctor.communicate()
    assert doctor.returncode == 1
    assert b"no model x; known: a." in out


def test_serve_is_the_engine_that_fill_finds(file: Path, midfill: Midfill, runtime: Path) -> None:
    server = midfill("serve")
    wait_for(runtime / "starts", str(server.pid))
    fill = midfill("fill", "t.py:3")
    assert b"return a + b" in fill.communicate()[0]
    assert (runtime / "starts").read_text().split() == [str(server.pid)], "fill used the one in the foreground"
    second = midfill("serve")
    assert str(server.pid).encode() in second.communicate()[1]
    assert second.returncode == 4
    server.kill()
    server.communicate()


def modules_loaded_by(midfill: Midfill, monkeypatch: pytest.MonkeyPatch, *words: str) -> set[str]:
    """What a command imports until it ends, as the interpreter lists it; the engine that it starts is not counted."""
    monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")
    _, said = (process := midfill(*words)).communicate()
    assert process.returncode == 0, said
    return {line.rpartition(b"|")[2].strip().decode() for line in said.splitlines() if line.startswith(b"import time:")}


def test_help_imports_no_command_and_nothing_heavy(midfill: Midfill, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = modules_loaded_by(midfill, monkeypatch, "--help")
    assert "midfill_infill.cli.app" in loaded
    assert not {"http.client", "tree_sitter", "pydantic", "pygls", "rich", "torch", "midfill_infill.cli.fill"} & loaded
    assert not {"rich", "http.client"} & modules_loaded_by(midfill, monkeypatch, "fill", "--help")


def test_a_warm_fill_into_a_pipe_imports_what_it_needs(
    file: Path, midfill: Midfill, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert midfill("fill", "t.py:3").wait() == 0
    loaded = modules_loaded_by(midfill, monkeypatch, "fill", "t.py:3")
    assert {"http.client", "midfill_engine.wire"} <= loaded
    assert (
        not {"rich", "pygments", "pygls", "torch", "midfill_infill.cli.models", "midfill_infill.engines.outside"}
        & loaded
    )


def test_real_engine_fills_the_example(file: Path, runtime: Path, tmp_path: Path) -> None:
    """With a tiny model of random weights: what it says is noise, how it is said is not."""
    from tests.engine.tiny import make_embedded  # torch takes seconds, and no other test here needs it

    environment = dict(os.environ, OMP_NUM_THREADS="1")
    checkpoint = str(tmp_path / "random")
    make_embedded(Path(checkpoint))
    command = [
        sys.executable,
        "-m",
        "midfill_infill",
        "fill",
        "t.py:3",
        "--json",
        "--model",
        checkpoint,
        "--device",
        "cpu",
    ]
    done = [subprocess.run(command, capture_output=True, env=environment) for _ in range(2)]
    assert [each.returncode for each in done] == [0, 0], done[0].stderr
    first, second = (read_report(each.stdout) for each in done)
    assert first.holes == second.holes, "the same seed gives the same fill"
    assert len(first.holes[0].tokens) == len(first.holes[0].confidence)
    assert json.loads(done[0].stdout)["file"] == "t.py"
    assert file.read_text() == EXAMPLE
