"""A run at toy size: it learns, goes on where it stopped, and what it exports is what the engine computes."""

import json
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor

from midfill_engine.checkpoint_files import CheckpointError
from midfill_engine.loading.adapter import open_files
from midfill_engine.loading.device import choose_dtype
from midfill_engine.loading.runtime import load_runtime
from midfill_engine.models.transformer import Transformer, head_weight
from training.batches import enable_batches, run_batch
from training.data.pack import read_pack
from training.export import export, write_sources
from training.model import Base
from training.snapshots import LOG, read_snapshot
from training.train import RunConfig, _Run, rate_factor, train


@pytest.fixture(scope="module")
def finished(config: RunConfig) -> RunConfig:
    train(config)
    return config


def read_log(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / LOG).read_text().splitlines()]


def losses(folder: Path) -> list[float]:
    return [row["validation_nats"] for row in read_log(folder) if "validation_nats" in row]


@pytest.mark.parametrize("rank", [4, 0])
def test_a_run_learns(rank: int, finished: RunConfig, tmp_path: Path) -> None:
    if rank != finished.rank:
        finished = replace(finished, rank=rank, out=tmp_path)
        train(finished)
    first, last = losses(finished.out)
    assert last < first - 0.3


def test_a_run_of_trees_in_packs_learns(finished: RunConfig, tmp_path: Path) -> None:
    trees = replace(
        finished, layout="tree", sentinels=True, masked=True, pack_length=1024, step_tokens=1024, num_steps=8
    )
    train(replace(trees, out=tmp_path, num_workers=1))
    first, last = losses(tmp_path)
    assert last < first - 0.1
    with pytest.raises(ValueError, match="a row may take 768: raise it"):
        train(replace(trees, pack_length=700))


def test_a_resumed_run_is_the_run_that_was_not_interrupted(finished: RunConfig, tmp_path: Path) -> None:
    whole = replace(finished, out=tmp_path / "whole", num_steps=6, warmup_steps=0, cooldown=0.0)
    train(whole)
    halves = replace(whole, out=tmp_path / "halves", num_steps=3)
    train(halves)
    assert train(replace(halves, resume=True)).step == 6
    one, other = (load_file(tmp_path / name / "snapshot/learnt.safetensors") for name in ("whole", "halves"))
    assert all(torch.equal(value, other[name]) for name, value in one.items())
    with pytest.raises(ValueError, match="another base or rank"):
        train(replace(halves, resume=True, rank=2))


