"""The context's keys that a search of lengths computes once: what the fill computes anew, and where that is exact."""

from pathlib import Path

import pytest
from tests.engine import tiny
from tests.engine.in_process import complete
from tests.engine.tiny import open_model

from midfill_engine import backends
from midfill_engine.backends import open_fill
from midfill_engine.families import FAMILIES
from midfill_engine.loading.runtime import Runtime
from midfill_engine.scheduling.work import Work
from midfill_engine.serving.serve import make_ready
from midfill_engine.serving.service import EngineState
from midfill_engine.starting import ServeOptions
from midfill_engine.wire import InfillRequest, InfillResponse

BEFORE, AFTER = "".join(f"a{n} = {n}\n" for n in range(60)), "".join(f"b{n} = {n}\n" for n in range(60))


def ask(before: str = BEFORE, after: str = AFTER, **options: object) -> InfillRequest:
    segments = [{"text": before}, {"hole": {"max_tokens": 12, "min_tokens": 12}}, {"text": after}]
    return InfillRequest.model_validate({"segments": segments, "steps": 3, **options})


def run(runtime: Runtime, request: InfillRequest, cache: str, lengths: str) -> tuple[list[int], InfillResponse]:
    """The rows of every forward, and the answer."""
    seen = list[object]()
    answer = complete(runtime, open_fill(runtime, request, cache=cache, lengths=lengths), seen.append)
    return [awaited.num_rows for awaited in seen if isinstance(awaited, Work)], answer


@pytest.mark.parametrize("hole", [{"min_tokens": 64, "max_tokens": 64}, {"max_tokens": 64}])
def test_rows_of_a_whole_fill_at_four_tokens_a_step(hole: dict[str, int], tmp_path: Path) -> None:
    """Behind 1,024 tokens, the length known and to be found; they do not depend on a model's size."""
    runtime = open_model("dream", 1, tmp_path)
    segments = [{"text": "x = [1, 2]\n" * 46 + "x = 32"}, {"hole": hole}, {"text": "yy = 1\n" * 72 + "y"}]
    request = InfillRequest.model_validate({"segments": segments, "steps": 16})
    rows, answer = run(runtime, request, "dual", "calibrated")
    assert 1010 <= answer.stats.context_tokens <= 1024 and rows[0] <= 1200
    assert sum(rows) <= 4000, rows
    if "min_tokens" in hole:
        assert len(rows) == 16, "nothing is searched for where the length is known"


@pytest.mark.parametrize("cache", ["prefix", "dual"])
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
        tiny.make_random(tmp_path, FAMILIES.find(family))
    opened: list[str | None] = []
    monkeypatch.setattr(backends, "open_fill", lambda *_, cache, lengths: opened.append(cache))
    model = family if family == "embedded" else str(tmp_path)
    for cache in (None, "none"):
        ready = make_ready(EngineState(), ServeOptions(model=model, device="cpu", cache=cache))
        assert ready.info.cache == (cache or served)
        for quality in (0.5, "authors"):
            ready.scheduler.open_fill(ask(quality=quality))
    assert opened == [served, None, "none", "none"]
