"""Whatever kills a run, its snapshots stay whole, readers never see half of one, and the next run goes on from them."""

import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from training.snapshots import LEARNT, SCRATCH_PREFIX, STATE, Progress, clear_scratch, read_progress, write_snapshot
from training.train import RunConfig, train

ENGINE = Path(__file__).parents[2] / "engine"


@pytest.fixture
def endless(config: RunConfig, tmp_path: Path) -> RunConfig:
    """A run that has no end of its own and saves every few steps."""
    return replace(
        config, out=tmp_path / "run", num_steps=0, deadline_s=600.0, row_tokens=64, step_tokens=64, snapshot_s=0.05
    )


def start(config: RunConfig) -> subprocess.Popen[bytes]:
    """In a process group of its own, which its workers share."""
    command = [sys.executable, "-m", "training", "train", str(config.pack), str(config.out)]
    for name, value in asdict(config).items():
        if name not in ("pack", "out") and value is not None and not isinstance(value, bool):
            command += [f"--{name.replace('_', '-')}", str(value)]
    command += ["--resume"] * config.resume
    return subprocess.Popen(command, cwd=ENGINE, start_new_session=True)


def read_and_kill(process: subprocess.Popen[bytes], run: Path, seed: int) -> None:
    """Reads snapshots until a random moment after the first, then kills the trainer and waits for what it leaves."""
    wait_until(lambda: (run / "snapshot").exists() or process.poll() is not None)
    end, reads = time.monotonic() + random.Random(seed).uniform(0.2, 0.8), 0
    try:
        while time.monotonic() < end or not reads:
            assert process.poll() is None
            reads += is_whole(run / "snapshot")
    finally:
        process.kill()
        process.wait()
    wait_until(lambda: not is_alive(process.pid))


def is_whole(snapshot: Path) -> bool:
    """Whether the snapshot could be read; false where the trainer replaced it meanwhile."""
    status = snapshot.stat()
    try:
        assert read_progress(snapshot).step and load_file(snapshot / LEARNT)
    except ValueError:
        now = snapshot.stat()
        is_same = (now.st_ino, now.st_ctime_ns) == (status.st_ino, status.st_ctime_ns)
        assert not is_same, "a snapshot that nobody replaces is whole"
        return False
    return True


def is_alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def wait_until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + 120
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.01)


def kill_and_resume(config: RunConfig, num_kills: int) -> None:
    step = 0
    for seed in range(num_kills):
        read_and_kill(start(config), config.out, seed)
        kept = read_progress(config.out / "snapshot")
        assert kept.step > step or seed, "a kill may come before the next save"
        step = kept.step
        config = replace(config, resume=True)
    (config.out / f"{SCRATCH_PREFIX}left").mkdir(exist_ok=True)
    done = train(replace(config, num_steps=4))
    assert done.step == step + 4 == read_progress(config.out / "snapshot").step
    assert not list(config.out.glob(f"{SCRATCH_PREFIX}*"))


def test_a_killed_run_goes_on_from_its_last_snapshot(endless: RunConfig) -> None:
    kill_and_resume(replace(endless, num_workers=1), num_kills=1)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_many_kills(endless: RunConfig) -> None:
    kill_and_resume(endless, num_kills=40)


@pytest.fixture
def learnt() -> dict[str, torch.nn.Parameter]:
    return {"a": torch.nn.Parameter(torch.ones(2, 3))}


def write(folder: Path, learnt: dict[str, torch.nn.Parameter], step: int) -> None:
    write_snapshot(folder, learnt, torch.optim.Adam(learnt.values()), Progress(step=step))


def test_snapshots_replace_each_other_and_torn_copies_are_refused(
    learnt: dict[str, torch.nn.Parameter], tmp_path: Path
) -> None:
    folder = tmp_path / "snapshot"
    (tmp_path / "log.jsonl").write_text("{}\n")
    for step in (1, 2):
        write(folder, learnt, step)
        assert read_progress(folder).step == step
        assert (folder / "log.jsonl").read_text() == "{}\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log.jsonl", "snapshot"]
    shutil.copytree(folder, tmp_path / "copy")
    weights = tmp_path / "copy" / LEARNT
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    with pytest.raises(ValueError, match=f"{LEARNT} is of another one"):
        read_progress(tmp_path / "copy")
    weights.unlink()
    with pytest.raises(ValueError, match="is missing"):
        read_progress(tmp_path / "copy")
    state = json.loads((folder / STATE).read_text())
    (folder / STATE).write_text(json.dumps({name: value for name, value in state.items() if name != "sha256"}))
    with pytest.raises(ValueError, match="not whole"):
        read_progress(folder)


def test_snapshots_are_replaced_by_two_renames_where_names_cannot_be_exchanged(
    learnt: dict[str, torch.nn.Parameter], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("training.snapshots._exchange", lambda first, second: False)
    for step in (1, 2):
        write(tmp_path / "snapshot", learnt, step)
    assert read_progress(tmp_path / "snapshot").step == 2 and len(list(tmp_path.iterdir())) == 1


def test_a_snapshot_outlives_a_run_that_ends_between_the_two_renames(
    learnt: dict[str, torch.nn.Parameter], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, rename = tmp_path / "snapshot", Path.rename
    write(folder, learnt, 1)

    def end_at_second(path: Path, target: Path) -> Path:
        if target == folder:
            raise KeyboardInterrupt
        return rename(path, target)

    with monkeypatch.context() as patches:
        patches.setattr("training.snapshots._exchange", lambda first, second: False)
        patches.setattr(Path, "rename", end_at_second)
        with pytest.raises(KeyboardInterrupt):
            write(folder, learnt, 2)
    clear_scratch(folder)
    assert read_progress(folder).step == 1 and [path.name for path in tmp_path.iterdir()] == ["snapshot"]
