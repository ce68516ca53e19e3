"""Prompts, trees and beams through the fused transformer against the same passes through torch's, at toy size."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from tests.engine import tiny
from tests.engine.in_process import complete, denoise, drain

from midfill_engine.causal import branches
from midfill_engine.causal.branches import Beam, read_prefix, score
from midfill_engine.causal.branches import Path as Written
from midfill_engine.families import FAMILIES
from midfill_engine.loading.pace import measure_pace
from midfill_engine.loading.runtime import Runtime, open_checkpoint
from midfill_engine.models import fused_branches
from midfill_engine.models.fused import Sizes
from midfill_engine.models.fused_runner import FusedRunner
from midfill_engine.models.packed import Pass, run_packed
from midfill_engine.wire import GivenText, HoleSegment, HoleSpec, InfillRequest, InfillResponse, TextSegment

TEXT = "def f(x):\n  return 0\n"
BUCKETS = (4, 8, 12, 20, 32)
SHAPE = {"hidden_size": 96, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 16, "num_hidden_layers": 2}


@pytest.fixture(autouse=True)
def _few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(branches, "READ_ROWS", 12)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Runtime, Runtime]:
    """The same model, computed by torch and by kernels. Three query heads share a key."""
    folder = tmp_path_factory.mktemp("causal") / "tiny"
    tiny.make_random(folder, FAMILIES.find("causal"), config=tiny.config_of("causal", **SHAPE))
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    plain, fused = (open_checkpoint(folder, device, torch.float32, "x", name) for name in ("torch", "kernels"))
    assert fused.fused is not None and plain.fused is None
    return plain, with_sizes(fused, Sizes(buckets=BUCKETS))


def with_sizes(fused: Runtime, sizes: Sizes) -> Runtime:
    return replace(fused, fused=FusedRunner(fused.loaded.model.transformer, fused.operators, sizes))


@pytest.fixture
def by_kernels(pair: tuple[Runtime, Runtime], monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The rows of each pass that went through the kernels; none may go through torch."""
    seen = list[int]()
    run = fused_branches.BranchRunner.run

    def watched(self: fused_branches.BranchRunner, passes: list[Pass]) -> list[fused_branches.Result]:
        seen.extend(len(step.ids) for step in passes)
        return run(self, passes)

    monkeypatch.setattr(fused_branches.BranchRunner, "run", watched)
    monkeypatch.setattr(FusedRunner, "_run_torch", lambda *_: pytest.fail("by torch"))
    for each in pair:
        each.prefixes.clear()
    yield seen


def both(pair: tuple[Runtime, Runtime], use: Callable[[Runtime], object]) -> None:
    """Asserts that numbers found by both runtimes agree."""
    ours, theirs = flatten(use(pair[1])), flatten(use(pair[0]))
    assert len(ours) == len(theirs) > 0
    torch.testing.assert_close(torch.tensor(ours), torch.tensor(theirs), rtol=1e-3, atol=1e-3)


def flatten(found: object) -> list[float]:
    if isinstance(found, torch.Tensor):
        return flatten(found.tolist())
    return [number for each in found for number in flatten(each)] if isinstance(found, list | tuple) else [found]  # type: ignore[list-item]


def test_a_prompt_is_read_in_parts_and_kept(pair: tuple[Runtime, Runtime], by_kernels: list[int]) -> None:
    def use(runtime: Runtime) -> object:
        encode = runtime.loaded.tokenizer.encode
        first, _ = complete(runtime, read_prefix(runtime, tuple(encode(TEXT))))
        second, known = complete(runtime, read_prefix(runtime, tuple(encode(TEXT[:-3] + "1, 2"))))
        last = [part[:, :, -1] for pair in second.keys_values for part in pair]
        return [first.next_logs, second.next_logs, float(known), *last]

    both(pair, use)
    assert by_kernels == [12, len(TEXT) - 12, 4]


def test_trees_are_scored(pair: tuple[Runtime, Runtime], by_kernels: list[int]) -> None:
    def use(runtime: Runtime) -> object:
        encode = runtime.loaded.tokenizer.encode
        texts = [encode(text) for text in ("ab\n", "ac\n", "xy", "ab\n")]
        prefix, _ = complete(runtime, read_prefix(runtime, tuple(encode("x ="))))
        ends = runtime.vocabulary.ending("\n")
        return complete(runtime, score(runtime, prefix, texts)), complete(runtime, score(runtime, prefix, texts, ends))

    both(pair, use)
    assert by_kernels == [3, 4, 7]


