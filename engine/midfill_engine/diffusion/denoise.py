"""The denoising loop: one request in, forward passes and events out. Knows tokens and models; no HTTP, no threads."""

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import torch

from midfill_engine.caches import CACHES
from midfill_engine.caches.keys import RowCache
from midfill_engine.caches.stores import EncodedContext
from midfill_engine.diffusion.canvas import Canvas
from midfill_engine.diffusion.laying import lay_canvas
from midfill_engine.diffusion.plan import (
    TRIALS_AT_ONCE,
    Plan,
    read_request,
    take_authors,
)
from midfill_engine.diffusion.row import CanvasRow
from midfill_engine.diffusion.uniform import UniformRow
from midfill_engine.errors import RequestError
from midfill_engine.families.embedded import LENGTH_BUCKETS, Embedded
from midfill_engine.groups import split
from midfill_engine.lengths import Lengths, LengthScores
from midfill_engine.loading.canvas_model import CanvasPass
from midfill_engine.loading.runtime import Runtime
from midfill_engine.models.packed import Pass, Result
from midfill_engine.requests.outline import is_blank
from midfill_engine.requests.seeds import seeded, with_seed
from midfill_engine.requests.timer import Clock, Timer
from midfill_engine.scheduling.work import Asking, Claim, Fill, ask
from midfill_engine.wire import (
    ErrorCode,
    FilledHole,
    HoleSegment,
    HoleSpec,
    InfillRequest,
    InfillResponse,
    Judged,
    Stats,
    StepEvent,
)

# Temperature of alternatives if the request has none: all greedy ones would be the same.
ALTERNATIVE_TEMPERATURE: Final = 0.8
MAX_STEPS: Final = 1024
EMPTY: Final = 1e-3  # certainty of a fill without tokens


def fill_by_denoising(
    runtime: Runtime,
    request: InfillRequest,
    clock: Clock = time.perf_counter,
    cache: str | None = None,
    lengths: str | None = None,
) -> Fill:
    """`cache` and `lengths` name variants, None the model's own. The time that the request has is one of `clock`, in
    seconds. Raises RequestError.
    """
    started_s, timer = clock(), Timer.of(request.max_ms, clock)
    request = with_seed(take_authors(runtime.family, request))
    plan = read_request(runtime, request, cache, lengths)
    yield Claim(plan.count_bytes())
    rows, forwards, reused = yield from begin_rows(plan)
    first, step = rows[0], 0
    while open_rows := [row for row in rows if not row.is_done]:
        if timer.is_over:
            for row in open_rows:  # the next step is the last one
                row.num_steps = min(row.num_steps, row.step + 1)
        passes = [row.open_pass() for row in open_rows]
        results = yield from ask(passes, partial(show, first, step))
        for row, result in zip(open_rows, results, strict=True):
            row.absorb(result)
        step, forwards = step + 1, forwards + 1
    yield show(first, step)
    stats = Stats(
        steps=step,
        forwards=forwards,
        tokens=0,
        ms=(clock() - started_s) * 1000,
        cached_context=reused,
        context_tokens=len(plan.context_ids),
    )
    return answer(plan, rows, stats)


def begin_rows(plan: Plan) -> Asking[tuple[list[CanvasRow] | list[UniformRow], int, bool]]:
    """The rows to denoise, the number of forward passes so far, and if the context was cached. Raises RequestError."""
    if plan.runtime.family.attention == "canvas":
        canvases, _, _ = yield from choose_lengths(plan, None)
        (past,) = yield from ask([CanvasPass(torch.tensor(plan.texts[0]))])
        uniform = [
            UniformRow(plan, lay_canvas(plan, lengths), seeded(plan.request.seed, index), past)
            for index in range(plan.request.n)
            for lengths in canvases
        ]
        return uniform, 1, False
    context, reused, forwards = yield from encode_context(plan)
    canvases, num_searches, shared = yield from choose_lengths(plan, context)
    rows = [make_row(plan, lengths, context, index) for index in range(plan.request.n) for lengths in canvases]
    if shared is not None and plan.cache.keeps_rows:
        for row in rows:
            row.cache.begin_with(shared, row.sequence(), with_room=True)
    return rows, forwards + num_searches, reused


