"""Requests with experts that propose: drafts become canvases, are listed, are bounded, and can be switched off."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from midfill_engine.denoising.denoise import denoise, drain, open_fill
from midfill_engine.denoising.work import Claim, Work
from midfill_engine.experts import Experts, Gap, Proposal, Sources
from midfill_engine.experts.base import Expert, Opinion
from midfill_engine.families import FAMILIES
from midfill_engine.loading import checkpoint, hub
from midfill_engine.loading.runtime import Runtime, load_runtime
from midfill_engine.wire import HoleSegment, HoleSpec, InfillRequest, InfillResponse, Reference, Segment, TextSegment

BEFORE, AFTER = "def f(a):\n    ", "\n    return b\n"


class Prompter(Expert, Opinion):
    """Proposes what it was told, for every hole without text."""

    def __init__(self, *proposals: tuple[str, float]) -> None:
        self.proposals = [Proposal(*each) for each in proposals]
        self.seen: list[Sources] = []

    def read(self, sources: Sources) -> Opinion:
        self.seen.append(sources)
        return self

    def propose(self, hole: int) -> list[Proposal]:
        return self.proposals if self.seen[-1].gaps[hole] is not None else []


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Runtime:
    folder: Path = tmp_path_factory.mktemp("random")
    checkpoint.make_random(folder)
    return load_runtime(str(folder), "cpu")


def listening(runtime: Runtime, prompter: Prompter) -> Runtime:
    experts = Experts()
    experts.put("counts", prompter)
    return replace(runtime, experts=experts, family=replace(runtime.family, experts=("counts",)))


def fill(
    runtime: Runtime, *holes: HoleSpec, before: str = BEFORE, after: str = AFTER, **options: object
) -> InfillResponse:
    segments: list[Segment] = [TextSegment(text=before)]
    for hole in holes or (HoleSpec(),):
        segments += [HoleSegment(hole=hole), TextSegment(text=after)]
    return drain(denoise(runtime, InfillRequest(segments=segments, **options)))


def test_the_surest_draft_is_the_fill_and_takes_no_forward(plain: Runtime) -> None:
    found = fill(listening(plain, Prompter(("b = a", 0.8), ("pass", 0.1))))
    (hole,) = found.holes
    assert (hole.text, hole.certainty, hole.cut) == ("b = a", 0.8, False)
    assert found.stats.forwards == 0 and found.drafts == []
    assert hole.confidence == pytest.approx([0.8] * len(hole.tokens))


def test_a_draft_under_the_floor_changes_nothing(plain: Runtime) -> None:
    runtime = listening(plain, Prompter(("b = a", 0.001)))
    assert fill(runtime).holes == fill(runtime, experts=[]).holes and fill(runtime).stats.forwards > 0


def test_without_experts_a_request_is_as_it_was(plain: Runtime) -> None:
    prompter = Prompter(("b = a", 0.9))
    assert fill(listening(plain, prompter), experts=[]).holes == fill(plain, experts=[]).holes
    assert prompter.seen == []
    assert fill(listening(plain, prompter), experts=["copying"]).holes == fill(plain, experts=["copying"]).holes


def test_drafts_are_listed_when_asked_for(plain: Runtime) -> None:
    runtime = listening(plain, Prompter(("b = a", 0.8), ("pass", 0.1), ("x", 0.05)))
    listed = fill(runtime, num_drafts=2).drafts
    assert [[(each.text, each.certainty) for each in drafts] for drafts in listed] == [[("b = a", 0.8), ("pass", 0.1)]]


def test_alternatives_take_the_next_drafts_and_then_the_model(plain: Runtime) -> None:
    found = fill(listening(plain, Prompter(("b = a", 0.5), ("b = 1", 0.3))), n=3)
    texts = [found.holes[0].text, *(holes[0].text for holes in found.alternatives)]
    assert texts[:2] == ["b = a", "b = 1"] or set(texts) >= {"b = a", "b = 1"}
    assert len(texts) == 3


def test_a_temperature_draws_among_drafts_by_their_certainty(plain: Runtime) -> None:
    runtime = listening(plain, Prompter(("b = a", 0.5), ("b = 1", 0.4)))
    texts = [fill(runtime, temperature=1.0, seed=seed, steps=1).holes[0].text for seed in range(40)]
    assert 8 < texts.count("b = a") < 32 and texts.count("b = 1") > 4
    assert fill(runtime, temperature=1.0, seed=3).holes == fill(runtime, temperature=1.0, seed=3).holes


@pytest.mark.parametrize(
    "hole",
    [
        HoleSpec(forbid=["="]),
        HoleSpec(max_tokens=3),
        HoleSpec(min_tokens=40, max_tokens=40),
        HoleSpec(draft="b = 2", keep=[(0, 1)]),
        HoleSpec(draft="b = 2"),
    ],
)
def test_a_draft_must_fit_its_hole(plain: Runtime, hole: HoleSpec) -> None:
    runtime = listening(plain, Prompter(("b = a", 0.9)))
    found = fill(runtime, hole)
    assert found.holes == fill(runtime, hole, experts=[]).holes
    assert "=" not in found.holes[0].text or not hole.forbid


@pytest.mark.parametrize(
    ("before", "after", "draft"),
    [
        ("x =", "\n", " 1"),
        ("x = ", "\n", "1"),
        ("a\n", "    b\n", "    c\n"),
        ("a\n", "b\n", "c\n"),
        ("a\n    ", "\nb", "é"),
    ],
)
def test_a_draft_comes_back_byte_for_byte(plain: Runtime, before: str, after: str, draft: str) -> None:
    prompter = Prompter((draft, 0.9))
    assert fill(listening(plain, prompter), before=before, after=after).holes[0].text == draft
    (gap,) = prompter.seen[0].gaps
    assert gap is not None and (gap.before + gap.lead, gap.after[len(gap.tail) :]) == (before, after)


def test_a_draft_without_the_line_end_of_its_hole_is_left_out(plain: Runtime) -> None:
    found = fill(listening(plain, Prompter(("    c", 0.9))), before="a\n", after="    b\n")
    assert found.holes[0].text != "    c" and found.holes[0].certainty != 0.9


def test_a_hole_with_a_draft_stands_beside_one_without(plain: Runtime) -> None:
    runtime = listening(plain, Prompter(("b = a", 0.9)))
    first, second = fill(runtime, HoleSpec(), HoleSpec(max_tokens=2)).holes
    assert first.text == "b = a" and first.certainty == 0.9
    assert second.text != "b = a" and len(second.tokens) <= 2


def test_experts_see_the_whole_texts_and_the_references(plain: Runtime) -> None:
    prompter, long = Prompter(), "word " * 4000
    references = [Reference(kind="document", text="rest", distance=7), Reference(kind="open", text="other")]
    fill(listening(plain, prompter), before=long + BEFORE, references=references)
    (seen,) = prompter.seen
    assert seen.texts[0] == long + BEFORE and [each.text for each in seen.remotes] == ["rest", "other"]
    assert sum(map(len, seen.pieces)) < 4000 and isinstance(seen.gaps[0], Gap)


def test_very_long_texts_and_very_many_holes_are_not_counted(plain: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("midfill_engine.denoising.drafts.MAX_COUNTED_CHARACTERS", 40)
    prompter = Prompter(("b = a", 0.9))
    fill(listening(plain, prompter), before="x\n" * 100 + BEFORE)
    assert sum(map(len, prompter.seen[-1].texts)) <= 40 and prompter.seen[-1].texts[0].endswith(BEFORE)
    fill(listening(plain, prompter), *[HoleSpec(max_tokens=1)] * 17)
    assert prompter.seen[-1].gaps == [None] * 17


def test_a_fill_can_end_between_two_holes(plain: Runtime) -> None:
    closed: list[bool] = []

    class Watched(Prompter):
        def propose(self, hole: int) -> list[Proposal]:
            closed.append(False)
            return super().propose(hole)

    runtime = listening(plain, Watched(("b = a", 0.9)))
    segments: list[Segment] = [TextSegment(text=BEFORE)]
    for _ in range(4):
        segments += [HoleSegment(hole=HoleSpec()), TextSegment(text=AFTER)]
    work = open_fill(runtime, InfillRequest(segments=segments))
    assert isinstance(next(work), Claim) and next(work) == Work([], 0)
    work.close()
    assert len(closed) == 1


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    folder: Path = tmp_path_factory.mktemp("dream")
    hub.make_random(folder, FAMILIES.find("dream"))
    yield load_runtime(str(folder), "cpu")


def test_published_models_list_drafts_as_hints_only(published: Runtime) -> None:
    before = "def f(a):\n    b = a\n    return b\n\n" * 3 + BEFORE
    silent, hinted = fill(published, before=before), fill(published, before=before, num_drafts=4)
    assert silent.holes == hinted.holes and silent.drafts == [] and hinted.drafts[0][0].text == "b = a"
    assert hinted.holes[0].certainty is None
    asked = fill(published, before=before, experts=["counts"])
    assert asked.holes[0].text == "b = a" and asked.holes[0].certainty is not None
