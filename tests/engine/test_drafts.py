"""Requests with candidates: which families take them, how they are compared, what is asked without any drafts."""

from pathlib import Path

import pytest
from tests.engine import tiny
from tests.engine.in_process import denoise, drain, run_together

from midfill_engine.backends import open_fill
from midfill_engine.diffusion.denoise import EMPTY
from midfill_engine.errors import RequestError
from midfill_engine.families import FAMILIES
from midfill_engine.loading.runtime import Runtime, load_runtime
from midfill_engine.wire import (
    FilledHole,
    FittedWeights,
    GivenText,
    HoleSegment,
    HoleSpec,
    InfillRequest,
    InfillResponse,
    Segment,
    TextSegment,
)

BEFORE, AFTER = "def f(a):\n    ", "\n    return b\n"

Texts = dict[str, float]


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Runtime:
    folder: Path = tmp_path_factory.mktemp("random")
    tiny.make_embedded(folder)
    return load_runtime(str(folder), "cpu")


def make(family: str, folder: Path) -> Runtime:
    tiny.make_random(folder, FAMILIES.find(family))
    return load_runtime(str(folder), "cpu", dtype="fp32")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Runtime:
    return make("causal", tmp_path_factory.mktemp("causal"))


def ask(*holes: HoleSpec | Texts, before: str = BEFORE, after: str = AFTER, **options: object) -> InfillRequest:
    segments: list[Segment] = [TextSegment(text=before)]
    for hole in holes:
        spec = hole if isinstance(hole, HoleSpec) else HoleSpec(candidates=listed(hole), indent="    ")
        segments += [HoleSegment(hole=spec), TextSegment(text=after)]
    return InfillRequest(segments=segments, **options)  # type: ignore[arg-type]


def listed(texts: Texts) -> list[GivenText]:
    return [GivenText(text=text, certainty=certainty) for text, certainty in texts.items()]


def fill(runtime: Runtime, *holes: HoleSpec | Texts, **options: object) -> InfillResponse:
    return drain(denoise(runtime, ask(*holes, **options)))  # type: ignore[arg-type]


def test_models_without_a_certainty_leave_texts_aside(tmp_path: Path) -> None:
    dream = make("dream", tmp_path)
    found = fill(dream, {"b = a": 0.9})
    assert found.holes == fill(dream, {}).holes and found.candidates == []
    assert found.holes[0].certainty is None


def test_models_with_a_certainty_of_their_own_rank_texts_by_theirs(embedded: Runtime) -> None:
    (drafted,) = fill(embedded, {}).holes
    assert drafted.certainty in (0.03, EMPTY)
    found = fill(embedded, {"b = a": 0.9, "b = 0": 0.001})
    assert [each.certainty for each in found.candidates[0]] == [0.9, drafted.certainty, 0.001]
    assert found.holes[0].text == found.candidates[0][0].text == "b = a"
    bounded = HoleSpec(candidates=listed({"b = a": 0.9, "b\n": 0.8, "b": 0.7}), forbid=["="], min_tokens=2)
    assert [each.text for each in fill(embedded, bounded).candidates[0]][:-1] == ["b\n"], "within what the hole asks"


@pytest.mark.parametrize("family", ["dream", "embedded"])
def test_what_cannot_compare_refuses_to_judge(family: str, embedded: Runtime, tmp_path: Path) -> None:
    runtime = embedded if family == "embedded" else make(family, tmp_path)
    with pytest.raises(RequestError, match="cannot tell how likely"):
        fill(runtime, {"b = a": 0.9}, drafts=False)


def test_requests_that_contradict_themselves_are_refused() -> None:
    with pytest.raises(ValueError, match="every hole needs candidates"):
        ask({"b = a": 0.5}, {}, drafts=False)
    with pytest.raises(ValueError, match="keeps nothing"):
        HoleSpec(draft="b = 2", keep=[(0, 1)], candidates=[GivenText(text="b = 1")])


