"""LoRA adapters over their bases: merged as PEFT merges, found where their base is, refused where that is not known.

The adapters in `adapters/` were made by PEFT 0.21.2 on the tiny Dream checkpoint; `merged.safetensors` has the first
eight rows of all tensors that its `merge_and_unload` changed.
"""

import json
import shutil
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.engine import tiny
from tests.engine.gguf_writer import make_folder, write_gguf
from tests.engine.in_process import denoise, run

from midfill_engine.checkpoint_files import CheckpointError, open_tensors
from midfill_engine.errors import StartError
from midfill_engine.families import FAMILIES
from midfill_engine.loading.adapter import Adapter, open_files
from midfill_engine.loading.packaged import PACKAGED, SMOLLM2, PackagedModel, hash_file
from midfill_engine.loading.runtime import ADAPTER, WEIGHTS, Runtime, find_model, load_runtime
from midfill_engine.wire import InfillRequest

RECORDED = Path(__file__).parent / "adapters"
PREFIX = "base_model.model.model.layers.0.self_attn.q_proj."

Edit = Callable[[dict[str, Any], dict[str, torch.Tensor]], None]


@pytest.fixture
def base(tmp_path: Path) -> Path:
    tiny.make_random(tmp_path / "base", FAMILIES.find("dream"))
    return tmp_path / "base"


def put_adapter(folder: Path, name: str = "plain", edit: Edit = lambda config, tensors: None) -> Path:
    """A recorded adapter at `folder`, changed by `edit`."""
    config = json.loads((RECORDED / name / "adapter_config.json").read_text())
    tensors = load_file(RECORDED / name / "adapter_model.safetensors")
    edit(config, tensors)
    folder.mkdir(parents=True)
    (folder / "adapter_config.json").write_text(json.dumps(config))
    save_file(tensors, folder / "adapter_model.safetensors")
    return folder


def fill(runtime: Runtime) -> list[float]:
    segments = [{"text": "def f(a):\n    return "}, {"hole": {"max_tokens": 6}}, {"text": "\n"}]
    request = InfillRequest.model_validate({"segments": segments})
    return run(denoise(runtime, request, lengths="fixed"))[1].holes[0].confidence


@pytest.mark.parametrize("name", ["plain", "rich"])
def test_weights_are_merged_as_peft_merges_them(name: str, base: Path) -> None:
    """`rich` has rsLoRA, ranks and alphas by module, an embedding, biases and a replaced head."""
    files = open_files(put_adapter(base.parent / "adapter", name))
    merged, original = load_file(RECORDED / name / "merged.safetensors"), load_file(base / "model.safetensors")
    assert files.merges.keys() == set(merged)
    for tensor, value in files.read(list(files.shards)).items():
        expected = merged.get(tensor, original[tensor])
        torch.testing.assert_close(value[: len(expected)], expected, rtol=1e-6, atol=1e-6)
        assert (tensor in merged) == (not torch.equal(value, original[tensor]))


def test_an_adapter_is_served_as_its_merged_checkpoint(base: Path) -> None:
    """The same fills and the same digest of the weights, which are not the base's."""
    adapter = put_adapter(base.parent / "adapter")
    files = open_files(adapter)
    shutil.copytree(base, base.parent / "merged")
    save_file(files.read(list(files.shards)), base.parent / "merged/model.safetensors")
    adapted, merged, plain = (load_runtime(str(path), "cpu") for path in (adapter, base.parent / "merged", base))
    assert fill(adapted) == fill(merged) != fill(plain)
    assert adapted.info.weights == merged.info.weights != plain.info.weights
    assert (adapted.info.id, adapted.family.name) == ("adapter", "dream")


def test_only_what_is_read_is_merged(base: Path, record_calls: Callable[..., list[Any]]) -> None:
    """So that memory holds a layer more than the model, adapter or not."""
    merged = record_calls(Adapter, "merge")
    files = open_files(put_adapter(base.parent / "adapter"))
    files.read([name for name in files.shards if "layers.1." in name])
    assert len(merged) == 4 and all("layers.1." in name for _, name, _ in merged)


def cache_base(base: Path, cache: Path, revision: str) -> None:
    snapshot = cache / "models--somebody--base/snapshots" / revision
    snapshot.parent.mkdir(parents=True)
    base.rename(snapshot)
    (cache / "models--somebody--base/refs").mkdir()
    (cache / "models--somebody--base/refs/main").write_text(revision)


def refuse_network(*arguments: object) -> None:
    raise AssertionError("the network was asked")


