"""Holes read from the left: drafts are as likely as their scores say, end by themselves, and can be switched off."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.engine import tiny
from tests.engine.fakes import drain_work
from tests.engine.peak import PeakBytes

from midfill_engine.denoising.causal import LENGTH_POWER, CausalReader, draft_holes, open_reader, score_fills
from midfill_engine.denoising.denoise import denoise, drain, open_fill
from midfill_engine.denoising.opening import encode_context
from midfill_engine.denoising.plan import read_request
from midfill_engine.denoising.work import Claim, Work
from midfill_engine.errors import RequestError
from midfill_engine.loading import checkpoint
from midfill_engine.loading.runtime import Runtime
from midfill_engine.wire import InfillRequest

TEXT = ["def f(a):\n    b = ", "\n    return b\n\n\ndef g(a):\n    return ", "\n"]


@pytest.fixture(scope="module")
def hybrid(tmp_path_factory: pytest.TempPathFactory) -> Runtime:
    """One whose drafts end soon: END is more likely than chance everywhere."""
    folder = tmp_path_factory.mktemp("hybrid")
    tiny.make_embedded(folder, seed=3)
    loaded = checkpoint.load(folder)
    loaded.model.config = replace(loaded.config, causal=True)
    tiny.save_embedded(folder, loaded.model, loaded.tokenizer)
    return Runtime.of(checkpoint.load(folder), "hybrid")


def request(**options: Any) -> InfillRequest:
    hole = {"hole": {"max_tokens": options.pop("max_tokens", 6)}}
    segments = [{"text": TEXT[0]}, hole, {"text": TEXT[1]}, hole, {"text": TEXT[2]}]
    return InfillRequest.model_validate({"segments": segments, **options})


@pytest.fixture(scope="module")
def opened(hybrid: Runtime) -> tuple[CausalReader, dict[int, Any]]:
    plan = read_request(hybrid, request(), None, "drafted")
    context, _, _ = drain_work(hybrid, encode_context(hybrid, plan))
    reader = open_reader(hybrid, plan, context)
    assert reader is not None
    return reader, dict(enumerate(plan.outline.holes))


def anchors(outline: Any) -> list[int]:
    return [token for stretch in outline.stretches for token in stretch.ids or ()]


@pytest.mark.parametrize("width", [1, 4])
def test_a_drafts_certainty_is_its_exact_likelihood(opened: tuple[CausalReader, dict[int, Any]], width: int) -> None:
    reader, outlines = opened
    drafts, forwards = drain_work(reader.runtime, draft_holes(reader, outlines, 128, width))
    assert drafts.keys() == outlines.keys() and forwards <= 7
    for hole, found in drafts.items():
        costs = [-math.log(each.certainty) / (len(each.ids) + 1) ** LENGTH_POWER for each in found]
        assert costs == pytest.approx(sorted(costs))
        assert len({each.ids for each in found}) == len(found) <= width
        fills = [(hole, [*anchors(outlines[hole]), *each.ids]) for each in found]
        scores = drain_work(reader.runtime, score_fills(reader, fills))
        for each, score in zip(found, scores, strict=True):
            assert 1 <= len(each.ids) <= 6 and len(each.confidences) == len(each.ids)
            if not anchors(outlines[hole]):
                assert math.log(each.certainty) == pytest.approx(score, rel=1e-4)


def test_a_beam_reads_every_token_once(opened: tuple[CausalReader, dict[int, Any]]) -> None:
    """And stops where what is found cannot be beaten, so a beam for one draft reads no more than one for four."""
    reader, outlines = opened
    num_rows = {}
    for num_wanted in (1, 4):
        work, rows = draft_holes(reader, outlines, 128, 4, num_wanted), []
        answer: Any = None
        try:
            while True:
                passes = work.send(answer).passes
                rows.append([len(step.ids) for step in passes])
                answer = reader.runtime.run(passes)
        except StopIteration as stop:
            drafts, forwards = stop.value
        assert rows[0] == [1 + len(anchors(outlines[hole])) for hole in outlines]
        assert len(rows) == forwards and all(0 < each <= 4 for step in rows[1:] for each in step)
        assert all(len(found) >= num_wanted for found in drafts.values())
        num_rows[num_wanted] = sum(map(sum, rows))
    assert num_rows[1] <= num_rows[4]


def test_a_draft_of_one_token_is_the_likeliest_there_is(opened: tuple[CausalReader, dict[int, Any]]) -> None:
    reader, outlines = opened
    hole, outline = 1, replace(outlines[1], max_tokens=1)
    drafts, _ = drain_work(reader.runtime, draft_holes(reader, {hole: outline}, 128, 128))
    mask = reader.runtime.vocabulary.allowed(leading=outline.masked[0].leading)
    every = [(hole, [*anchors(outline), token]) for token in mask.nonzero().flatten().tolist()]
    scores = drain_work(reader.runtime, score_fills(reader, every))
    best = [ids[-1] for _, (_, ids) in sorted(zip(scores, every, strict=True), reverse=True)]
    assert [each.ids[0] for each in drafts[hole]][:3] == best[:3]


def test_holes_are_drafted_alone_as_together(opened: tuple[CausalReader, dict[int, Any]]) -> None:
    reader, outlines = opened
    together, _ = drain_work(reader.runtime, draft_holes(reader, outlines, 128, 4))
    for hole, outline in outlines.items():
        alone, _ = drain_work(reader.runtime, draft_holes(reader, {hole: outline}, 128, 4))
        assert alone[hole] == together[hole]


def test_requests_packed_together_are_filled_as_each_alone(hybrid: Runtime) -> None:
    requests = [request(max_tokens=size, n=2, temperature=0.7, seed=size) for size in (3, 6, 12)]
    alone = [drain(denoise(hybrid, each, lengths="drafted")) for each in requests]
    fills = {index: open_fill(hybrid, each, lengths="drafted") for index, each in enumerate(requests)}
    answers: dict[int, Any] = dict.fromkeys(fills)
    found: dict[int, Any] = {}
    num_shared = 0
    while fills:
        works: dict[int, Work] = {}
        for index, fill in list(fills.items()):
            try:
                while not isinstance(item := fill.send(answers.pop(index, None)), Work):
                    pass
                works[index] = item
            except StopIteration as stop:
                found[index] = stop.value
                del fills[index]
        results = hybrid.run([step for work in works.values() for step in work.passes])
        num_shared += len(works) > 1
        for index, work in works.items():
            answers[index], results = results[: len(work.passes)], results[len(work.passes) :]
    assert num_shared > 2
    for index, each in enumerate(alone):
        assert [hole.text for hole in found[index].holes] == [hole.text for hole in each.holes]
        assert found[index].alternatives == each.alternatives


def test_same_seed_same_fill(hybrid: Runtime) -> None:
    for options in ({}, {"n": 3, "temperature": 0.7, "seed": 11}):
        first, second = (drain(denoise(hybrid, request(**options), lengths="drafted")) for _ in range(2))
        assert [hole.text for hole in first.holes] == [hole.text for hole in second.holes]
        assert first.alternatives == second.alternatives and len(first.alternatives) == options.get("n", 1) - 1


def test_a_token_is_as_sure_as_all_up_to_it(hybrid: Runtime) -> None:
    for hole in drain(denoise(hybrid, request(max_tokens=20), lengths="drafted")).holes:
        assert len(hole.confidence) > 1
        assert hole.confidence == sorted(hole.confidence, reverse=True)


def test_a_fill_is_as_sure_as_it_is_likely(hybrid: Runtime, opened: tuple[CausalReader, dict[int, Any]]) -> None:
    """Read from the left, however it was written."""
    reader, outlines = opened
    plain = replace(hybrid, family=replace(hybrid.family, certainty=(0.0, 1.0, 0.0)))
    drafts, _ = drain_work(reader.runtime, draft_holes(reader, outlines, 128, 4))
    holes = drain(denoise(plain, request(), lengths="drafted")).holes
    for hole, outline in outlines.items():
        certainty = holes[hole].certainty or 0.0
        assert anchors(outline) or certainty / (1 - certainty) == pytest.approx(drafts[hole][0].certainty, rel=1e-3)
    assert not all(map(anchors, outlines.values()))
    settled = drain(denoise(plain, request(), lengths="learned")).holes
    assert all(0 < (hole.certainty or 0.0) < 0.5 for hole in settled)


def test_a_draft_is_shown_while_it_is_written(hybrid: Runtime) -> None:
    *before, last = denoise(hybrid, request(max_tokens=20), lengths="drafted")
    assert [event.step for event in (*before, last)] == list(range(len(before) + 1)) and len(before) > 3
    assert all(event.step < event.num_steps for event in before)
    for event in before:
        assert all(hole.masked and not hole.settled for hole in event.holes)
    lengths = [[len(hole.confidence) for hole in event.holes] for event in before]
    assert lengths[0] == [0, 0] and max(map(max, lengths)) > 2
    assert all(not hole.masked and hole.settled for hole in last.holes)


def test_drafting_ends_when_time_is_over(hybrid: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not finished then is filled from masks in one step."""
    whole = drain(denoise(hybrid, request(max_tokens=20), lengths="drafted"))
    calls = iter([False] * 3)
    monkeypatch.setattr("midfill_engine.denoising.denoise.is_over", lambda request, started_s: next(calls, True))
    *_, last = denoise(hybrid, request(max_tokens=20), lengths="drafted")
    monkeypatch.undo()
    assert last.step <= 4 < whole.stats.forwards
    assert all(hole.text and not hole.masked for hole in last.holes)


