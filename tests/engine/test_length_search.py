"""The length search over one context's keys: how many rows it takes, what it shows meanwhile, where it is exact."""

from pathlib import Path

import pytest
import torch
from tests.engine.in_process import complete
from tests.engine.tiny import open_model

from midfill_engine.backends import open_fill
from midfill_engine.diffusion.denoise import make_trial_denoiser, try_over_one_context
from midfill_engine.diffusion.plan import read_request
from midfill_engine.loading.runtime import Runtime
from midfill_engine.models.packed import Result
from midfill_engine.scheduling.work import Show, Work
from midfill_engine.wire import InfillRequest, StepEvent

LENGTHS = [[[2]], [[7]], [[16]], [[33]], [[5]], [[64]]]


@pytest.fixture(scope="module", params=["dream", "llada"])
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def ask(context: int = 100) -> InfillRequest:
    text = "x = [1, 2]\n" * (context // 11)
    return InfillRequest.model_validate({"segments": [{"text": text}, {"hole": {}}, {"text": f"y\n{text}"}]})


def confidences(runtime: Runtime, *, shared: bool) -> list[torch.Tensor]:
    plan = read_request(runtime, ask(), None, "calibrated")
    denoisers = [make_trial_denoiser(plan, lengths, None) for lengths in LENGTHS]
    found: list[Result] = []
    if shared:
        found, _ = complete(runtime, try_over_one_context(denoisers, None))
    else:
        found = runtime.run([denoiser.open_pass() for denoiser in denoisers])
    return [result.chosen.confidence for result in found if result.chosen is not None]


def test_with_one_layer_the_shared_context_is_exact(family: str, tmp_path: Path) -> None:
    """In a model of one layer the keys are of the tokens alone, so only turning them could go wrong."""
    runtime = open_model(family, 1, tmp_path)
    for one, apart in zip(confidences(runtime, shared=True), confidences(runtime, shared=False), strict=True):
        torch.testing.assert_close(one, apart, rtol=1e-4, atol=1e-7)


def test_with_more_layers_the_shared_context_is_near_and_exact_for_the_canvas_that_computed_it(
    family: str, tmp_path: Path
) -> None:
    runtime = open_model(family, 3, tmp_path)
    pairs = list(zip(confidences(runtime, shared=True), confidences(runtime, shared=False), strict=True))
    assert torch.equal(*pairs[len(LENGTHS) // 2])
    assert any(not torch.equal(*pair) for pair in pairs)
    for one, apart in pairs:
        torch.testing.assert_close(one.log(), apart.log(), rtol=0.1, atol=0.3)


def test_rows_until_the_first_token_and_an_event_with_the_first_pass(family: str, tmp_path: Path) -> None:
    runtime = open_model(family, 2, tmp_path)
    request = ask(1000)
    fill = open_fill(runtime, request)
    answer = None
    rows: list[int] = []
    events: list[StepEvent] = []
    while sum(event.step == 0 for event in events) < 2:  # the search's, then the fill's own
        item = fill.send(answer)
        answer = None
        if isinstance(item, Show | Work) and item.event is not None:
            events.append(item.event)
        if isinstance(item, Work):
            rows.append(item.num_rows)
            answer = runtime.run(item.passes)
    context = len(read_request(runtime, request, None, None).context_ids)
    assert events[0].holes[0].masked > 0
    assert context < rows[0] <= context + 200
    assert sum(rows[1:-1]) <= 1500


def test_excerpts_are_context_in_front(runtime: Runtime) -> None:
    request = ask()
    whole = read_request(runtime, request.model_copy(update={"excerpts": ["x = other(7)"]}), None, None)
    plain = read_request(runtime, request, None, None)
    known, shown = (
        b"".join(map(runtime.loaded.tokenizer.token_bytes, plan.texts[0])).decode() for plan in (plain, whole)
    )
    assert shown.endswith(f"x = other(7)\n\n{known}")