def test_a_base_is_taken_from_the_hubs_cache_and_never_fetched(
    base: Path, tmp_path: Path, hub_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket.socket, "connect", refuse_network)
    monkeypatch.setattr(socket, "getaddrinfo", refuse_network)
    adapter = put_adapter(tmp_path / "far/adapter")
    with pytest.raises(StartError, match="somebody/base.*not on this machine") as caught:
        load_runtime(str(adapter), "cpu")
    assert "midfill models get somebody/base" in caught.value.next_step
    cache_base(base, hub_cache, "0" * 40)
    assert load_runtime(str(adapter), "cpu").names == ("adapter", str(adapter), "dream")
    with pytest.raises(StartError, match="not on this machine"):
        other = put_adapter(tmp_path / "far/other", edit=lambda config, _: config.update(revision="1" * 40))
        load_runtime(str(other), "cpu")


@pytest.mark.parametrize("name", ["/data/models/base", "..\\models\\base\\", "../../base", "nobody/base"])
def test_of_a_path_only_its_last_part_counts(name: str, base: Path) -> None:
    adapter = put_adapter(base.parent / "adapter", edit=lambda config, _: config.update(base_model_name_or_path=name))
    assert open_files(adapter).folder == base


def test_an_adapter_named_d2f_makes_its_base_write_blocks(base: Path) -> None:
    runtime = load_runtime(str(put_adapter(base.parent / "My_D2F_Lora")), "cpu")
    assert (runtime.family.name, runtime.family.sampler) == ("d2f-dream", "pipeline")
    assert len(fill(runtime)) <= 6


@pytest.mark.parametrize("name", ["..", "/", "x/..", "", ".", "C:\\..\\"])
def test_a_base_without_a_name_is_refused(name: str, base: Path) -> None:
    adapter = put_adapter(base.parent / "adapter", edit=lambda config, _: config.update(base_model_name_or_path=name))
    with pytest.raises(StartError, match="no name"):
        load_runtime(str(adapter), "cpu")


@pytest.mark.parametrize("name", ["adapter", "other"])
def test_the_base_of_an_adapter_is_no_adapter(name: str, base: Path) -> None:
    put_adapter(base.parent / "other")
    adapter = put_adapter(base.parent / "adapter", edit=lambda config, _: config.update(base_model_name_or_path=name))
    with pytest.raises(StartError, match="another adapter" if name == "other" else "not on this machine"):
        load_runtime(str(adapter), "cpu")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"peft_type": "IA3"}, "no LoRA"),
        ({"use_dora": True}, "use_dora"),
        ({"init_lora_weights": "pissa_niter_4"}, "init_lora_weights='pissa_niter_4'"),
        ({"layer_replication": [[0, 2]]}, "layer_replication"),
        ({"target_parameters": ["mlp.experts"]}, "target_parameters"),
        ({"made_up_next_year": 1}, "made_up_next_year"),
        ({"alpha_pattern": {".*q_proj": 3}}, "q_proj"),
        ({"lora_alpha": None}, "alpha"),
        ({"revision": 3}, "base"),
        ({"r": 5}, "rank"),
    ],
)
def test_what_is_not_merged_is_refused(options: dict[str, Any], said: str, base: Path) -> None:
    adapter = put_adapter(base.parent / "adapter", edit=lambda config, _: config.update(options))
    with pytest.raises(StartError, match=said):
        load_runtime(str(adapter), "cpu")