def test_a_beam_grows_beyond_its_first_room(
    pair: tuple[Runtime, Runtime], by_kernels: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two beams behind one prefix; texts that are only followed leave nothing behind."""
    monkeypatch.setattr("midfill_engine.causal.growing_caches.LEAST_ROOM", 8)

    def use(runtime: Runtime) -> object:
        encode, found = runtime.loaded.tokenizer.encode, list[object]()
        prefix, _ = complete(runtime, read_prefix(runtime, tuple(encode("x ="))))
        beams = [Beam(runtime, prefix) for _ in range(2)]
        for beam, texts in zip(beams, (("if x", "y"), ("for",)), strict=True):
            paths, logs = complete(runtime, beam.open([tuple(encode(text)) for text in texts]))
            for token in encode("a,"):
                grown = [Written((*path.ids, token), path.logs, path.places) for path in paths]
                paths, read = complete(runtime, beam.read(grown, [tuple(encode("+-"))] * len(paths)))
                found += [complete(runtime, beam.follow(paths, [encode("z1")] * len(paths))), *read]
            found += [logs, [path.logs for path in paths]]
        return found

    both(pair, use)
    assert len(by_kernels) == 11


def test_long_passes_go_through_torch_and_are_kept(pair: tuple[Runtime, Runtime]) -> None:
    plain, fused = pair

    def use(runtime: Runtime) -> object:
        encode = runtime.loaded.tokenizer.encode
        prefix, _ = complete(runtime, read_prefix(runtime, tuple(encode("x ="))))
        beam = Beam(runtime, prefix)
        paths, logs = complete(runtime, beam.open([tuple(encode("long text")), tuple(encode("y"))]))
        paths, read = complete(runtime, beam.read(paths))
        return logs, read, complete(runtime, beam.follow(paths, [encode("another"), encode("z")]))

    both((plain, with_sizes(fused, Sizes(buckets=BUCKETS, long_rows=6))), use)


def test_a_pass_has_the_same_bits_in_every_company(pair: tuple[Runtime, Runtime], by_kernels: list[int]) -> None:
    """Beside a pass that makes the step one of a larger bucket, whose memory begins as no number."""
    _, fused = pair
    encode = fused.loaded.tokenizer.encode
    prefix, _ = complete(fused, read_prefix(fused, tuple(encode("x ="))))
    other, _ = complete(fused, read_prefix(fused, tuple(encode("while"))))
    steps = []
    for behind, text in ((prefix, "abc"), (other, "several")):
        beam = Beam(fused, behind)
        paths, _ = complete(fused, beam.open([tuple(encode(text))]))
        steps.append(beam.read(paths, [tuple(encode("=1"))]).send(None).passes[0])
    together = fused.run(steps)
    for step, result in zip(steps, together, strict=True):
        assert isinstance(step, Pass) and step.stacks is not None and step.stacks.room is not None
        kept = step.stacks.room.clone()
        (alone,) = fused.run([step])
        assert torch.equal(alone.hidden, result.hidden) and torch.equal(step.stacks.room, kept)
        plain = fused_branches.unstack(replace(step))
        (expected,) = run_packed(fused.loaded.model.transformer, [plain], fused.operators)
        torch.testing.assert_close(result.hidden, expected.hidden, rtol=1e-3, atol=1e-3)


def test_a_step_without_room_is_made_anew(
    pair: tuple[Runtime, Runtime], by_kernels: list[int], record_calls: Callable[..., list[Any]]
) -> None:
    steps = record_calls(fused_branches.BranchStep, "__init__")
    fused = with_sizes(pair[1], Sizes(buckets=BUCKETS, runs=1, words=1))
    fused.free_memory()
    encode = fused.loaded.tokenizer.encode
    for text in ("x", "y" * 4, "z", "w" * 11):
        prefix, _ = complete(fused, read_prefix(fused, tuple(encode(text))))
        complete(fused, score(fused, prefix, [encode("ab")] * 2))
    made = [bucket for _, _, _, bucket, *_ in steps]
    assert made.count(4) == 2 and made.count(12) == 1


def test_the_pace_is_that_of_the_kernels(pair: tuple[Runtime, Runtime], by_kernels: list[int]) -> None:
    _, fused = pair
    transformer = fused.loaded.model.transformer
    pace = measure_pace(transformer, fused.operators, fused.run, fused.reads_stacks, num_rounds=1)
    assert pace.pass_s >= 0 and sorted(set(by_kernels)) == [5, 25]


def fill(runtime: Runtime, *segments: TextSegment | HoleSegment) -> InfillResponse:
    return drain(denoise(runtime, InfillRequest(segments=list(segments))))


@pytest.mark.timeout(900)
def test_fills_are_those_of_torch(pair: tuple[Runtime, Runtime], by_kernels: list[int]) -> None:
    """A line with proposals, and text around an anchor."""
    line = HoleSpec(max_tokens=4, forbid=["\n"], candidates=[GivenText(text="x + 1", certainty=0.5)])
    anchored = HoleSpec(draft="x(y", keep=[(1, 2)], forbid=["\n"])
    for spec in (line, anchored):
        request = (TextSegment(text="y = "), HoleSegment(hole=spec), TextSegment(text="\nz\n"))
        ours, theirs = fill(pair[1], *request), fill(pair[0], *request)
        assert [hole.text for hole in ours.holes] == [hole.text for hole in theirs.holes]
        for one, two in zip(ours.holes, theirs.holes, strict=True):
            torch.testing.assert_close(torch.tensor(one.confidence), torch.tensor(two.confidence), rtol=1e-2, atol=1e-3)
    assert by_kernels
