"""Contexts that are kept between requests: what is computed anew, where that is exact, when all is computed again."""

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.test_length_search import open_model

from midfill_engine.caches import recent
from midfill_engine.caches.held import ContextKeys
from midfill_engine.caches.recent import NEAR, RecentContexts, common_ends, pick
from midfill_engine.denoising import denoise
from midfill_engine.denoising.denoise import open_fill
from midfill_engine.denoising.work import Work
from midfill_engine.families import FAMILIES
from midfill_engine.loading import hub
from midfill_engine.loading.runtime import Runtime
from midfill_engine.serving.serve import ServeOptions, make_ready
from midfill_engine.serving.service import EngineState
from midfill_engine.wire import InfillRequest, InfillResponse

BEFORE, AFTER = "".join(f"a{n} = {n}\n" for n in range(60)), "".join(f"b{n} = {n}\n" for n in range(60))


def ask(before: str = BEFORE, after: str = AFTER, **options: object) -> InfillRequest:
    segments = [{"text": before}, {"hole": {"max_tokens": 12, "min_tokens": 12}}, {"text": after}]
    return InfillRequest.model_validate({"segments": segments, "steps": 3, **options})


def run(runtime: Runtime, request: InfillRequest, cache: str, lengths: str) -> tuple[list[int], InfillResponse]:
    """The rows of every forward, and the answer."""
    fill, answer, rows = open_fill(runtime, request, cache=cache, lengths=lengths), None, []
    while True:
        try:
            item = fill.send(answer)
        except StopIteration as stop:
            return rows, stop.value
        answer = runtime.run(item.passes) if isinstance(item, Work) else None
        rows += [item.num_rows] if isinstance(item, Work) else []


@pytest.mark.parametrize("family", ["dream", "llada"])
@pytest.mark.parametrize("lengths", ["fixed", "calibrated"])
def test_an_edit_near_the_hole_costs_its_own_rows_and_is_exact_in_one_layer(
    family: str, lengths: str, tmp_path: Path
) -> None:
    """The keys of a model of one layer are of the tokens alone: whatever else differs is a fault."""
    runtime = open_model(family, 1, tmp_path)
    cold, _ = run(runtime, ask(), "kept", lengths)
    edited = ask(BEFORE + "x = [1,\n", AFTER[6:])
    warm, answer = run(runtime, edited, "kept", lengths)
    _, wanted = run(runtime, edited, "none", lengths)
    assert [hole.text for hole in answer.holes] == [hole.text for hole in wanted.holes]
    torch.testing.assert_close(
        torch.tensor(answer.holes[0].confidence), torch.tensor(wanted.holes[0].confidence), rtol=1e-3, atol=1e-5
    )
    assert cold[0] > 800 and warm[0] < 120
    assert answer.stats.cached_context


def test_the_same_context_again_computes_holes_alone(tmp_path: Path) -> None:
    runtime = open_model("llada", 2, tmp_path)
    cold, first = run(runtime, ask(), "kept", "fixed")
    warm, again = run(runtime, ask(), "kept", "fixed")
    assert cold[0] > 800 and max(warm) == 12 and len(warm) == len(cold)
    assert not first.stats.cached_context and again.stats.cached_context


@pytest.mark.parametrize(("cache", "most"), [("kept", 2700), ("dual", 4000)])
@pytest.mark.parametrize("hole", [{"min_tokens": 64, "max_tokens": 64}, {"max_tokens": 64}])
def test_rows_of_a_whole_fill_at_four_tokens_a_step(
    hole: dict[str, int], cache: str, most: int, tmp_path: Path
) -> None:
    """Behind 1,024 tokens, the length known and to be found; they do not depend on a model's size."""
    runtime = open_model("dream", 1, tmp_path)
    segments = [{"text": "x = [1, 2]\n" * 46 + "x = 32"}, {"hole": hole}, {"text": "yy = 1\n" * 72 + "y"}]
    request = InfillRequest.model_validate({"segments": segments, "steps": 16})
    rows, answer = run(runtime, request, cache, "calibrated")
    assert 1010 <= answer.stats.context_tokens <= 1024 and rows[0] <= 1200
    assert sum(rows) <= most, rows
    if "min_tokens" in hole:
        assert len(rows) == 16, "nothing is searched for where the length is known"


