"""The hour on a GPU, rehearsed on a CPU with a tiny base: from cargos to an adapter, with calls lost."""

import json
import lzma
import os
import signal
import time
from pathlib import Path

import pytest
from safetensors.torch import load_file
from tests.engine.gguf_writer import make_folder, write_gguf

from bench.gpu import hour
from bench.gpu.hour import KEPT, PIECE_BYTES, Hour, feed, finish, prepare, start
from bench.gpu.toy import write_toy
from training.data.cutter import Cutter
from training.data.pack import write_pack

TRAINER = "--row-tokens 96 --step-tokens 200 --pack-length 400 --snapshot-s 0.2 --num-validation-rows 2 --log-every 1"


@pytest.fixture
def cargo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "source"
    base = folder / "tiny.gguf"
    write_toy(folder / "toy")
    write_gguf(base, folder / "stored", make_folder(folder / "stored", "llama", "causal"), "llama", pieces="smollm")
    write_pack(folder / "toy/corpus", Cutter.open(str(base)), folder / "pack", 10_000_000, num_sets=3)
    size = len(lzma.compress(base.read_bytes())) // 2
    monkeypatch.setattr(hour, "CARGO_BYTES", size + 22_000)  # half of the base and one set, not two
    prepare(folder / "pack", tmp_path / "cargo", None, str(base))
    assert all((tmp_path / path).exists() for path in ("cargo/0/set-00", "cargo/1/base.1", "cargo/2/set-02"))
    base.unlink()
    return tmp_path / "cargo"


def wait_for(path: Path) -> None:
    end = time.monotonic() + 120
    while not path.exists():
        assert time.monotonic() < end
        time.sleep(0.05)


def end(process: int) -> None:
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)


@pytest.mark.soak  # it starts the trainer five times
def test_from_cargos_to_an_adapter_with_calls_lost(
    cargo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hour, "WAYS", ("--no-such-way", "--no-compile"))
    kept, out = tmp_path / "kept", tmp_path / "out"
    start(cargo / "0", out, kept, TRAINER, tests=False)
    assert (kept / "way").read_text() == "--no-compile" and "fails with 2" in (out / "hour.log").read_text()
    with pytest.raises(SystemExit, match="feed the cargos in order"):
        feed(cargo / "2", out, time.time() + 100, 0, kept, TRAINER)
    end_at_s = time.time() + 600
    feed(cargo / "1", out, end_at_s, 0, kept, TRAINER)
    wait_for(kept / "run/snapshot/state.json")
    process = int((kept / "pid").read_text())
    feed(cargo / "1", out, end_at_s, 0, kept, TRAINER)
    assert int((kept / "pid").read_text()) == process, "a call made again leaves the trainer alone"
    end(process)
    feed(cargo / "2", out, end_at_s, 0, kept, TRAINER)
    assert "--resume" in (out / "hour.log").read_text().splitlines()[-1]
    assert {path.name for path in (kept / "pack").iterdir()} == {"set-00", "set-01", "set-02"}
    resumed = int((kept / "pid").read_text())
    end(resumed)
    finish(out, time.time(), kept, TRAINER)
    pieces = sorted(out.glob("adapter_model.safetensors.*"))
    assert pieces and all(piece.stat().st_size <= PIECE_BYTES for piece in pieces)
    (tmp_path / "joined").write_bytes(b"".join(piece.read_bytes() for piece in pieces))
    assert len(load_file(tmp_path / "joined")) >= 2 * 2 * 7
    about = json.loads((out / "adapter_config.json.00").read_text())
    assert about["base_sha256"] == json.loads((cargo / "0/base.json").read_text())["sha256"]


def test_a_base_that_changed_on_the_way_is_refused(cargo: Path, tmp_path: Path) -> None:
    (cargo / "1/base.1").write_bytes(b"another")
    taken = Hour(tmp_path / "kept", tmp_path / "out", TRAINER)
    for number in (0, 1):
        for path in (cargo / str(number)).glob("base.*"):
            (taken.kept / path.name).write_bytes(path.read_bytes())
    with pytest.raises(SystemExit, match="another one than was prepared"):
        assert taken.model
    assert not KEPT.exists()
