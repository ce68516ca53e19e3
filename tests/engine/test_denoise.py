"""The denoising loop over tiny random models: what must hold whatever the model says."""

import sys
from collections.abc import Callable
from contextlib import closing
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.engine import tiny
from tests.engine.in_process import denoise, run
from torch import Tensor

from midfill_engine.caches.stores import ContextStore, EncodedContext
from midfill_engine.errors import RequestError
from midfill_engine.families import FAMILIES
from midfill_engine.lengths import LENGTHS
from midfill_engine.loading.runtime import Runtime, load_runtime
from midfill_engine.models.operators import Span
from midfill_engine.models.transformer import StackedKeys
from midfill_engine.samplers import SAMPLERS, Decision, Sampler, StepState
from midfill_engine.wire import (
    ErrorCode,
    HoleSegment,
    HoleSpec,
    InfillRequest,
    Segment,
    TextSegment,
)

FOR_FIXTURES = settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@st.composite
def hole_specs(draw: st.DrawFn) -> HoleSpec:
    draft = draw(st.text("ab é(\n ", max_size=12))
    cuts = sorted(set(draw(st.lists(st.integers(0, len(draft)), max_size=4))))
    min_tokens = draw(st.integers(0, 4))
    return HoleSpec(
        draft=draft,
        keep=list(zip(cuts[::2], cuts[1::2], strict=False)),
        min_tokens=min_tokens,
        max_tokens=draw(st.none() | st.integers(max(1, min_tokens), 12)),
        forbid=draw(st.lists(st.sampled_from(["\n", "a", "zz"]), max_size=2, unique=True)),
    )


@st.composite
def requests(draw: st.DrawFn) -> InfillRequest:
    texts = st.text("xy =\n\té", max_size=12)
    segments: list[Segment] = [TextSegment(text=draw(texts))]
    for _ in range(draw(st.integers(1, 3))):
        segments += [HoleSegment(hole=draw(hole_specs())), TextSegment(text=draw(texts))]
    return InfillRequest(
        segments=segments,
        sampler=draw(st.sampled_from([None, *SAMPLERS])),
        seed=draw(st.integers(0, 9)),
        temperature=draw(st.sampled_from([0.0, 1.0])),
        steps=draw(st.none() | st.integers(1, 6)),
        quality=draw(st.none() | st.floats(0, 1)),
        n=draw(st.integers(1, 2)),
        tag=draw(st.sampled_from([None, "python", "cobol"])),
    )


def around(spec: HoleSpec, before: str = "", behind: str = "") -> InfillRequest:
    return InfillRequest(segments=[TextSegment(text=before), HoleSegment(hole=spec), TextSegment(text=behind)])


def specs_of(request: InfillRequest) -> list[HoleSpec]:
    return [segment.hole for segment in request.segments if isinstance(segment, HoleSegment)]


def anchors(request: InfillRequest) -> list[list[str]]:
    return [[spec.draft[start:end] for start, end in spec.keep] for spec in specs_of(request)]


def holds_in_order(text: str, parts: list[str]) -> bool:
    position = 0
    for part in parts:
        position = text.find(part, position)
        if position < 0:
            return False
        position += len(part)
    return True


@pytest.mark.parametrize(
    ("cache", "lengths"),
    [
        ("none", "learned"),
        *(("frozen", name) for name in LENGTHS if not LENGTHS.find(name).may_expand),
    ],
)
@FOR_FIXTURES
@given(request=requests())
@example(around(HoleSpec(draft="a\nb\n", keep=[(2, 4)]), "a\n", "    b"))
@example(around(HoleSpec(draft="a b c", keep=[(1, 2), (3, 4)], max_tokens=1)))
def test_a_fill_keeps_its_promises(runtime: Runtime, cache: str, lengths: str, request: InfillRequest) -> None:
    events, response = run(denoise(runtime, request, cache=cache, lengths=lengths))
    assert [event.step for event in events] == list(range(len(events)))
    assert all(event.step <= event.num_steps for event in events)
    assert request.steps is None or len(events) - 1 <= request.steps
    assert all(hole.masked == 0 for hole in events[-1].holes)
    assert response.stats.steps == len(events) - 1
    is_steady = request.n == 1 and lengths != "candidates" and not SAMPLERS.find(request.sampler or "topk").takes_back
    for before, after in zip(events, events[1:], strict=False):
        assert sum(hole.masked for hole in after.holes) < sum(hole.masked for hole in before.holes) or not is_steady
    assert len(response.alternatives) == request.n - 1
    for fills in (response.holes, *response.alternatives):
        for spec, parts, hole in zip(specs_of(request), anchors(request), fills, strict=True):
            assert holds_in_order(hole.text, parts)
            assert "".join(hole.text[start:end] for start, end in hole.anchors) == "".join(parts)
            assert len(hole.tokens) == len(hole.confidence)
            assert all(0 <= value <= 1 for value in hole.confidence)
            assert all(0 <= start < end <= len(hole.text) for start, end in hole.tokens)
            kept = {char for span in hole.anchors for char in range(*span)}
            assert sum(start not in kept for start, _ in hole.tokens) <= (spec.max_tokens or 128)
            assert "\r" not in hole.text
            hole.text.encode()  # no half of a character
    for event in events:
        for parts, shown in zip(anchors(request), event.holes, strict=True):
            assert holds_in_order(shown.text, parts)
            assert all(start < end <= len(shown.text) for start, end in shown.settled)
            assert len(shown.tokens) == len(shown.confidence) and all(0 <= value <= 1 for value in shown.confidence)
            edges = [edge for span in shown.tokens for edge in span]
            assert edges == sorted(edges) and all(start < end <= len(shown.text) for start, end in shown.tokens)
            assert {char for span in shown.settled for char in range(*span)} <= {
                char for span in shown.tokens for char in range(*span)
            }
    if is_steady:
        for shown, hole in zip(events[-1].holes, response.holes, strict=True):
            if "\ufffd" in shown.text:  # bytes that are no text are left out of a fill
                continue
            assert (shown.text, shown.tokens) == (hole.text, hole.tokens)
            assert shown.confidence == [round(value, 3) for value in hole.confidence]