def test_a_causal_base_compares_what_is_given_with_what_it_drafts(base: Runtime) -> None:
    found = fill(base, {"b = a": 0.2, "return": 0.1})
    (judged,) = found.candidates
    assert {each.text for each in judged} > {"b = a", "return"} and len(judged) > 2
    assert found.holes[0].text == judged[0].text
    for each in judged:
        assert each.log_likelihood is not None and each.log_likelihood < 0
        assert each.following is not None and each.certainty is None, "calibrated for no random weights"


def test_without_drafts_the_given_texts_are_judged_alone(base: Runtime) -> None:
    given = {f"b = {number}": 0.0 for number in range(40)}
    found = fill(base, given, drafts=False)
    (judged,) = found.candidates
    assert {each.text for each in judged} == set(given)
    assert found.stats.forwards < 12 and found.holes[0].text == judged[0].text
    drafted = {each.text: each for each in fill(base, {"b = a": 0.2}).candidates[0]}
    (alone,) = fill(base, {"b = a": 0.2}, drafts=False).candidates[0]
    assert alone.log_likelihood == pytest.approx(drafted["b = a"].log_likelihood, abs=1e-4)
    assert alone.following == pytest.approx(drafted["b = a"].following, abs=1e-4)


def test_a_request_says_what_decides_among_the_texts_of_a_line(base: Runtime) -> None:
    texts = listed({f"b = {number}": 0.0 for number in range(12)})

    def judge(**weights: float) -> list[FilledHole]:
        wanted = FittedWeights(named=0, used=0, **weights)
        hole = HoleSpec(candidates=texts, forbid=["\n"])
        return fill(base, hole, drafts=False, judge=wanted).candidates[0]

    by_own, by_next = judge(share=0, follows=0), judge(share=0, follows=10)
    assert by_own == sorted(by_own, key=lambda each: -(each.log_likelihood or 0.0))
    assert by_next == sorted(by_next, key=lambda each: -(each.log_likelihood or 0.0) - 10 * (each.following or 0.0))
    assert [each.text for each in by_own] != [each.text for each in by_next]
    (alone, *_), known = judge(share=100, follows=0), GivenText(text=by_own[-1].text, certainty=1.0)
    texts[[each.text for each in texts].index(known.text)] = known
    assert alone.text == by_own[0].text and judge(share=100, follows=0)[0].text == known.text


def texts_of(candidates: list[list[FilledHole]]) -> list[list[str]]:
    return [[each.text for each in hole] for hole in candidates]


@pytest.mark.parametrize("drafts", [True, False])
def test_a_rank_depends_neither_on_the_order_nor_on_the_batch(base: Runtime, drafts: bool) -> None:
    given = {f"b = {text}": 0.1 * (number % 3) for number, text in enumerate(["a", "1", "f(a)", "a + 1", "None"])}
    first, *others = (
        ask(dict(order), {"return a": 0.3}, drafts=drafts, seed=0)
        for order in (given.items(), reversed(given.items()), sorted(given.items()))
    )
    alone = drain(denoise(base, first)).candidates
    together = run_together(base, [open_fill(base, each) for each in (*others, ask({"x": 0.5}, before="y = "), first)])
    for each in (*together[:2], together[-1]):
        assert [[one.text for one in hole] for hole in each.candidates] == [
            [one.text for one in hole] for hole in alone
        ]
        for one, other in zip(each.candidates[0], alone[0], strict=True):
            assert one.log_likelihood == pytest.approx(other.log_likelihood, abs=1e-4)


def test_a_hole_is_judged_with_the_holes_before_it_in_view(base: Runtime) -> None:
    held = fill(base, {"b = a": 0.1}, {"c = b": 0.1}, drafts=False)
    other = fill(base, {"b = None": 0.1}, {"c = b": 0.1}, drafts=False)
    assert held.candidates[1][0].log_likelihood != other.candidates[1][0].log_likelihood


def test_a_text_longer_than_its_hole_is_not_compared(base: Runtime) -> None:
    spec = HoleSpec(max_tokens=4, indent="    ", candidates=listed({"b = a": 0.5, "b = a" * 20: 0.9}))
    assert "b = a" * 20 not in {each.text for each in fill(base, spec).candidates[0]}