@pytest.mark.parametrize("num_steps", [1, 2])
def test_a_loss_that_is_no_number_ends_the_run_and_leaves_the_last_snapshot(
    num_steps: int, finished: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the last step breaks the weights, whose loss is not logged."""
    out, step = shutil.copytree(finished.out, tmp_path / "run"), _Run._step

    def break_step(run: _Run, *arguments: Any) -> Any:
        loss, norm = step(run, *arguments)
        for value in run.parameters.values() if run.progress.step == 30 + num_steps else ():
            value.data *= float("nan")
            loss *= float("nan")
        return loss, norm

    monkeypatch.setattr(_Run, "_step", break_step)
    before = (out / "snapshot/state.json").read_text()
    with pytest.raises(ValueError, match=f"no number at step {30 + num_steps}"):
        train(replace(finished, out=out, resume=True, num_steps=num_steps))
    assert (out / "snapshot/state.json").read_text() == before


def test_a_run_ends_at_the_moment_it_is_given(finished: RunConfig, tmp_path: Path) -> None:
    ending = replace(finished, out=tmp_path, num_steps=0, deadline_s=600.0, end_at_s=time.time() - 1)
    done = train(replace(ending, dtype=RunConfig.dtype))
    assert done.record["dtype"] == str(choose_dtype(torch.device("cpu")))  # fast on this machine
    assert done.step == 0 and (tmp_path / "snapshot/state.json").exists()
    assert train(replace(finished, out=tmp_path, num_steps=1, resume=True)).step == 1


@torch.no_grad()
def scores_of(transformer: Transformer, ids: Tensor) -> Tensor:
    places = torch.arange(len(ids))[None]
    hidden = run_batch(enable_batches(transformer), ids[None], places, causal=True)
    return F.linear(hidden[0], head_weight(transformer))


def trained_scores(config: RunConfig, ids: Tensor) -> Tensor:
    learner = Base.open(config.model, config.rank, torch.device("cpu"), torch.float32)
    read_snapshot(config.out / "snapshot", learner.parameters, torch.optim.Adam(learner.parameters.values()))
    return scores_of(learner.transformer, ids)


def put_adapter(config: RunConfig, folder: Path, **options: Any) -> Path:
    shutil.copytree(config.model, folder / Path(config.model).name)
    export(config.out / "snapshot", folder / "adapter", **options)
    return folder / "adapter"


@pytest.mark.parametrize("narrow", [False, True])
@pytest.mark.parametrize("rank", [4, 0])
def test_the_engine_computes_what_was_trained(rank: int, narrow: bool, finished: RunConfig, tmp_path: Path) -> None:
    """A low rank, and all weights by a change of full rank, to the rounding of bf16 or int8."""
    if rank != finished.rank:
        finished = replace(finished, rank=rank, out=tmp_path / "run", num_steps=4)
        train(finished)
    runtime = load_runtime(str(put_adapter(finished, tmp_path, rank=32, narrow=narrow)), "cpu", dtype="fp32")
    plain = load_runtime(finished.model, "cpu", dtype="fp32")
    ids = torch.arange(40, 90)
    found, before = (scores_of(each.loaded.model.transformer, ids) for each in (runtime, plain))
    expected = trained_scores(finished, ids)
    assert (found - expected).norm() < 0.05 * (before - expected).norm()
    record = json.loads((tmp_path / "adapter/training.json").read_text())
    assert record["rank"] == str(rank) and record["pack_sha256"]


def test_a_run_begins_with_an_adapter(finished: RunConfig, tmp_path: Path) -> None:
    adapter = put_adapter(finished, tmp_path)
    again = replace(finished, begin=adapter, out=tmp_path / "run", num_steps=1)
    train(again)
    assert losses(again.out)[0] == pytest.approx(losses(finished.out)[-1], abs=0.02)
    with pytest.raises(ValueError, match="of rank 2"):
        train(replace(again, rank=2))


def test_an_adapter_that_is_damaged_is_refused(finished: RunConfig, tmp_path: Path) -> None:
    weights = put_adapter(finished, tmp_path) / "adapter_model.safetensors"
    tensors = load_file(weights)
    save_file({name: value + 1 for name, value in tensors.items()}, weights)
    with pytest.raises(CheckpointError, match="is damaged"):
        open_files(weights.parent)


def test_rate_warms_up_and_cools_down() -> None:
    assert rate_factor(0, 0.0, 10, 0.3) == pytest.approx(0.1)
    assert rate_factor(50, 0.5, 10, 0.3) == 1.0
    assert rate_factor(50, 0.85, 10, 0.3) == pytest.approx(0.525)
    assert rate_factor(50, 1.2, 10, 0.3) == pytest.approx(0.05)


def test_sources_name_every_package(pack_folder: Path, tmp_path: Path) -> None:
    names = (*read_pack(pack_folder, "train").package_names, "unused")
    rows = [f"{name}\t1.0\tMIT" for name in names]
    (tmp_path / "sources.tsv").write_text("\n".join(["name\tversion\tlicence", *rows]) + "\n")
    assert write_sources(tmp_path / "sources.tsv", pack_folder, tmp_path / "used.tsv") == len(names) - 1
    assert "unused" not in (tmp_path / "used.tsv").read_text()
    (tmp_path / "sources.tsv").write_text("name\tversion\tlicence\n" + rows[0] + "\n")
    with pytest.raises(ValueError, match="names no source of"):
        write_sources(tmp_path / "sources.tsv", pack_folder, tmp_path / "used.tsv")
