"""Samplers, length policies, token masks, decoding: the parts of a fill, each by itself."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from midfill_engine.caches import CACHES
from midfill_engine.canvas import decode, merge
from midfill_engine.lengths import LENGTHS, HoleNeed, Lengths, LengthScores
from midfill_engine.models.registry import FAMILIES
from midfill_engine.registry import UnknownName
from midfill_engine.samplers import SAMPLERS, Proposals, StepState
from midfill_engine.vocabulary import Vocabulary


@pytest.mark.parametrize("registry", [SAMPLERS, CACHES, LENGTHS, FAMILIES], ids=lambda registry: registry.kind)
def test_an_unknown_name_lists_the_known_ones(registry: object) -> None:
    with pytest.raises(UnknownName) as caught:
        registry.find("nonsense")  # type: ignore[attr-defined]
    assert all(name in str(caught.value) for name in registry)  # type: ignore[attr-defined]


def state(
    confidence: list[list[float]], masked: list[list[int]], step: int, num_steps: int, quality: float
) -> StepState:
    values = torch.tensor(confidence)
    proposals = Proposals(torch.zeros_like(values, dtype=torch.int64), values)
    return StepState(proposals, torch.tensor(masked, dtype=torch.bool), step, num_steps, quality)


def test_threshold_settles_what_is_sure_and_at_least_one() -> None:
    found = SAMPLERS.find("threshold")().decide(
        state([[0.95, 0.1, 0.92, 0.99], [0.2, 0.3, 0.1, 0.9]], [[1, 1, 1, 0], [1, 1, 1, 0]], 1, 99, 0.8)
    )
    assert found.settle.tolist() == [[True, False, True, False], [False, True, False, False]]


def test_topk_settles_equally_many_a_step() -> None:
    found = SAMPLERS.find("topk")().decide(state([[0.1, 0.4, 0.3, 0.2]], [[1, 1, 1, 1]], 1, 2, 0.5))
    assert found.settle.tolist() == [[False, True, True, False]]


@given(st.data())
def test_every_sampler_settles_masked_positions_only_and_enough_of_them(data: st.DataObject) -> None:
    sampler = SAMPLERS.find(data.draw(st.sampled_from(list(SAMPLERS))))()
    rows, width = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 8))
    confidence = data.draw(
        st.lists(st.lists(st.floats(0, 1), min_size=width, max_size=width), min_size=rows, max_size=rows)
    )
    masked = data.draw(
        st.lists(st.lists(st.integers(0, 1), min_size=width, max_size=width), min_size=rows, max_size=rows)
    )
    num_steps = data.draw(st.integers(1, 8))
    step = data.draw(st.integers(1, num_steps))
    shown = state(confidence, masked, step, num_steps, data.draw(st.floats(0, 1)))
    settle = sampler.decide(shown).settle
    assert not (settle & ~shown.masked).any()
    assert (settle.sum(dim=1) * (num_steps - step + 1) >= shown.masked.sum(dim=1)).all()


needs = st.builds(
    HoleNeed,
    hints=st.lists(st.none() | st.integers(1, 40), min_size=1, max_size=4).map(tuple),
    anchored_tokens=st.integers(0, 20),
    min_tokens=st.integers(0, 8),
    max_tokens=st.integers(8, 60),
    has_limit=st.booleans(),
)


def search(name: str, holes: list[HoleNeed], scores: LengthScores | None, best: int = 0) -> list[Lengths]:
    """Runs a policy against a model that is surest at `best` tokens a hole."""
    steps = LENGTHS.find(name).search(holes, scores)
    answer: list[list[float]] | None = None
    while True:
        try:
            asked = steps.send(answer)  # type: ignore[arg-type]
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        answer = [[0.01 + (sum(lengths) == best) for lengths in canvas] for canvas in asked]


@given(st.sampled_from(list(LENGTHS)), st.lists(needs, min_size=1, max_size=3), st.booleans())
def test_every_policy_keeps_to_the_bounds(name: str, holes: list[HoleNeed], has_scores: bool) -> None:
    scores = LengthScores((0, 4, 16, 64), torch.randn(len(holes), 4).log_softmax(-1)) if has_scores else None
    canvases = search(name, holes, scores)
    assert canvases
    for canvas in canvases:
        for need, lengths in zip(holes, canvas, strict=True):
            assert len(lengths) == len(need.hints)
            assert all(length >= 1 for length in lengths)
            assert need.min_tokens <= sum(lengths) <= max(need.max_tokens, len(lengths))


def test_the_learned_length_covers_most_of_the_probability() -> None:
    need = HoleNeed((None,), 0, 0, 200, has_limit=False)
    scores = LengthScores((4, 16, 64), torch.tensor([[0.5, 0.3, 0.2]]).log())
    assert search("learned", [need], scores) == [[[16]]]


def test_a_fixed_canvas_is_as_long_as_asked() -> None:
    need = HoleNeed((None, 3), 2, 0, 9, has_limit=True)
    assert search("fixed", [need], None) == [[[6, 3]]]


@pytest.mark.parametrize("best", [1, 8, 12, 32, 64])
def test_the_calibrated_search_finds_where_the_model_is_sure(best: int) -> None:
    need = HoleNeed((None,), 0, 0, 200, has_limit=False)
    ((lengths,),) = search("calibrated", [need], None, best)
    assert sum(lengths) == best


def test_candidates_are_several_canvases_within_the_limit() -> None:
    need = HoleNeed((None,), 0, 0, 10, has_limit=True)
    assert search("candidates", [need], None) == [[[4]], [[8]], [[10]]]


PIECES = [b"", b"", b"a", b" a", b"\r", b"\n", b"\n  ", b"\x00", b"'''", b"\xc3"]


def test_masks_follow_the_bytes_of_tokens() -> None:
    vocabulary = Vocabulary(PIECES, special_ids=[0, 1], delete_id=1)

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


def test_neighbouring_ranges_are_joined() -> None:
    assert merge([(0, 2), (2, 2), (2, 3), (5, 6), (6, 6)]) == [(0, 3), (5, 6)]
