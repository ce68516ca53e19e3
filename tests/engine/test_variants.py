"""Samplers, length policies, token masks, decoding: the parts of a fill, each by itself."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from midfill_engine.caches import CACHES
from midfill_engine.families import FAMILIES
from midfill_engine.lengths import LENGTHS, LengthBounds, Lengths, LengthScores
from midfill_engine.registry import UnknownName
from midfill_engine.samplers import SAMPLERS, Predictions, StepState
from midfill_engine.tokens.pieces import decode, merge
from midfill_engine.tokens.vocabulary import Vocabulary


@pytest.mark.parametrize("registry", [SAMPLERS, CACHES, LENGTHS, FAMILIES], ids=lambda registry: registry.kind)
def test_an_unknown_name_lists_the_known_ones(registry: object) -> None:
    with pytest.raises(UnknownName) as caught:
        registry.find("nonsense")  # type: ignore[attr-defined]
    assert all(name in str(caught.value) for name in registry)  # type: ignore[attr-defined]


def state(confidence: list[float], masked: list[int], step: int, num_steps: int, quality: float) -> StepState:
    values = np.array(confidence, dtype=np.float32)
    ids = np.zeros(len(values), dtype=np.int64)
    fixed = np.zeros(len(values), dtype=bool)
    is_masked = np.array(masked, dtype=bool)
    return StepState(Predictions(ids, values), ids, is_masked, fixed, sum(masked), step, num_steps, quality)


@pytest.mark.parametrize(
    ("confidence", "settled"), [([0.95, 0.1, 0.92, 0.99], [1, 0, 1, 0]), ([0.2, 0.3, 0.1, 0.9], [0, 1, 0, 0])]
)
def test_threshold_settles_what_is_sure_and_at_least_one(confidence: list[float], settled: list[int]) -> None:
    found = SAMPLERS.find("threshold")().decide(state(confidence, [1, 1, 1, 0], 1, 99, 0.8))
    assert found.settle.tolist() == settled


@pytest.mark.parametrize(("fast", "quality", "settled"), [(0.5, 0.0, 2), (0.0, 0.0, 4), (0.0, 0.4, 3), (0.0, 1.0, 1)])
def test_a_model_says_how_sure_is_sure_where_the_dial_stands_at_0(fast: float, quality: float, settled: int) -> None:
    shown = replace(state([0.95, 0.4, 0.5, 0.1], [1, 1, 1, 1], 1, 99, quality), fast_threshold=fast)
    assert int(SAMPLERS.find("threshold")().decide(shown).settle.sum()) == settled


@pytest.mark.parametrize("name", ["threshold", "pipeline"])
def test_quality_1_settles_one_position_a_step_however_sure_the_model_is(name: str) -> None:
    assert float(torch.tensor([20.0, 0.0, 0.0]).softmax(dim=0)[0]) == 1.0  # not sure, but all that fp32 can tell
    found = SAMPLERS.find(name)().decide(state([1.0, 1.0, 1.0], [1, 1, 1], 1, 3, 1.0))
    assert int(found.settle.sum()) == 1


def test_topk_settles_equally_many_a_step() -> None:
    found = SAMPLERS.find("topk")().decide(state([0.1, 0.4, 0.3, 0.2], [1, 1, 1, 1], 1, 2, 0.5))
    assert found.settle.tolist() == [False, True, True, False]


@st.composite
def step_states(draw: st.DrawFn) -> StepState:
    """A row of a step that is not the last, with all that a sampler may ask for."""
    width = draw(st.integers(1, 24))
    confidence = np.array(draw(st.lists(st.floats(0.01, 1), min_size=width, max_size=width)), dtype=np.float32)
    masked = np.array(draw(st.lists(st.booleans(), min_size=width, max_size=width)))
    rng = np.random.default_rng(draw(st.integers(0, 9)))
    masked[draw(st.integers(0, width - 1))] = True
    num_steps = draw(st.integers(2, 30))
    return StepState(
        predictions=Predictions(rng.integers(0, 9, width), confidence, entropy=-np.log(confidence)),
        ids=rng.integers(0, 9, width),
        masked=masked,
        fixed=np.array(draw(st.lists(st.booleans(), min_size=width, max_size=width))) & ~masked,
        remaining=int(masked.sum()),
        step=draw(st.integers(1, num_steps - 1)),
        num_steps=num_steps,
        quality=draw(st.floats(0, 1)),
    )


@pytest.mark.parametrize("name", list(SAMPLERS))
@settings(max_examples=40, deadline=None)
@given(shown=step_states())
def test_every_sampler_settles_masked_positions_only_and_at_least_one(name: str, shown: StepState) -> None:
    decision = SAMPLERS.find(name)().decide(shown)
    assert not (decision.settle & ~shown.masked).any()
    assert decision.settle.any() or name == "p2"  # which keeps its schedule, whatever the step
    if decision.remask is not None:
        assert not (decision.remask & shown.masked).any()
        assert not (decision.remask & shown.fixed).any()


@pytest.mark.parametrize("name", list(SAMPLERS))
def test_the_dial_from_quality_to_speed(name: str) -> None:
    """At quality 0 no sampler takes more steps for the same predictions than at quality 1."""

    def count(quality: float) -> int:
        sampler = SAMPLERS.find(name)()
        width = 24
        values = np.random.default_rng(1).random(width, dtype=np.float32) * 0.6 + 0.4
        masked, fixed = np.ones(width, dtype=bool), np.zeros(width, dtype=bool)
        num_steps = max(1, sampler.count_steps(width, quality))
        ids = np.zeros(width, dtype=np.int64)
        predictions = Predictions(ids, values, -np.log(values))
        for step in range(1, num_steps + 1):
            shown = StepState(predictions, ids, masked, fixed, int(masked.sum()), step, num_steps, quality)
            decision = sampler.decide(shown)
            masked = masked & ~decision.settle
            if not masked.any():
                return step
        return num_steps

    assert count(0.0) <= count(1.0)


def test_the_entropy_bound_counts_all_but_the_largest() -> None:
    """Entropies 0.05, 0.08, 0.2, 1.0 with a bound of 0.15: the first three have 0.13 without their largest."""
    shown = state([0.9, 0.8, 0.7, 0.1], [1, 1, 1, 1], 1, 99, 0.8)
    entropy = np.array([0.2, 0.05, 1.0, 0.08], dtype=np.float32)
    shown = replace(shown, predictions=replace(shown.predictions, entropy=entropy))
    assert SAMPLERS.find("entropy-bound")().decide(shown).settle.tolist() == [True, True, False, True]


def test_a_pipeline_begins_a_block_when_the_one_before_is_under_way() -> None:
    confidence = [0.95] * 40
    begun = state(confidence, [1] * 40, 1, 99, 0.8)
    assert SAMPLERS.find("pipeline")().decide(begun).settle.nonzero()[0].max() == 15
    later = state(confidence, [0] * 2 + [1] * 38, 2, 99, 0.8)
    assert [SAMPLERS.find(name)().reach(later.masked) for name in ("pipeline", "threshold")] == [32, 0]
    assert SAMPLERS.find("pipeline")().decide(later).settle.nonzero()[0].max() == 31


needs = st.builds(
    LengthBounds,
    hints=st.lists(st.none() | st.integers(1, 40), min_size=1, max_size=4).map(tuple),
    anchored_tokens=st.integers(0, 20),
    min_tokens=st.integers(0, 8),
    max_tokens=st.integers(8, 60),
    has_limit=st.booleans(),
)


def search(name: str, holes: list[LengthBounds], scores: LengthScores | None, best: int = 0) -> list[Lengths]:
    """Runs a policy against a model that is surest at `best` tokens a hole."""

    async def measure(canvases: list[Lengths]) -> list[list[float]]:
        return [[0.01 + (sum(lengths) == best) for lengths in canvas] for canvas in canvases]

    return asyncio.run(LENGTHS.find(name).search(holes, scores, measure))


@given(st.sampled_from(list(LENGTHS)), st.lists(needs, min_size=1, max_size=3), st.booleans())
def test_every_policy_keeps_to_the_bounds(name: str, holes: list[LengthBounds], has_scores: bool) -> None:
    scores = LengthScores((0, 4, 16, 64), torch.randn(len(holes), 4).log_softmax(-1)) if has_scores else None
    canvases = search(name, holes, scores)
    assert canvases
    for canvas in canvases:
        for bounds, lengths in zip(holes, canvas, strict=True):
            assert len(lengths) == len(bounds.hints)
            assert all(length >= 1 for length in lengths)
            assert bounds.min_tokens <= sum(lengths) <= max(bounds.max_tokens, len(lengths))


@pytest.mark.parametrize(
    ("shares", "length"), [([0.5, 0.3, 0.2], 4), ([0.08, 0.5, 0.42], 16), ([0.05, 0.03, 0.92], 64)]
)
def test_the_learned_length_covers_its_share_of_the_probability(shares: list[float], length: int) -> None:
    bounds = LengthBounds((None,), 0, 0, 200, has_limit=False)
    scores = LengthScores((4, 16, 64), torch.tensor([shares]).log())
    assert search("learned", [bounds], scores) == [[[length]]]
    assert search("learned", [bounds], LengthScores((0, 16, 64), torch.tensor([[0.5, 0.3, 0.2]]).log())) == [[[1]]]


@pytest.mark.parametrize(
    ("hints", "lengths"), [((None, 3), [6, 3]), ((10**12, 2, 10**12), [3, 2, 4]), ((4, None, 9), [4, 1, 4])]
)
def test_a_fixed_canvas_is_as_long_as_asked(hints: tuple[int | None, ...], lengths: list[int]) -> None:
    bounds = LengthBounds(hints, 2, 0, 9, has_limit=True)
    assert search("fixed", [bounds], None) == [[lengths]]


@pytest.mark.parametrize("best", [1, 8, 12, 32, 64])
def test_the_calibrated_search_finds_where_the_model_is_sure(best: int) -> None:
    bounds = LengthBounds((None,), 0, 0, 200, has_limit=False)
    ((lengths,),) = search("calibrated", [bounds], None, best)
    assert sum(lengths) == best


def test_candidates_are_several_canvases_within_the_limit() -> None:
    bounds = LengthBounds((None,), 0, 0, 10, has_limit=True)
    assert search("candidates", [bounds], None) == [[[4]], [[8]], [[10]]]


PIECES = [b"", b"", b"a", b" a", b"\r", b"\n", b"\n  ", b"\x00", b"'''", b"\xc3"]


def test_masks_follow_the_bytes_of_tokens() -> None:
    vocabulary = Vocabulary(PIECES, special_ids=[0, 1], delete_ids=[1])

    def allowed(**rules: object) -> list[int]:
        return vocabulary.allowed(**rules).nonzero().flatten().tolist()  # type: ignore[arg-type]

    assert allowed() == [2, 3, 5, 6, 8, 9]
    assert allowed(may_delete=True) == [1, 2, 3, 5, 6, 8, 9]
    assert allowed(forbid=["\n", "''"]) == [2, 3, 9]
    assert allowed(leading="\n", may_delete=True) == [5, 6]
    assert allowed(leading=" ") == [3]


@given(st.text(max_size=20), st.data())
def test_text_cut_between_any_bytes_is_put_together(text: str, data: st.DataObject) -> None:
    raw = text.encode()
    cuts = [0, *sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=8))), len(raw)]
    pieces = [raw[start:end] for start, end in zip(cuts, cuts[1:], strict=False)]
    decoded, ranges = decode(pieces, "ignore")
    assert decoded == text
    assert [end for _, end in ranges[:-1]] == [start for start, _ in ranges[1:]]


def test_bytes_that_are_no_text_are_dropped_or_shown() -> None:
    pieces = [b"a", b"\xe2\x82", b"b", b"\xc3"]
    assert decode(pieces, "ignore") == ("ab", [(0, 1), (1, 1), (1, 2), (2, 2)])
    assert decode(pieces, "replace") == ("a\ufffdb\ufffd", [(0, 1), (1, 1), (1, 3), (3, 4)])


def test_neighboring_ranges_are_joined() -> None:
    assert merge([(0, 2), (2, 2), (2, 3), (5, 6), (6, 6)]) == [(0, 3), (5, 6)]
