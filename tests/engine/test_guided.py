"""Guided diffusion: a small autoregressive model agrees with proposals, and the sampler settles them at once."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.engine.test_denoise import run

from midfill_engine.checkpoint_files import CheckpointError
from midfill_engine.denoising.denoise import denoise
from midfill_engine.errors import RequestError, StartError
from midfill_engine.families import FAMILIES
from midfill_engine.loading import hub
from midfill_engine.loading.guide import SUPERVISORS, Guide, Supervision, load_guide
from midfill_engine.loading.runtime import Runtime, load_runtime
from midfill_engine.models.packed import Pass, Result
from midfill_engine.samplers import SAMPLERS
from midfill_engine.wire import InfillRequest


def open_guided(family: str, folder: Path) -> Runtime:
    hub.make_random(folder / "model", FAMILIES.find(family))
    hub.make_random(folder / "guide", SUPERVISORS["qwen2"])
    return load_runtime(str(folder / "model"), "cpu", guide=str(folder / "guide"))


@pytest.fixture(scope="module")
def guided(tmp_path_factory: pytest.TempPathFactory) -> Runtime:
    return open_guided("llada", tmp_path_factory.mktemp("llada"))


@pytest.fixture(scope="module")
def guide(tmp_path_factory: pytest.TempPathFactory) -> Guide:
    folder = tmp_path_factory.mktemp("guide")
    hub.make_random(folder / "model", FAMILIES.find("llada"))
    hub.make_random(folder / "guide", SUPERVISORS["qwen3"])
    found = load_runtime(str(folder / "model"), "cpu", guide=str(folder / "guide")).guide
    assert found is not None
    return found


def request(sampler: str = "guided:threshold", holes: int = 1, **options: object) -> InfillRequest:
    segments: list[object] = [{"text": "def f(a):\n    return "}]
    for _ in range(holes):
        segments += [{"hole": {"draft": "ab    yz", "keep": [[0, 2], [6, 8]], "max_tokens": 6}}, {"text": "\n\nf(1)\n"}]
    return InfillRequest.model_validate({"segments": segments, "sampler": sampler, **options})


def saying(runtime: Runtime, share: float) -> Runtime:
    """The supervisor gives every proposal `share` of what it gives its own best."""

    class Saying(Runtime):
        def run(self, passes: list[Pass]) -> list[Result]:
            found = []
            for step, result in zip(passes, super().run(passes), strict=True):
                if step.by_guide:
                    assert result.chosen is not None
                    chosen = replace(result.chosen, asked=share * result.chosen.confidence)
                    result = replace(result, chosen=chosen)
                found.append(result)
            return found

    return Saying(**{name: getattr(runtime, name) for name in Runtime.__dataclass_fields__})


@pytest.mark.parametrize("family", ["dream", "dreamon", "llada", "sdar"])
def test_what_the_supervisor_agrees_with_is_settled_at_once(family: str, tmp_path: Path) -> None:
    """Without its agreement it takes what the sampler takes alone."""
    guided = open_guided(family, tmp_path)
    alone = run(denoise(guided, request("threshold", quality=1.0), lengths="fixed"))[1]
    nodding = run(denoise(saying(guided, 1.0), request(quality=1.0), lengths="fixed"))[1]
    silent = run(denoise(saying(guided, 0.5), request(quality=1.0), lengths="fixed"))[1]
    assert silent.holes == alone.holes and silent.stats.steps == alone.stats.steps
    assert nodding.stats.steps < alone.stats.steps


def test_the_dial_says_how_much_agreement_is_enough(guided: Runtime) -> None:
    half = saying(guided, 0.5)
    fast = run(denoise(half, request(quality=0.5), lengths="fixed"))[1]
    slow = run(denoise(half, request(quality=0.6), lengths="fixed"))[1]
    assert fast.stats.steps < slow.stats.steps


@pytest.mark.parametrize("sampler", list(SAMPLERS))
def test_every_guided_sampler_keeps_the_promises_of_a_fill(sampler: str, guided: Runtime) -> None:
    asked = request(f"guided:{sampler}", 2, temperature=0.7, seed=3, steps=5)
    events, first = run(denoise(guided, asked))
    assert run(denoise(guided, asked))[1].holes == first.holes
    assert all(hole.text.startswith("ab") and hole.text.endswith("yz") for hole in first.holes)
    assert first.stats.steps <= 5
    assert all(hole.masked == 0 for hole in events[-1].holes)


def test_the_supervisor_reads_causally_and_its_prompt_once(guide: Guide) -> None:
    """What it says of a proposal is what its transformer says after the same line, whatever stands behind."""
    supervision = Supervision(guide, guide.prompt([[97, 98, 99], [100]], frozenset()))
    transformer = guide.loaded.model.transformer
    for holes in ([[(0, 101, True), (1, 102, False), (2, 103, True)]], [[(0, 101, False), (1, 104, True)]]):
        question = supervision.ask(holes)
        assert question is not None and question.choice is not None and question.choice.asked is not None
        (result,) = guide.run([question])
        assert result.chosen is not None and result.chosen.asked is not None
        supervision.agreed(result, 1.0, 3)
        line = [*supervision.prompt.start, *(token for _, token, _ in holes[0])]
        with torch.inference_mode():
            hidden, _ = transformer(torch.tensor([line]), torch.arange(len(line))[None], causal=True)
            scores = transformer.logits(hidden)[0].log_softmax(dim=-1)
        start = len(supervision.prompt.start)
        expected = [scores[start + place - 1, token].exp().item() for place, token, is_draft in holes[0] if is_draft]
        rounding = max(1e-4, 4 * torch.finfo(guide.loaded.weight.dtype).eps)
        assert result.chosen.asked.tolist() == pytest.approx(expected, rel=rounding)
    assert len(question.ids) == 2  # the prompt's last token and one of the hole


def test_with_markers_it_reads_the_text_behind_before_it_writes(guide: Guide) -> None:
    assert guide.markers is not None
    prefix, suffix, middle = guide.markers.prefix, guide.markers.suffix, guide.markers.middle
    assert guide.prompt([[1, 2, 9], [3, 9]], frozenset({9})).start == [prefix, 1, 2, suffix, 3, middle]
    assert guide.prompt([[1], [2], [3]], frozenset()).start == [1]
    assert replace(guide, markers=None, opening=(7,)).prompt([[1], [2]], frozenset()).start == [7, 1]


def test_nothing_is_asked_behind_what_is_unknown(guide: Guide) -> None:
    supervision = Supervision(guide, guide.prompt([[97], []], frozenset()))
    assert supervision.ask([[(0, -1, True), (1, 98, True)]]) is None
    question = supervision.ask([[(0, 99, True), (1, -1, True), (2, 98, True)]])
    assert question is not None and supervision.asked == [0]
    empty = Supervision(replace(guide, markers=None), guide.prompt([[], []], frozenset()))
    assert empty.ask([[(0, 99, True)]]) is None


def test_an_engine_without_supervisor_says_so(guided: Runtime) -> None:
    with pytest.raises(RequestError, match="supervisor"):
        run(denoise(replace(guided, guide=None), request()))
    with pytest.raises(RequestError, match="threshold"):
        run(denoise(guided, request("guided:nonsense")))


def test_another_vocabulary_is_refused(guided: Runtime, tmp_path: Path) -> None:
    hub.make_random(tmp_path / "other", SUPERVISORS["llama"])
    tokenizer = tmp_path / "other" / "tokenizer.json"
    tokenizer.write_text(tokenizer.read_text().replace('"a": 97', '"a": 98', 1).replace('"b": 98', '"b": 97', 1))
    with pytest.raises(CheckpointError, match="another vocabulary"):
        load_guide(tmp_path / "other", guided.vocabulary, torch.device("cpu"), torch.float32, "torch")
    hub.make_random(tmp_path / "diffusion", FAMILIES.find("llada"))
    with pytest.raises(StartError, match="llama, qwen2, qwen3"):
        load_runtime(str(tmp_path / "diffusion"), "cpu", guide=str(tmp_path / "diffusion"))