@pytest.mark.parametrize("cache", ["prefix", "dual", "kept"])
@pytest.mark.parametrize("family", ["dream", "llada"])
def test_what_a_search_computed_serves_the_fill_and_is_exact_in_one_layer(
    family: str, cache: str, tmp_path: Path
) -> None:
    """With text in the hole that stays, whose keys no search left behind."""
    runtime = open_model(family, 1, tmp_path)
    hole = {"draft": "x = f(1)\n", "keep": [[4, 6]]}
    segments = [{"text": BEFORE}, {"hole": hole}, {"text": AFTER}]
    request = InfillRequest.model_validate({"segments": segments, "steps": 3})
    rows, answer = run(runtime, request, cache, "calibrated")
    _, wanted = run(runtime, request, "none", "calibrated")
    assert answer.holes[0].text == wanted.holes[0].text
    assert sum(count > 800 for count in rows) == 1


@pytest.mark.parametrize(("family", "served"), [("llada", "dual"), ("sdar", "block"), ("embedded", "frozen")])
def test_an_engine_on_a_cpu_is_served_with_an_approximate_cache_and_asked_for_the_authors_way_without(
    family: str, served: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if family != "embedded":
        hub.make_random(tmp_path, FAMILIES.find(family))
    opened: list[str | None] = []
    monkeypatch.setattr(denoise, "open_fill", lambda *_, cache, lengths: opened.append(cache))
    model = family if family == "embedded" else str(tmp_path)
    for cache in (None, "none"):
        ready = make_ready(EngineState(), ServeOptions(model=model, device="cpu", cache=cache))
        assert ready.info.cache == (cache or served)
        for quality in (0.5, "authors"):
            ready.scheduler._open_fill(ask(quality=quality))
    assert opened == [served, None, "none", "none"]


def test_another_document_is_not_taken_for_it_and_many_uses_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recent, "MAX_USES", 2)
    runtime = open_model("llada", 2, tmp_path)
    rows = [run(runtime, ask(), "kept", "fixed")[0][0] for _ in range(5)]
    assert [count > 800 for count in rows] == [True, False, False, True, False]
    other, answer = run(runtime, ask("zz(q)" * 100, "yy[p]" * 100), "kept", "fixed")
    assert other[0] > 800 and not answer.stats.cached_context
    assert run(runtime, ask(), "kept", "fixed")[0][0] == 12, "the first one is still there"
    runtime.free_memory()
    assert run(runtime, ask(), "kept", "fixed")[0][0] > 800


IDS = st.lists(st.integers(0, 2), max_size=40).map(torch.tensor)


@given(old=IDS, new=IDS)
def test_what_is_called_known_are_the_same_tokens(old: torch.Tensor, new: torch.Tensor) -> None:
    head, tail = common_ends(old, new)
    assert head + tail <= min(len(old), len(new))
    assert torch.equal(old[:head], new[:head])
    assert torch.equal(old[len(old) - tail :], new[len(new) - tail :])
    if not len(old) or not len(new):
        return
    layer = old[None, None, :, None].float()
    found = pick(ContextKeys([(layer, layer)], torch.arange(len(old))), len(new), head, tail)
    assert found.is_known is not None
    assert torch.equal(found.layers[0][0][0, 0, :, 0][found.is_known], new[found.is_known].float())
    assert found.is_whole == torch.equal(old, new)
    if head + tail < len(new) and head > NEAR:
        assert not found.is_known[head - NEAR : head].any()


def test_memory_is_bounded() -> None:
    store = RecentContexts(max_bytes=2000)
    for number in range(20):
        ids = torch.full((10,), number)
        store.put(ids, ContextKeys([(torch.zeros(1, 1, 10, 10), torch.zeros(1, 1, 10, 10))], torch.arange(10)))
    assert [store.find(torch.full((10,), number)) is not None for number in (0, 17, 18, 19)] == [
        False,
        False,
        True,
        True,
    ]  # 800 bytes each
    assert sum(each.num_bytes for each in store._documents) <= 2000
