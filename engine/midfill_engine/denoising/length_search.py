"""Searches the lengths of holes with trial forward passes. Knows rows; no text."""

from collections.abc import Generator

import torch

from midfill_engine.caches import CACHES, EncodedContext
from midfill_engine.caches.base import ContextKeys
from midfill_engine.denoising.opening import show, trial_row
from midfill_engine.denoising.plan import TRIALS_AT_ONCE, Plan, shares_context
from midfill_engine.denoising.row import CanvasRow
from midfill_engine.denoising.work import Work, ask
from midfill_engine.errors import RequestError
from midfill_engine.families.embedded import Embedded
from midfill_engine.lengths import Lengths, LengthScores
from midfill_engine.loading.runtime import Runtime
from midfill_engine.models.packed import Result
from midfill_engine.wire import ErrorCode


def choose_lengths(
    runtime: Runtime, plan: Plan, context: EncodedContext | None
) -> Generator[Work, list[Result], tuple[list[Lengths], int, ContextKeys | None]]:
    """Returns the canvases to fill, the number of forward passes, and the context's KV cache if the trials
    shared it.
    """
    needs = [hole.need(runtime.loaded.config.max_hole) for hole in plan.outline.holes]
    if not any(need.hints for need in needs):  # all holes are anchors
        return [[[] for _ in needs]], 0, None
    search = plan.policy.search(needs, score_lengths(runtime, context))
    confidences: list[list[float]] | None = None
    shared: ContextKeys | None = None
    forwards = 0
    while True:
        try:
            canvases = search.send(confidences)  # type: ignore[arg-type]
        except StopIteration as stop:
            return stop.value, forwards, shared
        if runtime.family.attention == "canvas":
            message = "this length policy asks how sure a model is of its masks, and this one has none"
            raise RequestError(ErrorCode.BAD_REQUEST, message, "leave it out to take the model's own")
        rows = [trial_row(runtime, plan, lengths, context) for lengths in canvases]
        if shares_context(runtime):
            results, shared, num_asked = yield from try_over_one_context(rows, shared)
        else:
            results, num_asked = (yield from ask([row.open_pass() for row in rows])), 1
        forwards += num_asked
        confidences = [mean_confidences(row, result) for row, result in zip(rows, results, strict=True)]


def try_over_one_context(
    rows: list[CanvasRow], shared: ContextKeys | None
) -> Generator[Work, list[Result], tuple[list[Result], ContextKeys, int]]:
    """Returns the results of the trial passes, the context's KV cache, and the number of forward passes.

    The middle row computes the context and is shown meanwhile; the others compute only their holes.
    """
    found: list[Result | None] = [None] * len(rows)
    forwards = 0
    for row in rows:
        row.cache.cache = CACHES.find("dual")  # computes the holes alone if the context is stored, else everything
    if shared is None:
        middle = len(rows) // 2
        row = rows[middle]
        (result,) = yield from ask([row.open_pass()], show(row, 0))
        row.cache.keep(result)
        found[middle], shared, forwards = result, row.cache.share_context(), 1
    left = [index for index, result in enumerate(found) if result is None]
    for start in range(0, len(left), TRIALS_AT_ONCE):
        part = left[start : start + TRIALS_AT_ONCE]
        event = show(rows[part[0]], 0) if not forwards else None
        for index in part:
            rows[index].cache.begin_with(shared, rows[index].sequence(), with_room=False)
        results = yield from ask([rows[index].open_pass() for index in part], event)
        for index, result in zip(part, results, strict=True):
            found[index] = result
        forwards += 1
    return [result for result in found if result is not None], shared, forwards


def score_lengths(runtime: Runtime, context: EncodedContext | None) -> LengthScores | None:
    if context is None or not runtime.family.length_buckets:
        return None
    model = runtime.loaded.model
    assert isinstance(model, Embedded)
    with torch.inference_mode():
        logits = model.length_head(context.edges.view(-1, 2 * context.edges.shape[1]))  # [G, K]
        return LengthScores(runtime.family.length_buckets, logits.float().log_softmax(dim=-1).cpu())


def mean_confidences(row: CanvasRow, result: Result) -> list[float]:
    """Mean confidence of each hole's masked positions after one forward pass."""
    assert result.chosen is not None
    holes = row.canvas.hole_of[row.canvas.masked[0]]
    shown = result.chosen.confidence
    of_holes = [shown[holes[: len(shown)] == hole] for hole in range(len(row.canvas.outlines))]
    return [float(values.mean()) if len(values) else 0.0 for values in of_holes]