@pytest.mark.parametrize("seed", range(3))
def test_a_step_settles_what_it_is_surest_of(runtime: Runtime, seed: int) -> None:
    """So says what a step shows: no guess has a higher confidence than what was settled with it."""
    request = simple(seed=seed, steps=4, sampler="topk", temperature=0.5)
    first = run(denoise(runtime, request, lengths="fixed"))[0][1].holes[0]
    inside = {char for start, end in first.settled for char in range(start, end)}
    by_kind: dict[bool, list[float]] = {True: [], False: []}
    for (start, _), value in zip(first.tokens, first.confidence, strict=True):
        by_kind[start in inside].append(value)
    assert by_kind[False] and by_kind[True] and max(by_kind[False]) <= min(by_kind[True])


@FOR_FIXTURES
@given(request=requests())
def test_the_same_request_has_the_same_answer(runtime: Runtime, request: InfillRequest) -> None:
    first, second = (run(denoise(runtime, request))[1] for _ in range(2))
    assert (first.holes, first.alternatives) == (second.holes, second.alternatives)


def simple(before: str = "def f(a):\n    return", **options: object) -> InfillRequest:
    spec = HoleSpec(max_tokens=8)
    return InfillRequest.model_validate(
        {"segments": [{"text": before}, {"hole": spec.model_dump()}, {"text": "\n"}], **options}
    )


def test_caches_give_the_same_fill_and_the_second_request_reuses_the_context(runtime: Runtime) -> None:
    runtime.contexts.clear()
    request = simple("a context of its own")
    first, again, plain = (run(denoise(runtime, request, cache=name))[1] for name in ("frozen", "frozen", "none"))
    assert [hole.text for hole in first.holes] == [hole.text for hole in plain.holes]
    assert [first.stats.cached_context, again.stats.cached_context, plain.stats.cached_context] == [False, True, False]
    assert again.stats.forwards == first.stats.forwards - 1


def test_the_memory_of_a_context_is_told_without_a_look_at_each_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StackedKeys, "__getitem__", lambda *_: pytest.fail("a view of a layer"))
    keys = torch.zeros(3, 1, 2, 5, 4)
    store = ContextStore()
    store.put(b"a", EncodedContext(torch.zeros(2, 4), StackedKeys(keys, keys)))
    assert store.num_bytes == 2 * keys.nbytes


def test_the_store_drops_the_least_recently_used() -> None:
    def context() -> EncodedContext:
        return EncodedContext(torch.zeros(2, 4), [(torch.zeros(1, 2, 3, 4), torch.zeros(1, 2, 3, 4))])

    size = sum(part.nbytes for pair in context().keys_values for part in pair)
    store = ContextStore(max_bytes=2 * size)
    for key in (b"a", b"b", b"a", b"c"):
        if store.get(key) is None:
            store.put(key, context())
    assert [store.get(key) is not None for key in (b"a", b"b", b"c")] == [True, False, True]
    assert (store.hits, store.misses) == (3, 4)
    assert store.num_bytes == 2 * size
    for small in (ContextStore(max_entries=1), ContextStore(max_bytes=1)):
        for key in (b"a", b"b"):
            small.put(key, context())
        assert [small.get(key) is not None for key in (b"a", b"b")] == [False, True]


