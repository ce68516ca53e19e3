"""Every published family on a tiny checkpoint in its own format: scores as its reference code's, loading, fills."""

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.engine import reference_scores, tiny
from tests.engine.fakes import wanting
from tests.engine.in_process import denoise, run, run_together, works_of
from tests.engine.requests import ask_after_return
from tests.engine.tiny import copy_checkpoint, load

from midfill_engine.backends import open_fill
from midfill_engine.caches import CACHES
from midfill_engine.checkpoint_files import CheckpointError, CheckpointFiles
from midfill_engine.errors import RequestError
from midfill_engine.families import FAMILIES, find_family
from midfill_engine.loading.runtime import Runtime
from midfill_engine.models.transformer import TransformerConfig, Yarn
from midfill_engine.samplers import SAMPLERS
from midfill_engine.tokens.tokenizer import byte_of_character, read_hub_tokenizer
from midfill_engine.wire import InfillRequest, TextSegment

PUBLISHED = [name for name in FAMILIES if FAMILIES.find(name).attention not in ("context_frozen", "canvas", "causal")]
SEEING = [name for name in PUBLISHED if FAMILIES.find(name).sees_suffix]
BLIND = [name for name in PUBLISHED if not FAMILIES.find(name).sees_suffix]


def test_every_family_has_a_reference() -> None:
    """LLaDA2.1's transformer is LLaDA2.0's."""
    assert set(PUBLISHED) - set(reference_scores.recorded_families()) == {"llada2.1"}


@pytest.mark.parametrize("name", reference_scores.recorded_families())
def test_scores_are_those_of_the_reference(name: str, tmp_path: Path) -> None:
    found = reference_scores.compare(FAMILIES.find(name), tmp_path)
    assert found.error < 1e-4
    assert found.agreement == 1
    assert found.error_unshifted > 0.1


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_checkpoint_says_its_family(name: str, open_family: Callable[[str], Runtime]) -> None:
    runtime = open_family(name)
    assert runtime.family.name == name
    assert runtime.info.sees_suffix == (name in SEEING)
    assert runtime.tokens.mask_id in runtime.tokens.special_ids


@pytest.mark.parametrize("name", PUBLISHED)
def test_every_family_fills_what_it_is_asked(name: str, open_family: Callable[[str], Runtime]) -> None:
    hole = {"draft": "xy   ", "keep": [[0, 2]], "min_tokens": 2, "max_tokens": 9}
    for options in ({}, {"temperature": 1.0, "n": 2, "top_p": 0.9}, {"steps": 2}):
        events, response = run(denoise(open_family(name), ask_after_return(hole, **options)))
        assert response.holes[0].text.startswith("xy")
        assert 2 <= response.stats.tokens <= 9
        assert all(shown.masked == 0 for shown in events[-1].holes)
        assert "steps" not in options or response.stats.steps <= 2


@pytest.mark.parametrize("name", PUBLISHED)
def test_sixteen_at_once_answer_as_each_alone(name: str, open_family: Callable[[str], Runtime]) -> None:
    """Token for token and to the last bit of every confidence, drawn or greedy, whatever the others are."""
    runtime = open_family(name)
    requests = [
        ask_after_return({"max_tokens": 1 + number % 5}, steps=2, seed=number, temperature=0.8 * (number % 2))
        for number in range(16)
    ]
    texts = ["x = [", "def f(a):\n    ", "(" * 40]
    requests = [
        request.model_copy(update={"segments": [TextSegment(text=texts[number % 3]), *request.segments[1:]]})
        for number, request in enumerate(requests)
    ]
    lengths = "fixed" if runtime.family.lengths == "calibrated" else None
    together = run_together(runtime, [open_fill(runtime, request, lengths=lengths) for request in requests])
    for request, found in zip(requests, together, strict=True):
        assert run(denoise(runtime, request, lengths=lengths))[1].holes == found.holes


@pytest.mark.parametrize("name", PUBLISHED)
def test_text_never_becomes_a_special_token(name: str, open_family: Callable[[str], Runtime]) -> None:
    runtime = open_family(name)
    specials = set(runtime.tokens.special_ids)
    for text in tiny.added_tokens_of(runtime.family.name):
        ids = runtime.loaded.tokenizer.encode(f"a {text} b")
        assert not specials & set(ids)
        assert b"".join(map(runtime.loaded.tokenizer.token_bytes, ids)).decode() == f"a {text} b"


