"""Copying: what the document repeats is mixed in as a distribution, and fills follow it."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from midfill_engine.denoising.denoise import denoise, drain
from midfill_engine.errors import RequestError
from midfill_engine.experts.base import NEIGHBOURS, neighbours_of
from midfill_engine.experts.copying import WEIGHT, Copier
from midfill_engine.loading import checkpoint
from midfill_engine.loading.runtime import Runtime, load_runtime
from midfill_engine.models.choice import SURE, Choice, Echo, choose
from midfill_engine.wire import HoleSegment, HoleSpec, InfillRequest, TextSegment

TEXT = st.lists(st.integers(0, 5), max_size=30)
IDS = st.lists(st.integers(0, 5), max_size=NEIGHBOURS).map(tuple)


def test_continuations_are_interpolated() -> None:
    echo = Copier.of([[1, 2, 3], [1, 2, 4]]).echo([((2,), ()), ((), ())])
    assert echo is not None
    share = WEIGHT / (1 + WEIGHT)  # two occurrences, two kinds
    assert echo.rows.tolist() == [0, 0] and echo.tokens.tolist() == [3, 4]
    assert echo.amounts.tolist() == pytest.approx([share / 2, share / 2])
    assert echo.kept.tolist() == pytest.approx([1 - share, 1.0])


def test_longer_neighbourhoods_count_for_more() -> None:
    copier = Copier.of([[1, 2, 3], [5, 2, 4], [6, 2, 4]])
    echo = copier.echo([((2, 1), ())])
    assert echo is not None
    amounts = dict(zip(echo.tokens.tolist(), echo.amounts.tolist(), strict=True))
    assert amounts[3] > amounts[4]


def test_the_right_side_speaks_too() -> None:
    echo = Copier.of([[7, 8, 9]]).echo([((), (9,))])
    assert echo is not None and echo.tokens.tolist() == [8]


def test_a_text_without_repetition_says_nothing() -> None:
    assert Copier.of([[1, 2, 3]]).echo([((4,), (5,))]) is None


@given(st.lists(TEXT, max_size=3), st.lists(st.tuples(IDS, IDS), min_size=1, max_size=5))
def test_a_row_is_a_distribution(texts: list[list[int]], sides: list[tuple[tuple[int, ...], tuple[int, ...]]]) -> None:
    echo = Copier.of(texts).echo(sides)
    if echo is not None:
        totals = echo.kept.index_put((echo.rows,), echo.amounts, accumulate=True)
        assert totals.tolist() == pytest.approx([1.0] * len(sides), abs=1e-5)
        assert (echo.amounts > 0).all() and (echo.kept > 0).all()


def test_neighbours_end_at_what_is_unknown() -> None:
    line = [1, 2, None, 3, 4, 5, 6, 7, 8]
    assert neighbours_of(line, 3, -1) == () and neighbours_of(line, 2, -1) == (2, 1)
    assert neighbours_of(line, 3, 1) == (4, 5, 6, 7)


def test_mixing_keeps_what_is_forbidden_out() -> None:
    allowed = torch.tensor([[True, True, False, True]])
    echo = Echo(torch.tensor([1, 1]), torch.tensor([2, 3]), torch.tensor([0.6, 0.3]), torch.tensor([1.0, 0.1]))
    scores = torch.tensor([[2.0, 0.0, 0.0, 0.0], [2.0, 0.0, 9.0, 0.0]])
    plain = Choice(allowed, torch.zeros(2, dtype=torch.int64))
    mixed = choose(scores, replace(plain, echo=echo))
    assert mixed.ids.tolist() == [0, 3]
    assert mixed.confidence[0] == pytest.approx(choose(scores, plain).confidence[0])
    own = scores[1].masked_fill(~allowed[0], -torch.inf).softmax(0)
    wanted = (0.1 * own[3] + 0.3) / (0.1 + 0.3)
    assert mixed.confidence[1] == pytest.approx(float(wanted))


@pytest.mark.parametrize(("score", "is_mixed"), [(2.0, True), (4.0, False)])
def test_nothing_is_mixed_in_where_the_model_is_sure(score: float, is_mixed: bool) -> None:
    scores = torch.tensor([[score, 0.0, 0.0, 0.0]])
    plain = Choice(torch.ones(1, 4, dtype=torch.bool), torch.zeros(1, dtype=torch.int64))
    echo = Echo(torch.tensor([0]), torch.tensor([3]), torch.tensor([0.8]), torch.tensor([0.2]))
    own, mixed = choose(scores, plain), choose(scores, replace(plain, echo=echo))
    assert (float(own.confidence) >= SURE) is not is_mixed
    assert mixed.ids.tolist() == [3 if is_mixed else 0]
    assert (mixed.confidence == pytest.approx(own.confidence)) is not is_mixed


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Runtime:
    folder: Path = tmp_path_factory.mktemp("random")
    checkpoint.make_random(folder)
    return load_runtime(str(folder), "cpu")


def fill(runtime: Runtime, experts: list[str] | None = None) -> str:
    line = "total = first + second\n"
    hole = HoleSpec(min_tokens=6, max_tokens=6)
    segments = [TextSegment(text=line * 4 + "total = fi"), HoleSegment(hole=hole), TextSegment(text="second\n" + line)]
    request = InfillRequest(segments=segments, quality=1.0, experts=experts)
    return drain(denoise(runtime, request, lengths="fixed")).holes[0].text


def test_a_fill_follows_the_document(runtime: Runtime) -> None:
    assert fill(runtime, ["copying"]) == "rst + " != fill(runtime, [])
    silent = replace(runtime, family=replace(runtime.family, experts=()))
    assert fill(silent) == fill(runtime, []) and fill(silent, ["copying"]) == "rst + "


def test_an_unknown_expert_is_refused_with_the_known_ones(runtime: Runtime) -> None:
    with pytest.raises(RequestError, match="no expert named 'nobody'; known: .*copying"):
        fill(runtime, ["copying", "nobody"])
