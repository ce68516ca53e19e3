"""What surrounds the scores is the authors': which tokens end a text, stand around it and lay it out."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.engine import tiny
from tests.engine.fakes import wanting
from tests.engine.in_process import denoise, run
from tests.engine.requests import ask_after_return
from tests.engine.tiny import copy_checkpoint, load

from midfill_engine.checkpoint_files import CheckpointError, CheckpointFiles
from midfill_engine.diffusion.plan import take_authors
from midfill_engine.errors import RequestError
from midfill_engine.families import FAMILIES, find_family
from midfill_engine.loading import checkpoints
from midfill_engine.loading.runtime import Runtime
from midfill_engine.models.packed import Pass, Result
from midfill_engine.samplers import SAMPLERS

WRITERS = [name for name in FAMILIES if FAMILIES.find(name).lengths == "until-end"]


@pytest.mark.parametrize("name", WRITERS)
def test_every_family_that_writes_can_end_its_text(name: str, open_family: Callable[[str], Runtime]) -> None:
    """With each of the tokens that its files name, whatever config.json leaves out."""
    runtime = open_family(name)
    assert runtime.tokens.delete_ids
    letter = runtime.loaded.tokenizer.encode("q")[0]
    for end in runtime.tokens.delete_ids:
        model = wanting(runtime, lambda step, end=end: letter if step <= 3 else end)  # type: ignore[misc]
        _, response = run(denoise(model, ask_after_return({"max_tokens": 60}, quality=1.0)))
        assert set(response.holes[0].text) <= {"q"}
        assert response.stats.tokens < 60 and not response.holes[0].cut


def test_llada2_says_its_end_only_in_its_tokenizer(open_family: Callable[[str], Runtime]) -> None:
    """As published: config.json has a pad and no eos."""
    files = open_family("llada2").loaded.files
    assert files.number("eos_token_id") is None
    assert open_family("llada2").tokens.delete_ids == (300, 301)


@pytest.mark.parametrize("name", ["sdar", "fast-dllm-v2"])
def test_every_eos_of_the_files_ends_a_text(name: str, open_family: Callable[[str], Runtime]) -> None:
    assert set(open_family(name).tokens.delete_ids) == {300, 301}


class Scripted(Runtime):
    """Proposes the scripted token at each place behind `start`, surer the further right it stands."""

    script: tuple[int, ...] = ()
    start: int = 0

    def run(self, passes: list[Pass]) -> list[Result]:
        found = []
        for step, result in zip(passes, super().run(passes), strict=True):
            assert result.chosen is not None
            places = step.positions[step.wanted] - self.start
            ids = torch.tensor([self.script[int(place)] for place in places])
            found.append(replace(result, chosen=replace(result.chosen, ids=ids, confidence=0.5 + places / 1000)))
        return found


def test_a_text_ends_at_its_first_end_whatever_was_settled_behind(open_family: Callable[[str], Runtime]) -> None:
    """Within a block letters behind the end may be settled before it: they are no part of the text."""
    runtime = open_family("llada2")
    q, z = (runtime.loaded.tokenizer.encode(letter)[0] for letter in "qz")
    model = Scripted(**{name: getattr(runtime, name) for name in Runtime.__dataclass_fields__})
    object.__setattr__(model, "script", (q, q, 300, z, z, z, z, z))
    object.__setattr__(model, "start", len("def f(a):\n    return " + "\n\nf(1)\n"))
    events, response = run(denoise(model, ask_after_return({"max_tokens": 8}, quality=1.0)))
    assert events[3].holes[0].text.endswith("z")
    assert response.holes[0].text == "qq" and response.stats.tokens == 2 and not response.holes[0].cut


@pytest.mark.parametrize("name", ["dream", "dreamon", "d2f-dream"])
def test_bos_is_the_tokenizers(name: str, open_family: Callable[[str], Runtime]) -> None:
    """config.json has the eos in its place."""
    files = CheckpointFiles(open_family("dream").loaded.files.folder)
    runtime = open_family(name)
    assert files.config["bos_token_id"] == files.config["eos_token_id"] == 300
    assert runtime.tokens.opening(None) == [302]


def test_an_older_tokenizers_map_of_special_tokens_is_read(tmp_path: Path) -> None:
    folder = copy_checkpoint("dream", tmp_path)
    (folder / "tokenizer_config.json").write_text("{}")
    (folder / "special_tokens_map.json").write_text(json.dumps({"bos_token": {"content": "<|beginoftext|>"}}))
    assert CheckpointFiles(folder).role_id("bos") == 302
    assert CheckpointFiles(folder).role_id("eos") == 300  # config.json's, since no tokenizer says


def test_the_served_model_says_its_ids(open_family: Callable[[str], Runtime]) -> None:
    ids = open_family("dreamon").info.ids
    assert (ids.before, ids.behind, ids.mask, ids.ends, ids.expand) == ([302], [300], 303, [300], 304)


@pytest.mark.parametrize("name", ["sdar", "fast-dllm-v2", "stable-diffcoder"])
def test_fill_in_the_middle_is_laid_out_as_its_base_was_trained(
    name: str, open_family: Callable[[str], Runtime]
) -> None:
    """Qwen: prefix, suffix, middle. Seed-Coder: suffix, prefix, middle."""
    runtime = open_family(name)
    markers = runtime.tokens.markers
    assert markers is not None
    laid = runtime.family.arrange([[1, 2], [3]], runtime.tokens)
    if name == "stable-diffcoder":
        assert laid == [[markers.suffix, 3, markers.prefix, 1, 2, markers.middle], []]
    else:
        assert laid == [[markers.prefix, 1, 2, markers.suffix, 3, markers.middle], []]


@pytest.mark.parametrize("kind", ["qwen2", "llama"])
def test_a_model_without_a_mask_token_is_causal(tmp_path: Path, kind: str) -> None:
    tiny.make_random(tmp_path, FAMILIES.find("dream"), added_tokens=("<|endoftext|>",))
    config: dict[str, Any] = json.loads((tmp_path / "config.json").read_text()) | {"model_type": kind}
    del config["mask_token_id"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert find_family(CheckpointFiles(tmp_path)).name == "causal"
    assert find_family(CheckpointFiles(copy_checkpoint("dream", tmp_path / "other"))).name == "dream"


def test_a_stored_tensor_that_nothing_reads_ends_loading(tmp_path: Path) -> None:
    folder = copy_checkpoint("llada", tmp_path)
    tensors = load_file(folder / "model.safetensors")
    save_file({**tensors, "model.rotary_emb.inv_freq": torch.ones(4)}, folder / "model.safetensors")
    assert load(folder).num_parameters > 0  # computed at load, whoever stored it
    name = "model.transformer.blocks.0.attn_norm.bias"
    save_file({**tensors, name: torch.ones(32), "x.bias": torch.ones(1)}, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match=f"{name} and 1 more"):
        load(folder)


def scale_queries_from(position: int) -> dict[str, Any]:
    yarn = {"rope_type": "yarn", "factor": 16.0, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1}
    return {**yarn, "original_max_position_embeddings": position}


@pytest.mark.parametrize(
    ("family", "changes", "message"),
    [
        ("llada", {"layer_norm_type": "default"}, "'default'"),
        ("llada", {"bias_for_layer_norm": True}, "bias_for_layer_norm"),
        ("llada", {"rope": False}, "rotary"),
        ("llada-moe", {"shared_expert_intermediate_size": 16}, "every token"),
        ("llada-moe", {"moe_router_enable_expert_bias": True}, "choice of experts"),
        ("llada-moe", {"partial_rotary_factor": 0.5}, "part of each head"),
        ("llada-moe", {"clip_qkv": 8.0}, "clipped"),
        ("llada-moe", {"moe_layer_freq": [0, 1]}, "without experts"),
        ("llada2", {"use_bias": True}, "biases"),
        ("llada2", {"use_qkv_bias": True}, "biases"),
        ("llada2", {"use_qk_norm": False}, "without norms"),
        ("llada2", {"expert_capacity": 48}, "by the block, as LLaDA2.2"),
        ("llada2", {"split_token_id": 301}, "insert and delete, as LLaDA2.2"),
        ("nemotron-diffusion", {"rope_parameters": scale_queries_from(2048)}, "scaled within its first 4096"),
        ("nemotron-diffusion", {"rope_scaling": scale_queries_from(2048)}, "scaled within its first 4096"),
    ],
)
def test_what_the_authors_compute_otherwise_is_refused(
    tmp_path: Path, family: str, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(CheckpointError, match=message):
        load(copy_checkpoint(family, tmp_path, **changes))


# What the published files say, shrunk in `FAMILIES` for tests: SDAR-4B-Chat (JetAstra/SDAR) and LLaDA-8B-Base.
PUBLISHED_KEYS = {
    "sdar": {"attention_bias": False, "attention_dropout": 0.0, "attn_implementation": "flex_attention"}
    | {"debug": False, "ep_size": 1, "fuse_cross_entropy": True, "initializer_range": 0.02, "max_window_layers": 36}
    | {"micro_forward": False, "rope_scaling": None, "skip_checkpoint": False, "sliding_window": None, "block_size": 4}
    | {"use_cache": False, "use_deepep": False, "use_sliding_window": False, "torch_dtype": "bfloat16"},
    "llada": {"activation_type": "silu", "alibi": False, "alibi_bias_max": 8.0, "attention_dropout": 0.0}
    | {"attention_layer_norm": False, "attention_layer_norm_with_affine": True, "block_group_size": 1}
    | {"block_type": "llama", "embedding_dropout": 0.0, "flash_attention": False, "include_bias": False}
    | {"include_qkv_bias": False, "init_cutoff_factor": None, "init_device": "meta", "init_fn": "mitchell"}
    | {"init_std": 0.02, "input_emb_norm": False, "max_sequence_length": 4096, "mlp_ratio": 4, "precision": "amp_bf16"}
    | {"multi_query_attention": None, "residual_dropout": 0.0, "rope_full_precision": True, "scale_logits": False},
}


@pytest.mark.parametrize("family", list(PUBLISHED_KEYS))
def test_a_published_configuration_is_read_without_a_word(
    family: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert load(copy_checkpoint(family, tmp_path, **PUBLISHED_KEYS[family])).num_parameters > 0
    assert not caplog.records


@pytest.mark.parametrize("family", [name for name in FAMILIES if FAMILIES.find(name).tensors])
def test_an_example_is_read_without_a_word(family: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tiny.make_random(tmp_path, FAMILIES.find(family))
    checkpoints.load(CheckpointFiles(tmp_path), FAMILIES.find(family))
    assert not caplog.records


def test_a_request_can_be_filled_as_the_authors_evaluate(open_family: Callable[[str], Runtime]) -> None:
    family = FAMILIES.find("dreamon")
    asked = take_authors(family, ask_after_return({"min_tokens": 1}, quality="authors"))
    assert (asked.sampler, asked.quality, asked.temperature, asked.top_p) == ("entropy", 1.0, 0.2, 0.9)
    assert asked.segments[1].hole.max_tokens == 64  # type: ignore[union-attr]
    mine = take_authors(family, ask_after_return({"max_tokens": 9}, quality="authors", temperature=0.5, sampler="topk"))
    assert (mine.sampler, mine.temperature) == ("topk", 0.5)
    assert mine.segments[1].hole.max_tokens == 9  # type: ignore[union-attr]
    _, response = run(denoise(open_family("dreamon"), ask_after_return({"max_tokens": 9}, quality="authors", seed=4)))
    assert response.stats.tokens <= 9
    plain = ask_after_return({}, quality=0.3)
    assert take_authors(family, plain) is plain


def test_quality_authors_takes_p2_for_open_dcoder(open_family: Callable[[str], Runtime]) -> None:
    asked = take_authors(FAMILIES.find("opendcoder"), ask_after_return({}, quality="authors"))
    assert (asked.sampler, asked.steps, asked.temperature, asked.top_p) == ("p2", 64, 0.6, 0.95)


def test_authors_without_a_setting_are_not_guessed() -> None:
    with pytest.raises(RequestError, match="coda"):
        take_authors(replace(FAMILIES.find("coda"), authors=None), ask_after_return({}, quality="authors"))


@pytest.mark.parametrize("name", [name for name in FAMILIES if FAMILIES.find(name).attention != "causal"])
def test_every_family_can_be_asked_as_its_authors_do(name: str) -> None:
    family = FAMILIES.find(name)
    assert family.authors is not None and family.authors.source
    asked = take_authors(family, ask_after_return({}, quality="authors"))
    assert asked.sampler in SAMPLERS and isinstance(asked.quality, float)


def test_dreamon_settles_a_token_a_step_by_least_entropy_as_its_authors_do(
    open_family: Callable[[str], Runtime],
) -> None:
    """By default, too: without temperature it is what their order settles, token for token."""
    runtime = open_family("dreamon")
    plain, theirs = (
        run(denoise(runtime, ask_after_return({"max_tokens": 9}, sampler=name)))[1] for name in (None, "entropy")
    )
    assert plain.holes[0].text == theirs.holes[0].text
    assert plain.stats.steps == theirs.stats.steps >= plain.stats.tokens