@pytest.mark.parametrize("name", SEEING)
def test_a_mask_sees_what_stands_behind_it(name: str, open_family: Callable[[str], Runtime]) -> None:
    runtime = open_family(name)
    request = ask_after_return({"max_tokens": 4, "min_tokens": 4}, steps=1)
    segments = [*request.segments[:2], {"text": "zzzzzzzz\n"}]
    other = InfillRequest.model_validate({**request.model_dump(), "segments": segments})
    fills = [run(denoise(runtime, one, lengths="fixed"))[1].holes[0] for one in (request, other)]
    assert fills[0].confidence != fills[1].confidence


def rounding_of(runtime: Runtime) -> float | None:
    """Of a confidence, where what is masked changes bits: torch's attention in bf16 does so with AVX2, only there."""
    is_coarse = runtime.dtype == torch.bfloat16 and torch.backends.cpu.get_cpu_capability() == "AVX2"
    return 32 * torch.finfo(runtime.dtype).eps if is_coarse else None


@pytest.mark.parametrize("name", BLIND)
def test_a_block_causal_model_gets_the_suffix_first(name: str, open_family: Callable[[str], Runtime]) -> None:
    """The exact block cache gives what computing everything gives; one hole at a time."""
    runtime = open_family(name)
    fills = [run(denoise(runtime, ask_after_return({"max_tokens": 14}), cache=cache))[1] for cache in ("block", "none")]
    assert fills[0].holes[0].text == fills[1].holes[0].text
    rounding = max(1e-4, torch.finfo(runtime.dtype).eps / 4)
    assert fills[0].holes[0].confidence == pytest.approx(
        fills[1].holes[0].confidence, rel=rounding_of(runtime), abs=rounding
    )
    request = ask_after_return()
    with pytest.raises(RequestError, match="one hole"):
        run(denoise(runtime, request.model_copy(update={"segments": request.segments * 2})))


@pytest.mark.parametrize("sampler", ["pipeline", "threshold"])
def test_d2f_opens_a_block_when_a_tenth_of_the_one_before_is_settled(
    sampler: str, open_family: Callable[[str], Runtime]
) -> None:
    """Two of sixteen at one a step. Other samplers know one block at a time."""
    runtime = open_family("d2f-dream")
    _, works, _ = works_of(runtime, ask_after_return({"min_tokens": 40, "max_tokens": 40}, sampler=sampler))
    asked = [len(step.wanted) for work in works for step in work.passes]
    assert asked[:3] == ([16, 15, 30] if sampler == "pipeline" else [16, 15, 14])


