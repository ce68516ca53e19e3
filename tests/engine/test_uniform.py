"""Models without a mask token: what is not settled is drawn anew each step, what stands behind a hole is clamped."""

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.engine import tiny
from tests.engine.in_process import denoise, run
from torch import Tensor

from midfill_engine.checkpoint_files import CheckpointError, CheckpointFiles
from midfill_engine.errors import RequestError
from midfill_engine.families import find_family
from midfill_engine.families.diffusiongemma import DIFFUSION_GEMMA, read_shape
from midfill_engine.loading import canvas_model
from midfill_engine.loading.canvas_model import CanvasModel, CanvasPass
from midfill_engine.loading.runtime import Runtime, load_runtime
from midfill_engine.models.family import ModelConfig
from midfill_engine.samplers import SAMPLERS
from midfill_engine.tokens.tokenizer import read_hub_tokenizer
from midfill_engine.wire import InfillRequest, InfillResponse

BOS, EOS = 302, 301
FITTING = [name for name in SAMPLERS if not SAMPLERS.find(name).takes_back]


class Scripted:
    """In the library's place: sure of `letter` at every position whose predecessor is right, else of nothing much."""

    def __init__(self, letter: str, sureness: float) -> None:
        self.letter, self.sureness = ord(letter), sureness
        self.seen: list[tuple[list[int], bool]] = []
        self.contexts: list[list[int]] = []
        weight = torch.zeros(320, 4)
        decoder = SimpleNamespace(embed_tokens=SimpleNamespace(weight=weight))
        self.model = SimpleNamespace(decoder=decoder, encoder=self._encode)

    def _encode(self, input_ids: Tensor) -> SimpleNamespace:
        self.contexts.append(input_ids[0].tolist())
        return SimpleNamespace(past_key_values="past")

    def __call__(self, past_key_values: str, decoder_input_ids: Tensor, self_conditioning_logits: Any) -> Any:
        assert past_key_values == "past"
        ids = decoder_input_ids[0].tolist()
        self.seen.append((ids, self_conditioning_logits is not None))
        scores = torch.zeros(1, len(ids), 320)
        for place in range(len(ids)):
            is_next = place == 0 or ids[place - 1] == self.letter
            scores[0, place, self.letter] = self.sureness if is_next else 1.0
        return SimpleNamespace(logits=scores)


class RenamedScripted(Scripted):
    """As the library is from version 5.24 on."""

    def _encode(self, input_ids: Tensor) -> SimpleNamespace:
        return SimpleNamespace(cache=super()._encode(input_ids).past_key_values)

    def __call__(self, cache: str, decoder_input_ids: Tensor, self_conditioning_logits: Any) -> Any:  # type: ignore[override]
        return super().__call__(cache, decoder_input_ids, self_conditioning_logits)