def test_alternatives_differ_and_the_first_row_is_what_one_alone_would_be(runtime: Runtime) -> None:
    alone = run(denoise(runtime, simple()))[1]
    several = run(denoise(runtime, simple(n=4)))[1]
    texts = [fills[0].text for fills in (several.holes, *several.alternatives)]
    assert alone.holes[0].text in texts
    assert len(set(texts)) > 1


def test_another_seed_is_another_text(runtime: Runtime) -> None:
    texts = {run(denoise(runtime, simple(seed=seed, temperature=1.5)))[1].holes[0].text for seed in range(4)}
    assert len(texts) == 4


def test_an_event_of_many_holes_reads_the_arrays_once(runtime: Runtime) -> None:
    segments = [{"text": "a="}, {"hole": {"min_tokens": 1, "max_tokens": 1}}] * 40
    with closing(denoise(runtime, InfillRequest.model_validate({"segments": segments}))) as steps:
        next(steps)
        operations = list[str]()

        def note(frame: object, event: str, function: Any) -> None:
            if event == "c_call" and isinstance(getattr(function, "__self__", None), np.ndarray):
                operations.append(function.__name__)

        sys.setprofile(note)
        try:
            shown = next(steps)
        finally:
            sys.setprofile(None)
    assert len(shown.holes) == 40 > operations.count("tolist")


def test_a_space_before_the_hole_is_not_answered_twice(runtime: Runtime) -> None:
    fill = denoise(runtime, simple("x = "))
    opened = next(fill)
    assert opened.holes[0].text == ""
    events, response = run(fill)
    assert response.stats.tokens >= 1
    assert not any("\ufffd" in hole.text for hole in response.holes)


def test_no_token_of_a_fill_has_forbidden_text(runtime: Runtime) -> None:
    seen = "".join(run(denoise(runtime, simple(seed=seed, temperature=2.0)))[1].holes[0].text for seed in range(20))
    letter = max(set(seen), key=seen.count)
    spec = {"hole": {"max_tokens": 8, "forbid": [letter]}}
    for seed in range(20):
        request = InfillRequest.model_validate({"segments": [spec], "seed": seed, "temperature": 2.0})
        assert letter not in run(denoise(runtime, request))[1].holes[0].text


def wanting(runtime: Runtime, token: int) -> Runtime:
    """A model that proposes `token` wherever it is allowed to, and is sure of it."""
    vocab_size = runtime.loaded.config.transformer.vocab_size

    operators = copy(runtime.operators)  # they know weights that were laid out

    def linear(x: Tensor, weight: Tensor, bias: Tensor | None, spans: list[Span]) -> Tensor:
        result: Tensor = runtime.operators.linear(x, weight, bias, spans).clone()
        if result.shape[-1] == vocab_size:
            result[:, token] = 1000.0
        return result

    vars(operators)["linear"] = linear
    return replace(runtime, operators=operators)


@pytest.mark.parametrize(("min_tokens", "sampler"), [(0, "threshold"), (3, "threshold"), (3, "topk"), (9, "topk")])
def test_deletions_shorten_a_hole_no_further_than_asked(
    runtime: Runtime, record_calls: Callable[..., list[Any]], min_tokens: int, sampler: str
) -> None:
    """Of a model that wants to delete everything, exactly the least number of tokens is left; it sees no deletion."""
    delete_id, runs = runtime.tokens.delete_ids[0], record_calls(Runtime, "run")
    runtime = wanting(runtime, delete_id)
    hole = {"min_tokens": min_tokens, "max_tokens": 9}
    request = InfillRequest.model_validate({"segments": [{"hole": hole}], "n": 2, "sampler": sampler, "steps": 3})
    events, found = run(denoise(runtime, request))
    assert runs and not any(bool((step.ids == delete_id).any()) for _, passes in runs for step in passes)
    assert found.stats.tokens == min_tokens
    assert len(events) <= 4


@pytest.fixture(scope="session")
def growing(tmp_path_factory: pytest.TempPathFactory) -> Runtime:
    """A model whose holes may grow, that wants nothing else."""
    folder = tmp_path_factory.mktemp("dreamon")
    tiny.make_random(folder, FAMILIES.find("dreamon"))
    runtime = load_runtime(str(folder), "cpu")
    assert runtime.tokens.expand_id is not None
    return wanting(runtime, runtime.tokens.expand_id)


@pytest.mark.parametrize("hole", [{"max_tokens": 70}, {}, {"draft": "a=(b", "max_tokens": 6}], ids=str)
def test_expansions_settled_together_stay_within_the_limit(growing: Runtime, hole: dict[str, object]) -> None:
    """Whatever settles at once: no hole is ever longer than `max_tokens` and what the model can lay out."""
    runtime = replace(growing, loaded=replace(growing.loaded, config=replace(growing.loaded.config, max_hole=80)))
    request = InfillRequest.model_validate({"segments": [{"hole": hole}, {"text": "\n"}], "quality": 0, "steps": 3})
    events, response = run(denoise(runtime, request))
    limit = hole.get("max_tokens", 80)
    assert max(event.holes[0].masked for event in events) == response.stats.tokens == limit