def test_alternatives_stand_by_likelihood(hybrid: Runtime) -> None:
    answer = drain(denoise(hybrid, request(n=3), lengths="drafted"))
    texts = [tuple(hole.text for hole in holes) for holes in (answer.holes, *answer.alternatives)]
    assert len(set(texts)) == 3
    means = [
        sum(math.log(value) for hole in holes for value in hole.confidence)
        for holes in (answer.holes, *answer.alternatives)
    ]
    assert means[0] >= means[-1] - 5


def test_a_draft_is_cancelled_between_two_tokens(hybrid: Runtime) -> None:
    fill = open_fill(hybrid, request(max_tokens=40), lengths="drafted")
    answer: Any = None
    for _ in range(4):
        item = fill.send(answer)
        answer = hybrid.run(item.passes) if isinstance(item, Work) else None
    fill.close()
    with pytest.raises(StopIteration):
        fill.send(None)
    first, second = (drain(denoise(hybrid, request(), lengths="drafted")) for _ in range(2))
    assert first.holes == second.holes, "nothing of it is left"


def test_models_that_never_read_from_the_left_fill_as_before(tmp_path: Path) -> None:
    tiny.make_embedded(tmp_path)
    plain = Runtime.of(checkpoint.load(tmp_path), "plain")
    assert not plain.reads_causally
    with pytest.raises(RequestError, match="not trained to read holes from the left"):
        drain(denoise(plain, request(), lengths="drafted"))
    default, learned = (drain(denoise(plain, request(), lengths=name)) for name in (None, "learned"))
    assert default.holes == learned.holes and default.holes[0].certainty is None


def test_a_hybrid_model_drafts_unless_told_not_to(hybrid: Runtime) -> None:
    default, drafted, learned = (
        drain(denoise(hybrid, request(), lengths=name)) for name in (None, "drafted", "learned")
    )
    assert default.holes == drafted.holes and default.stats.steps == 0 < learned.stats.steps


@pytest.mark.parametrize("num_holes", [1, 8])
def test_what_drafting_claims_is_enough(hybrid: Runtime, num_holes: int) -> None:
    """Every hole's beam holds the context's keys before its own."""
    segments = [{"text": "x = 1\n" * 60}, *[{"hole": {"max_tokens": 12}}, {"text": "\ny = 2\n"}] * num_holes]
    fill = open_fill(hybrid, InfillRequest.model_validate({"segments": segments}), lengths="drafted")
    claimed, answer = next(fill), None
    assert isinstance(claimed, Claim)
    with PeakBytes() as memory, pytest.raises(StopIteration):
        while True:
            item = fill.send(answer)
            answer = hybrid.run(item.passes) if isinstance(item, Work) else None
    assert memory.peak <= claimed.num_bytes <= 8 * memory.peak