def open_scripted(
    folder: Path, letter: str = "q", sureness: float = 40.0, canvas_length: int = 32, kind: type[Scripted] = Scripted
) -> Runtime:
    tiny.write_tokenizer(folder, DIFFUSION_GEMMA.name)
    files = CheckpointFiles(folder)
    files.__dict__["config"] = tiny.config_of(DIFFUSION_GEMMA.name)
    config = ModelConfig(read_shape(files.config), "scripted", 200, canvas_length // 2)
    inner, tokenizer = kind(letter, sureness), read_hub_tokenizer(files, 320)
    model = CanvasModel(inner, tokenizer, config, 0, files, canvas_length, 48, 0.4, 0.8, 0.005)
    runtime = Runtime.of(model, family=DIFFUSION_GEMMA)
    return runtime


def ask(hole: dict[str, object] | None = None, behind: str = "\n\nf(1)\n", **options: object) -> InfillRequest:
    segments = [{"text": "x = "}, {"hole": hole or {"max_tokens": 6, "min_tokens": 6}}, {"text": behind}]
    return InfillRequest.model_validate({"segments": segments, **options})


@pytest.mark.parametrize("kind", [Scripted, RenamedScripted])
def test_what_is_settled_stays_and_the_rest_is_drawn_anew(kind: type[Scripted], tmp_path: Path) -> None:
    """From left to right here; it ends when nothing changed and the model is sure, before the steps do."""
    runtime = open_scripted(tmp_path, kind=kind)
    events, response = run(denoise(runtime, ask(), lengths="fixed"))
    seen = runtime.loaded.model.seen
    assert runtime.loaded.model.contexts == [[BOS, *b"x = "]]
    assert response.holes[0].text == "qqqqqq"
    assert response.holes[0].confidence == pytest.approx([1.0] * 6)
    assert len(seen) == response.stats.steps < 48 and response.stats.forwards == len(seen) + 1
    assert [shown for _, shown in seen] == [False] + [True] * (len(seen) - 1)  # self-conditioning from the second on
    assert all(ids[6:] == [*b"\n\nf(1)\n", EOS] for ids, _ in seen)  # clamped
    assert seen[0][0][:6] != seen[1][0][:6] and seen[-1][0][:5] == [ord("q")] * 5
    assert events[-1].holes[0].masked == 0 and events[1].holes[0].masked > 0


def test_an_unsure_model_stops_at_the_bound(tmp_path: Path) -> None:
    runtime = open_scripted(tmp_path, sureness=1.5)
    assert run(denoise(runtime, ask(), lengths="fixed"))[1].stats.steps == 48
    assert run(denoise(runtime, ask(steps=3), lengths="fixed"))[1].stats.steps == 3


@pytest.mark.parametrize("sampler", FITTING)
def test_the_promises_of_a_fill(sampler: str, tmp_path: Path) -> None:
    runtime = open_scripted(tmp_path, sureness=3.0)
    hole = {"draft": "ab    yz", "keep": [[0, 2], [6, 8]], "min_tokens": 4, "max_tokens": 4, "forbid": ["q"]}
    asked = ask(hole, sampler=sampler, seed=5, steps=6)
    events, first = run(denoise(runtime, asked))
    assert run(denoise(runtime, asked))[1].holes == first.holes
    text = first.holes[0].text
    assert text.startswith("ab") and text.endswith("yz") and "q" not in text
    assert first.stats.steps <= 6 and all(event.holes[0].text.startswith("ab") for event in events)


def test_several_holes_share_a_canvas(tmp_path: Path) -> None:
    runtime = open_scripted(tmp_path, sureness=2.0)
    request = ask({"max_tokens": 2, "min_tokens": 2}, " + ")
    two = request.model_copy(update={"segments": [*request.segments, *request.segments[1:]]})
    _, response = run(denoise(runtime, two, lengths="fixed"))
    assert [len(hole.text) for hole in response.holes] == [2, 2]
    ids = runtime.loaded.model.seen[0][0]
    assert ids[2:5] == list(b" + ") and ids[7:] == [*b" + ", EOS]
    far = ask(behind="y" * 40)
    apart = far.model_copy(update={"segments": [*far.segments, *far.segments[1:]]})
    with pytest.raises(RequestError, match="32 tokens of a canvas"):
        run(denoise(runtime, apart, lengths="fixed"))


def test_what_the_canvas_has_no_room_for_is_cut(tmp_path: Path) -> None:
    runtime = open_scripted(tmp_path)
    run(denoise(runtime, ask(behind="y" * 99), lengths="fixed"))
    assert len(runtime.loaded.model.seen[0][0]) == 32


def test_alternatives_share_the_context(tmp_path: Path) -> None:
    runtime = open_scripted(tmp_path, sureness=2.0)
    _, response = run(denoise(runtime, ask(n=3), lengths="candidates"))
    assert len(response.alternatives) == 2 and len(runtime.loaded.model.contexts) == 1
    alone = run(denoise(runtime, ask(), lengths="fixed"))[1]
    assert run(denoise(runtime, ask(n=1), lengths="fixed"))[1].holes == alone.holes


def test_what_needs_a_mask_is_refused(tmp_path: Path) -> None:
    runtime = open_scripted(tmp_path)
    with pytest.raises(RequestError, match="mask token"):
        run(denoise(runtime, ask(sampler="p2")))
    with pytest.raises(RequestError, match="masks"):
        run(denoise(runtime, ask({"max_tokens": 6}), lengths="calibrated"))
    with pytest.raises(RequestError, match="does not fit"):
        run(denoise(runtime, ask(), cache="dual"))


def test_without_the_library_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(CheckpointError, match="pip install"):
        tiny.make_canvas(tmp_path)


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("transformers", minversion="5.8")
    folder = tmp_path_factory.mktemp("gemma")
    tiny.make_canvas(folder)
    return folder


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_the_librarys_own_class_fills(real: Path, dtype: str) -> None:
    runtime = load_runtime(str(real), "cpu", dtype=dtype)
    assert find_family(CheckpointFiles(real)) is DIFFUSION_GEMMA and isinstance(runtime.loaded, CanvasModel)

    def fill(behind: str) -> list[InfillResponse]:  # random weights may say nothing but the end of text
        return [run(denoise(runtime, ask(seed=seed, behind=behind), lengths="fixed"))[1] for seed in (1, 2, 3)]

    first, again, other = (
        [response.holes[0] for response in fill(behind)] for behind in ("\n\nf(1)\n", "\n\nf(1)\n", "zzzzzz")
    )
    assert any(hole.confidence for hole in first) and first == again
    assert first != other  # it sees what stands behind


def test_a_missing_tensor_is_not_drawn_at_random(real: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(real, tmp_path / "torn")
    tensors = load_file(folder / "model.safetensors")
    lost = next(name for name in tensors if ".layers.1." in name)
    save_file({name: value for name, value in tensors.items() if name != lost}, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match="lack"):
        canvas_model.load(folder)


def test_a_setting_of_zero_is_not_a_missing_one(real: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(real, tmp_path / "cold")
    settings = {"t_min": 0, "t_max": None, "confidence_threshold": 0.0}
    (folder / "generation_config.json").write_text(json.dumps(settings))
    model = canvas_model.load(folder)
    assert (model.t_min, model.t_max, model.stop_entropy, model.num_steps) == (0.0, 0.8, 0.0, 48)


def test_scores_of_a_canvas_are_those_of_the_library(real: Path) -> None:
    """Context once, canvas over its keys: as the library computes both together, from its own loading."""
    library: Any = pytest.importorskip("transformers")
    own = library.DiffusionGemmaForBlockDiffusion.from_pretrained(real, dtype=torch.float32).eval()
    model = canvas_model.load(real)
    context, canvas = torch.randint(0, 256, (20,)), torch.randint(0, 256, (12,))
    past = model.run(CanvasPass(context))
    first = model.run(CanvasPass(canvas, past))
    second = model.run(CanvasPass(canvas, past, first))
    with torch.inference_mode():
        expected = own(input_ids=context[None], decoder_input_ids=canvas[None]).logits[0]
        conditioned = own(
            input_ids=context[None], decoder_input_ids=canvas[None], self_conditioning_logits=expected[None]
        ).logits[0]
    for ours, theirs in ((first, expected), (second, conditioned)):
        assert (ours - theirs).abs().max() / theirs.abs().max() < 1e-4
    assert (conditioned - expected).abs().max() > 1e-3


def test_passes_of_canvases_are_computed_one_by_one(tmp_path: Path) -> None:
    runtime = open_scripted(tmp_path)
    passes = [CanvasPass(torch.arange(3), "past"), CanvasPass(torch.arange(5), "past")]
    found: list[Any] = runtime.run(passes)
    assert [len(scores) for scores in found] == [3, 5]
    assert replace(passes[0], past=None).past is None