def drop_b(config: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
    del tensors[PREFIX + "lora_B.weight"]


def drop_a(config: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
    del tensors[PREFIX + "lora_A.weight"]


def add_magnitude(config: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
    tensors[PREFIX + "lora_magnitude_vector"] = torch.ones(32)


def change_a_stranger(config: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
    for part in ("lora_A.weight", "lora_B.weight"):
        tensors[PREFIX.replace("q_proj", "w_proj") + part] = tensors[PREFIX + part].clone()


def name_otherwise(config: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
    tensors["../../" + PREFIX] = torch.ones(1)


def widen(config: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
    tensors[PREFIX + "lora_B.weight"] = torch.ones(1, 2)  # would broadcast over every row


def empty(config: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
    tensors.clear()


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (drop_b, "no B that fits"),
        (drop_a, "lora_B.weight, which is not merged"),
        (add_magnitude, "lora_magnitude_vector"),
        (change_a_stranger, "w_proj.weight, which its base"),
        (name_otherwise, "not named as PEFT"),
        (widen, "made for another base"),
        (empty, "no tensors"),
    ],
)
def test_tensors_that_cannot_be_merged_are_refused(edit: Edit, said: str, base: Path) -> None:
    adapter = put_adapter(base.parent / "adapter", edit=edit)
    with pytest.raises(StartError, match=said):
        load_runtime(str(adapter), "cpu")


def test_a_base_of_another_size_is_refused(tmp_path: Path) -> None:
    family = FAMILIES.find("dream")
    tiny.make_random(tmp_path / "base", family, config={**tiny.config_of(family.name), "hidden_size": 48})
    with pytest.raises(StartError, match="made for another base"):
        load_runtime(str(put_adapter(tmp_path / "adapter")), "cpu")


def leave_the_head(config: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
    del tensors["base_model.model.lm_head.weight"]


def test_an_embedding_that_is_the_head_too_is_refused(tmp_path: Path) -> None:
    family = FAMILIES.find("dream")
    tiny.make_random(tmp_path / "base", family, config={**tiny.config_of(family.name), "tie_word_embeddings": True})
    adapter = put_adapter(tmp_path / "adapter", "rich", edit=leave_the_head)
    with pytest.raises(StartError, match="head too"):
        load_runtime(str(adapter), "cpu")


def test_adapters_of_the_embedded_model_and_pickled_ones_are_refused(tmp_path: Path) -> None:
    tiny.make_embedded(tmp_path / "base")
    adapter = put_adapter(tmp_path / "adapter")
    with pytest.raises(StartError, match="'embedded'"):
        load_runtime(str(adapter), "cpu")
    (adapter / "adapter_model.safetensors").rename(adapter / "adapter_model.bin")
    with pytest.raises(CheckpointError, match="pickled"):
        Adapter.read(adapter)
    (adapter / "adapter_config.json").write_text("[]")
    with pytest.raises(CheckpointError, match="no LoRA"):
        Adapter.read(adapter)
    (adapter / "adapter_config.json").write_text("{")
    with pytest.raises(CheckpointError, match="cannot be read"):
        Adapter.read(adapter)


@pytest.fixture
def packaged_base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PackagedModel:
    """A tiny GGUF file where packaged models lie."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    model = PackagedModel("tiny", "", "", 0, "inside/tiny.gguf", "", 0, "")
    model.path.parent.mkdir(parents=True)
    write_gguf(model.path, tmp_path / "stored", make_folder(tmp_path / "stored", "llama", "causal"), "llama")
    made = replace(model, sha256=hash_file(model.path), num_bytes=model.path.stat().st_size)
    monkeypatch.setitem(PACKAGED, "tiny", made)
    return made


def put_over(model: PackagedModel, folder: Path, **options: Any) -> Path:
    """A change of rank 2, in int8 with a scale a row, to one matrix of 256 by 256."""
    folder.mkdir()
    tensors = {}
    for part, shape in {"A": (2, 256), "B": (256, 2)}.items():
        tensors[f"{PREFIX}lora_{part}.weight"] = torch.full(shape, 3, dtype=torch.int8)
        tensors[f"{PREFIX}lora_{part}.weight.scale"] = torch.full((shape[0], 1), 0.5)
    save_file(tensors, folder / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "base_model_name_or_path": model.name, **options}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return folder


def test_an_int8_adapter_is_merged_into_a_packaged_base(packaged_base: PackagedModel, tmp_path: Path) -> None:
    files = open_files(put_over(packaged_base, tmp_path / "adapter", base_sha256=packaged_base.sha256))
    name = "model.layers.0.self_attn.q_proj.weight"
    before, after = open_files(packaged_base.path).read([name])[name], files.read([name])[name]
    torch.testing.assert_close(after, before + 2 * 2 * 1.5 * 1.5)
    runtime = load_runtime(str(tmp_path / "adapter"), "cpu")
    assert (runtime.info.id, runtime.family.name) == ("adapter", "causal")


def test_an_adapter_is_refused_over_another_file(packaged_base: PackagedModel, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="was trained on another file than .*tiny.gguf: use it without"):
        open_files(put_over(packaged_base, tmp_path / "adapter", base_sha256="0" * 64))
    with pytest.raises(CheckpointError, match="is damaged"):
        open_files(put_over(packaged_base, tmp_path / "other", weights_sha256="0" * 64))
    packaged_base.path.unlink()
    with pytest.raises(StartError, match="tiny is not on this machine") as raised:
        open_files(put_over(packaged_base, tmp_path / "third"))
    assert raised.value.next_step == "run `midfill models get tiny`"


def test_an_adapter_that_ships_is_loaded_by_the_name_of_its_base(packaged_base: PackagedModel, tmp_path: Path) -> None:
    assert find_model("tiny", tmp_path / "weights") == packaged_base.path
    (tmp_path / "weights").mkdir()
    adapter = put_over(packaged_base, tmp_path / "weights/tiny-adapter", base_sha256=packaged_base.sha256)
    assert find_model("tiny", tmp_path / "weights") == adapter


def test_the_adapter_that_ships_is_whole_small_and_of_the_default_model() -> None:
    adapter = Adapter.read(WEIGHTS / f"{SMOLLM2.name}{ADAPTER}")
    config = json.loads((adapter.folder / "adapter_config.json").read_text())
    assert (config["base_model_name_or_path"], adapter.base_sha256) == (SMOLLM2.name, SMOLLM2.sha256)
    assert (adapter.folder / "adapter_model.safetensors").stat().st_size <= 25_000_000
    assert len(adapter.low_rank) == 7 * 30 and not adapter.replaced
    with open_tensors(adapter.folder / "adapter_model.safetensors") as tensors:
        assert {tensors.get_tensor(low.up).dtype for low in adapter.low_rank.values()} == {torch.int8}