def encode_context(plan: Plan) -> Asking[tuple[EncodedContext | None, bool, int]]:
    """The context if nothing behind it can change its keys, whether it was cached, and the number of forward passes."""
    runtime, family = plan.runtime, plan.runtime.family
    if family.attention != "context_frozen":
        return None, False, 0
    frame = plan.frame([0] * len(plan.outline.holes))
    keeps = plan.cache.attentions == {"context_frozen"}
    key = tuple(plan.context_ids.tolist()), tuple(frame.layout.context_positions.tolist())
    known = runtime.contexts.get(key) if keeps else None
    if known is not None:
        return known, True, 0
    positions = frame.for_heads(slice(None), runtime.loaded.config.transformer.num_heads)
    (result,) = yield from ask([Pass(plan.context_ids, positions, frame.layout.edges.flatten(), keeps=True)])
    assert result.own is not None
    context = EncodedContext(result.hidden, result.own)
    if keeps:
        runtime.contexts.put(key, context)
    return context, False, 1


def trial_row(plan: Plan, lengths: Lengths, context: EncodedContext | None) -> CanvasRow:
    """A greedy row for one forward pass over a canvas of these lengths."""
    greedy = InfillRequest(segments=[HoleSegment(hole=HoleSpec())])
    return make_row(replace(plan, request=greedy), lengths, context, 0)


def make_row(plan: Plan, lengths: Lengths, context: EncodedContext | None, index: int) -> CanvasRow:
    """The row of alternative number `index`. Raises RequestError."""
    runtime, request = plan.runtime, plan.request
    canvas = lay_canvas(plan, lengths)
    sampler = plan.sampler()
    num_masked = max(1, int(canvas.masked.sum()))
    if plan.policy.may_expand:
        num_masked = min(MAX_STEPS, 2 * (num_masked + int(canvas.expandable.sum())))
    num_steps = request.steps or max(1, sampler.count_steps(num_masked, plan.quality))
    context_keys = context.keys_values if context and plan.cache.attentions == {"context_frozen"} else None
    return CanvasRow(
        plan=plan,
        canvas=canvas,
        sampler=sampler,
        cache=RowCache(plan.cache, context_keys, runtime.loaded.config.transformer),
        num_steps=num_steps if sampler.takes_back else min(num_masked, num_steps),
        temperature=request.temperature or (ALTERNATIVE_TEMPERATURE if index else 0.0),
        generator=seeded(request.seed, index),
    )


def show(row: CanvasRow | UniformRow, step: int) -> StepEvent:
    """The event of a row after `step` steps."""
    holes = [row.canvas.state(hole) for hole in range(len(row.canvas.outlines))]
    return StepEvent(step=step, num_steps=max(1, row.num_steps, step), holes=holes)


def answer(plan: Plan, rows: Sequence[CanvasRow | UniformRow], stats: Stats) -> InfillResponse:
    """Builds the response: rows ranked by the confidence of their tokens; with the given texts, by their certainty, if
    the model knows its own.
    """
    own, seed = plan.runtime.family.own_certainty, plan.request.seed
    best = sorted(rows, key=lambda row: row.canvas.mean_log_confidence, reverse=True)[: plan.request.n]
    holes = range(len(plan.outline.holes))
    fills = [[row.canvas.fill(hole, certainty_of(row.canvas, hole, own)) for hole in holes] for row in best]
    stats = stats.model_copy(update={"tokens": best[0].canvas.num_new_tokens})
    model = plan.runtime.names[0]
    compared: list[list[FilledHole]] = []
    if own is not None:
        specs = [segment.hole for segment in plan.request.segments if isinstance(segment, HoleSegment)]
        compared = [rank_certain(plan, [row[hole] for row in fills], spec) for hole, spec in enumerate(specs)]
        fills = list(map(list, zip(*(texts[: len(fills)] for texts in compared), strict=True)))
    candidates = [[Judged(text=each.text, certainty=each.certainty) for each in texts] for texts in compared]
    return InfillResponse(
        model=model, holes=fills[0], alternatives=fills[1:], candidates=candidates, stats=stats, seed=seed
    )


def rank_certain(plan: Plan, fills: Sequence[FilledHole], spec: HoleSpec) -> list[FilledHole]:
    """A hole's fills and its given texts that fit, the most certain first; fills without a certainty before all."""
    encode, most = plan.runtime.loaded.tokenizer.encode, spec.max_tokens or plan.runtime.loaded.config.max_hole
    given = [
        FilledHole(
            text=each.text,
            tokens=[(0, len(each.text))] if each.text else [],
            confidence=[each.certainty] if each.text else [],
            certainty=each.certainty,
        )
        for each in spec.candidates
        if len(encode(each.text)) <= most
    ]
    return sorted([*fills, *given], key=lambda each: -1.0 if each.certainty is None else -each.certainty)