@pytest.mark.parametrize(
    ("changes", "code", "known"),
    [
        ({"sampler": "nonsense"}, ErrorCode.BAD_REQUEST, "threshold"),
        ({"segments": [{"hole": {"min_tokens": 500}}]}, ErrorCode.TOO_LARGE, "hole 1"),
        ({"segments": [{"hole": {"draft": "x" * 400, "keep": [[0, 400]]}}]}, ErrorCode.TOO_LARGE, "hole 1"),
        ({"segments": [{"hole": {"max_tokens": 128, "min_tokens": 128}}] * 40}, ErrorCode.TOO_LARGE, "4096"),
    ],
)
def test_what_cannot_be_done_is_refused(
    runtime: Runtime, changes: dict[str, object], code: ErrorCode, known: str
) -> None:
    with pytest.raises(RequestError) as caught:
        next(denoise(runtime, simple(**changes)))
    assert caught.value.code == code
    assert known in caught.value.message


def forbidding(rules: list[list[str]]) -> InfillRequest:
    return InfillRequest.model_validate({"segments": [{"hole": {"max_tokens": 1, "forbid": rule}} for rule in rules]})


@pytest.mark.parametrize(
    "rules",
    [
        [[f"{hole} {number}" for number in range(8)] for hole in range(9)],
        [[left, right] for left in "abcdefghijk" for right in "lmnopqrst"],
    ],
    ids=["strings", "sets of strings"],
)
def test_too_many_rules_are_refused_before_any_token_is_looked_at(runtime: Runtime, rules: list[list[str]]) -> None:
    blind: Any = None
    with pytest.raises(RequestError, match="64") as caught:
        next(denoise(replace(runtime, vocabulary=blind), forbidding(rules)))
    assert caught.value.code is ErrorCode.TOO_LARGE
    assert run(denoise(runtime, forbidding(rules[:8])))[1].stats.tokens <= 8


@pytest.mark.parametrize("lengths", ["learned", "fixed"])
def test_a_whole_hole_of_anchors_needs_no_step(runtime: Runtime, lengths: str) -> None:
    """And is never cut."""
    events, response = run(denoise(runtime, around(HoleSpec(draft="abc", keep=[(0, 3)])), lengths=lengths))
    assert (len(events), response.holes[0].text, response.holes[0].confidence) == (1, "abc", [1.0, 1.0, 1.0])
    assert not response.holes[0].cut


def test_long_contexts_are_trimmed_to_what_the_model_takes(runtime: Runtime) -> None:
    response = run(denoise(runtime, simple("a = 1\n" * 500)))[1]
    assert response.stats.steps >= 1


def test_a_broken_model_is_an_error_and_not_a_special_token(runtime: Runtime) -> None:
    weight = runtime.loaded.model.transformer.embedding.weight.data
    kept = weight.clone()
    try:
        weight.fill_(float("nan"))
        with pytest.raises(RuntimeError, match="not numbers"):
            run(denoise(runtime, simple("nothing that was cached")))
    finally:
        weight.copy_(kept)
        runtime.contexts.clear()


def test_samplers_get_entropy_when_they_ask(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[StepState] = []

    class Curious(Sampler):
        needs_entropy = True

        def decide(self, state: StepState) -> Decision:
            seen.append(state)
            return Decision(state.best(1), remask=np.zeros_like(state.masked))

    monkeypatch.setitem(SAMPLERS, "threshold", Curious)
    hole = {"hole": {"min_tokens": 6, "max_tokens": 8}}
    run(denoise(runtime, InfillRequest.model_validate({"segments": [{"text": "def f(a):\n    return"}, hole]})))
    predictions, masked = seen[0].predictions, seen[0].masked
    assert predictions.entropy is not None
    assert (predictions.entropy[masked] > 0).all()


def test_a_remasking_sampler_may_take_back_all_but_anchors(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    class Fickle(Sampler):
        def decide(self, state: StepState) -> Decision:
            settle = state.best(2)
            return Decision(settle, remask=np.ones_like(settle) if state.step == 2 else None)

    monkeypatch.setitem(SAMPLERS, "threshold", Fickle)
    hole = {"draft": "abcd        ", "keep": [[0, 4]], "max_tokens": 8, "min_tokens": 8}
    events, response = run(denoise(runtime, InfillRequest.model_validate({"segments": [{"hole": hole}]})))
    assert [event.holes[0].masked for event in events[:4]] == [8, 6, 6, 4]
    assert response.holes[0].text.startswith("abcd")
    assert all(event.holes[0].text.startswith("abcd") for event in events)