def test_many_canvases_take_several_forwards_with_the_same_end(
    open_family: Callable[[str], Runtime], monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = open_family("llada")
    _, whole, holes = works_of(runtime, ask_after_return(n=3))
    monkeypatch.setattr("midfill_engine.scheduling.work.MAX_ROWS", 100)
    _, parts, same = works_of(runtime, ask_after_return(n=3))
    assert max(work.num_rows for work in parts) <= 100 < max(work.num_rows for work in whole)
    assert len(parts) > len(whole) and same == holes


def test_d2f_reads_the_suffix_before_the_prefix_and_behind_bos(open_family: Callable[[str], Runtime]) -> None:
    runtime = open_family("d2f-dream")
    bos, encode = runtime.tokens.opening(None), runtime.loaded.tokenizer.encode
    pieces = runtime.family.arrange([bos + encode("before"), encode("after")], runtime.tokens)
    assert (bos, pieces) == ([302], [bos + encode("afterbefore"), []])
    assert not runtime.tokens.closing


@pytest.mark.parametrize("name", ["dream", "llada"])
@pytest.mark.parametrize("cache", [name for name in CACHES if "bidirectional" in CACHES.find(name).attentions])
def test_a_cache_that_refreshes_every_step_is_exact(
    name: str, cache: str, open_family: Callable[[str], Runtime], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And its first step always is: what is approximate is only what was left out."""
    runtime = open_family(name)
    monkeypatch.setattr("midfill_engine.caches.REFRESH_STEPS", 1)
    plain = run(denoise(runtime, ask_after_return(), cache="none", lengths="fixed"))[1]
    assert run(denoise(runtime, ask_after_return(), cache=cache, lengths="fixed"))[1].holes == plain.holes


@pytest.mark.parametrize("cache", ["prefix", "dual"])
def test_an_approximate_cache_computes_less(
    cache: str, open_family: Callable[[str], Runtime], record_calls: Callable[..., list[Any]]
) -> None:
    runs = record_calls(Runtime, "run")
    _, response = run(denoise(open_family("llada"), ask_after_return(), cache=cache, lengths="fixed"))
    rows = [sum(len(step.ids) for step in passes) for _, passes in runs]
    assert response.stats.steps > 2
    assert rows[0] > 2 * min(rows)
    assert max(rows[1:8]) < rows[0]


def test_everything_is_computed_anew_at_intervals(
    open_family: Callable[[str], Runtime], record_calls: Callable[..., list[Any]]
) -> None:
    runs = record_calls(Runtime, "run")
    run(denoise(open_family("llada"), ask_after_return({"max_tokens": 20}, quality=1.0), cache="dual", lengths="fixed"))
    rows = [sum(len(step.ids) for step in passes) for _, passes in runs]
    whole = [step for step, num_rows in enumerate(rows) if num_rows == rows[0]]
    assert whole == [0, 8, 16]


def test_a_cache_that_does_not_fit_is_refused(open_family: Callable[[str], Runtime]) -> None:
    with pytest.raises(RequestError, match="none, prefix, dual"):
        run(denoise(open_family("llada"), ask_after_return(), cache="frozen"))
    with pytest.raises(RequestError, match="lengthens"):
        run(denoise(open_family("llada"), ask_after_return(), lengths="expand"))


def test_dreamon_grows_a_hole_token_by_token(open_family: Callable[[str], Runtime]) -> None:
    """Two expansions and then plain text: a canvas of 1 ends as one of 3."""
    runtime = open_family("dreamon")
    expand, letter = runtime.tokens.expand_id, runtime.loaded.tokenizer.encode("q")[0]
    assert expand is not None
    model = wanting(runtime, lambda step: expand if step <= 2 else letter)
    hole = {"draft": "z", "max_tokens": 8}
    events, response = run(denoise(model, ask_after_return(hole)))
    assert response.holes[0].text == "qqq"
    assert [event.holes[0].masked for event in events] == [1, 2, 3, 2, 1, 0]


def test_dreamon_does_not_grow_beyond_the_limit(open_family: Callable[[str], Runtime]) -> None:
    runtime = open_family("dreamon")
    expand = runtime.tokens.expand_id
    assert expand is not None
    _, response = run(denoise(wanting(runtime, lambda step: expand), ask_after_return({"max_tokens": 6})))
    assert response.stats.tokens <= 6
    assert response.holes[0].cut


def test_dreamon_does_not_grow_beyond_what_fits_beside_anchors(open_family: Callable[[str], Runtime]) -> None:
    runtime = open_family("dreamon")
    expand, small = runtime.tokens.expand_id, replace(runtime.loaded.config, max_hole=24)
    assert expand is not None
    runtime = replace(runtime, loaded=replace(runtime.loaded, config=small))
    hole = {"draft": "abcdefghij  ", "keep": [[0, 10]]}
    _, response = run(denoise(wanting(runtime, lambda step: expand), ask_after_return(hole)))
    assert response.stats.tokens == 14


def test_dreamon_deletes_the_rest_at_once(open_family: Callable[[str], Runtime]) -> None:
    """One deletion takes every later mask along, down to the least number of tokens that was asked for."""
    runtime = open_family("dreamon")
    delete, letter = runtime.tokens.delete_ids[0], runtime.loaded.tokenizer.encode("q")[0]
    model = wanting(runtime, lambda step: letter if step <= 2 else delete)
    events, response = run(denoise(model, ask_after_return({"max_tokens": 30})))
    assert len(events) < 30
    assert set(response.holes[0].text) <= {"q"}
    assert not response.holes[0].cut
    _, kept = run(denoise(wanting(runtime, lambda step: delete), ask_after_return({"max_tokens": 30, "min_tokens": 5})))
    assert kept.stats.tokens == 5
    _, nothing = run(denoise(wanting(runtime, lambda step: delete), ask_after_return(sampler="editing")))
    assert nothing.stats.tokens == 0, "nothing is left that it could edit"


def test_pickled_weights_are_refused(tmp_path: Path) -> None:
    folder = copy_checkpoint("dream", tmp_path)
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match="could run code"):
        load(folder)


def test_code_in_a_checkpoint_is_never_run(tmp_path: Path) -> None:
    folder = copy_checkpoint("dream", tmp_path, auto_map={"AutoModel": "modeling_dream.DreamModel"})
    (folder / "modeling_dream.py").write_text("raise SystemExit('this ran')\n")
    assert load(folder).num_parameters > 0
    assert not any(module.endswith("modeling_dream") for module in sys.modules)


def test_an_index_cannot_point_out_of_its_folder(tmp_path: Path) -> None:
    folder = copy_checkpoint("dream", tmp_path)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"lm_head.weight": "../x"}}))
    with pytest.raises(CheckpointError, match="outside"):
        load(folder)


def test_shards_are_read_as_one(tmp_path: Path) -> None:
    folder = copy_checkpoint("llada", tmp_path)
    tensors = load_file(folder / "model.safetensors")
    whole = load(folder).model.state_dict()
    names = sorted(tensors)
    parts = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for file, kept in parts.items():
        save_file({name: tensors[name] for name in kept}, folder / file)
    (folder / "model.safetensors").unlink()
    weight_map = {name: file for file, kept in parts.items() for name in kept}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    for name, value in load(folder).model.state_dict().items():
        assert torch.equal(value, whole[name])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "gpt2"}, "known types"),
        ({"rope_scaling": {"rope_type": "yarn"}}, "scaled rotary"),
        ({"use_sliding_window": True}, "sliding-window"),
        ({"hidden_act": "gelu"}, "gelu"),
        ({"intermediate_size": 65}, r"^blocks\.0\.mlp\..*, from model\..* has the shape \(64, 32\), not \(65, 32\)"),
        ({"num_hidden_layers": 3}, "lack"),
        ({"hidden_size": "wide"}, "not one of the family"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "sliding_attention"),
        ({"mlp_bias": True}, "biases in its MLPs"),
        ({"quantization_config": {"quant_method": "bitsandbytes"}}, "quantized"),
    ],
)
def test_what_is_not_computed_here_is_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    folder = copy_checkpoint("dream", tmp_path, **changes)
    with pytest.raises(CheckpointError, match=message):
        load(folder)


def test_a_broken_tokenizer_is_told_before_any_weight_is_read(tmp_path: Path) -> None:
    folder = copy_checkpoint("dream", tmp_path, num_hidden_layers=3)
    (folder / "tokenizer.json").write_text("{")
    with pytest.raises(CheckpointError, match="tokenizer"):
        load(folder)


def test_a_configuration_that_names_no_quantization_is_read(tmp_path: Path) -> None:
    assert load(copy_checkpoint("dream", tmp_path, quantization_config=None)).num_parameters > 0


def test_whole_numbers_are_no_weights(tmp_path: Path) -> None:
    folder = copy_checkpoint("dream", tmp_path)
    tensors = load_file(folder / "model.safetensors")
    name = "model.layers.0.self_attn.q_proj.weight"
    save_file({**tensors, name: tensors[name].to(torch.int8)}, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match="quantized"):
        load(folder)


@pytest.mark.parametrize("form", [{"type": "NFC"}, {"type": "Sequence", "normalizers": [{"type": "NFKC"}]}])
def test_text_comes_back_as_it_was(tmp_path: Path, form: dict[str, Any]) -> None:
    """Whatever Unicode form the tokenizer would bring it into: kept text is rebuilt from its ids."""
    folder = copy_checkpoint("dream", tmp_path)
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"normalizer": form}))
    tokenizer = read_hub_tokenizer(CheckpointFiles(folder), 320)
    text = "e\u0301 \u212b \u2126 \u1100\u1161 \ufb01"
    assert b"".join(map(tokenizer.token_bytes, tokenizer.encode(text))).decode() == text


TEMPLATE = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}]}
PLAIN = {"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A"}}, {"SpecialToken": {"id": "<s>"}}]}


@pytest.mark.parametrize(
    ("settings", "processor", "opening"),
    [
        ({}, None, []),
        ({}, TEMPLATE, [300]),
        ({}, {"type": "Sequence", "processors": [{"type": "ByteLevel"}, TEMPLATE]}, [300]),
        ({}, PLAIN, []),
        ({"add_bos_token": False}, TEMPLATE, []),
        ({"add_bos_token": True}, None, [300]),
    ],
)
def test_a_text_begins_as_its_tokenizer_begins_it(
    settings: dict[str, Any], processor: dict[str, Any] | None, opening: list[int], tmp_path: Path
) -> None:
    """Llama 3's tokenizer says it in a template alone."""
    tiny.write_tokenizer(tmp_path, "causal", ["<s>"])
    files = CheckpointFiles(tmp_path)
    files.__dict__["config"] = tiny.config_of("causal")
    files.tokenizer["post_processor"] = processor
    files.tokenizer_config.update(settings, bos_token="<s>")
    assert FAMILIES.find("causal").tokens(files).opening(None) == opening


def test_a_block_causal_variant_is_not_taken_for_a_bidirectional_one(tmp_path: Path) -> None:
    folder = copy_checkpoint("tiny-a2d", tmp_path)
    variant = folder.rename(folder.with_name("Qwen2.5-Coder-0.5B-Instruct-diffusion-bd3lm-v0.1"))
    assert find_family(CheckpointFiles(variant)).name == "tiny-a2d-bd3lm"


def test_a_folder_has_a_name_from_within(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "D2F_Dream_Base"
    tiny.make_random(folder, FAMILIES.find("dream"))
    monkeypatch.chdir(folder)
    assert CheckpointFiles(Path()).name == folder.name


def test_a_stored_head_goes_before_a_tied_one(tmp_path: Path) -> None:
    """As in tiny-a2d, whose configuration says tied and whose weights have both."""
    folder = copy_checkpoint("tiny-a2d", tmp_path, tie_word_embeddings=True)
    assert load(folder).model.transformer.head is not None
    tied = tmp_path / "tied"
    tiny.make_random(tied, FAMILIES.find("opendcoder"))
    assert load(tied).model.transformer.head is None


def test_a_tokenizer_of_vocab_and_merges_is_read_as_qwens(tmp_path: Path) -> None:
    """Digits stand singly; a word takes its space; nothing is normalised; a merge may begin with a hash."""
    bytes_of = byte_of_character()
    vocabulary = {character: index for index, character in enumerate(bytes_of)}
    merges = [("d", "e"), ("de", "f"), ("\u0120", "x"), ("1", "2"), ("#", "#"), ("##", "##")]
    for left, right in merges:
        vocabulary[left + right] = len(vocabulary)
    (tmp_path / "vocab.json").write_text(json.dumps(vocabulary))
    (tmp_path / "merges.txt").write_text("#version: 0.2\n" + "\n".join(" ".join(pair) for pair in merges) + "\n")
    (tmp_path / "config.json").write_text("{}")
    tokenizer = read_hub_tokenizer(CheckpointFiles(tmp_path), 300)
    ids = tokenizer.encode("def x12####")
    assert [tokenizer.token_bytes(index) for index in ids] == [b"def", b" x", b"1", b"2", b"####"]
    assert tokenizer.token_bytes(299) == b""


@pytest.mark.parametrize("sampler", list(SAMPLERS))
def test_every_sampler_keeps_the_promises_of_a_fill(sampler: str, open_family: Callable[[str], Runtime]) -> None:
    """Anchors stay, no mask is left, the step bound holds, and the same seed gives the same text."""
    hole = {"draft": "ab    yz", "keep": [[0, 2], [6, 8]], "min_tokens": 6, "max_tokens": 6}
    request = ask_after_return(hole, sampler=sampler, temperature=0.7, seed=3, steps=5)
    runtime = open_family("llada")
    events, first = run(denoise(runtime, request))
    again = run(denoise(runtime, request))[1]
    assert first.holes == again.holes
    assert first.holes[0].text.startswith("ab") and first.holes[0].text.endswith("yz")
    assert first.stats.steps <= 5
    assert first.stats.tokens == 6
    assert all(event.holes[0].text.startswith("ab") for event in events)


@pytest.mark.parametrize(
    ("factor", "expected"),
    [(16.0, [13335.2149, 690.7023, 11.1142, 0.0776]), (0.25, [13335.2149, 4257.4438, 711.3118, 4.9638])],
)
def test_yarn_stretches_what_turns_slowly_as_the_transformers_library_does(
    factor: float, expected: list[float]
) -> None:
    """Nemotron-Labs-Diffusion's 8B and its 3B base: by a millionth of a turn, dimensions 20, 30, 40 and 63 of 64."""
    config = TransformerConfig(8, 512, 1, 4, 4, 128, 8, rope_base=1e6, yarn=Yarn(factor, 16384))
    found = 1e6 * config.frequencies(torch.device("cpu"))[[20, 30, 40, 63]]
    assert found.tolist() == pytest.approx(expected, rel=1e-3)