def certainty_of(canvas: Canvas, hole: int, own: float | None) -> float | None:
    """`own`, the probability that a text of this model is right; None if that is unknown, or the text partly given."""
    here = (canvas.hole_of == hole) & ~canvas.anchored
    if own is None:
        return None
    if bool(here.any()) and not bool((here & ~canvas.vocabulary.is_deletion(canvas.ids)).any()):
        return EMPTY
    return own if is_blank(canvas.outlines[hole]) else None


def choose_lengths(plan: Plan, context: EncodedContext | None) -> Asking[tuple[list[Lengths], int, RowCache | None]]:
    """The canvases to fill, the number of forward passes, and the context's KV cache if the trials shared it."""
    runtime = plan.runtime
    needs = [hole.need(runtime.loaded.config.max_hole) for hole in plan.outline.holes]
    if not any(need.hints for need in needs):  # all holes are anchors
        return [[[] for _ in needs]], 0, None
    search = plan.policy.search(needs, score_lengths(runtime, context))
    confidences: list[list[float]] | None = None
    shared: RowCache | None = None
    forwards = 0
    while True:
        try:
            canvases = search.send(confidences)  # type: ignore[arg-type]
        except StopIteration as stop:
            return stop.value, forwards, shared
        if runtime.family.attention == "canvas":
            message = "this length policy asks how sure a model is of its masks, and this one has none"
            raise RequestError(ErrorCode.BAD_REQUEST, message, "leave it out to take the model's own")
        rows = [trial_row(plan, lengths, context) for lengths in canvases]
        if runtime.family.attention == "bidirectional":  # one context for all trials, although it attends to the holes
            results, shared, num_asked = yield from try_over_one_context(rows, shared)
        else:
            results, num_asked = (yield from ask([row.open_pass() for row in rows])), 1
        forwards += num_asked
        confidences = [mean_confidences(row, result) for row, result in zip(rows, results, strict=True)]


def try_over_one_context(rows: list[CanvasRow], shared: RowCache | None) -> Asking[tuple[list[Result], RowCache, int]]:
    """Results of the trial passes, the context's KV cache, and the number of forward passes. The middle row also
    computes the context and is shown meanwhile; the others compute only their holes.
    """
    found: dict[int, Result] = {}
    for row in rows:
        row.cache.cache = CACHES.find("dual")  # computes the holes alone if the context is stored, else everything
    if shared is None:
        middle = len(rows) // 2
        row, shared = rows[middle], rows[middle].cache
        (found[middle],) = yield from ask([row.open_pass()], partial(show, row, 0))
        shared.keep(found[middle])
    forwards = len(found)
    left = [index for index in range(len(rows)) if index not in found]
    for part in split(left, lambda _: 1, TRIALS_AT_ONCE):
        showing = None if forwards else partial(show, rows[part[0]], 0)
        for index in part:
            rows[index].cache.begin_with(shared, rows[index].sequence(), with_room=False)
        results = yield from ask([rows[index].open_pass() for index in part], showing)
        found |= dict(zip(part, results, strict=True))
        forwards += 1
    return [found[index] for index in range(len(rows))], shared, forwards


def score_lengths(runtime: Runtime, context: EncodedContext | None) -> LengthScores | None:
    model = runtime.loaded.model
    if context is None or not isinstance(model, Embedded):
        return None
    with torch.inference_mode():
        logits = model.length_head(context.edges.view(-1, 2 * context.edges.shape[1]))  # [G, K]
        return LengthScores(LENGTH_BUCKETS, logits.float().log_softmax(dim=-1).cpu())


def mean_confidences(row: CanvasRow, result: Result) -> list[float]:
    """Mean confidence of each hole's masked positions after one forward pass."""
    assert result.chosen is not None
    holes = torch.from_numpy(row.canvas.hole_of[row.canvas.masked])
    shown = result.chosen.confidence
    of_holes = [shown[holes[: len(shown)] == hole] for hole in range(len(row.canvas.outlines))]
    return [float(values.mean()) if len(values) else 0.0 for values in of_holes]
