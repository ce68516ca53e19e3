"""The denoising loop: one request in, forward passes and events out. Knows tokens and models; no HTTP, no threads."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import torch

from midfill_engine.caches import CACHES
from midfill_engine.caches.keys import CanvasCache
from midfill_engine.caches.stores import EncodedContext
from midfill_engine.diffusion.canvas import Canvas
from midfill_engine.diffusion.denoiser import CanvasDenoiser
from midfill_engine.diffusion.laying import lay_canvas
from midfill_engine.diffusion.plan import TRIALS_AT_ONCE, Plan, read_request, take_authors
from midfill_engine.diffusion.uniform import UniformDenoiser
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
from midfill_engine.scheduling.work import Claim, ForwardCounter, Show, forward
from midfill_engine.wire import (
    ALTERNATIVE_TEMPERATURE,
    ErrorCode,
    FilledHole,
    HoleSegment,
    HoleSpec,
    InfillRequest,
    InfillResponse,
    Stats,
    StepEvent,
)

MAX_STEPS: Final = 1024
EMPTY: Final = 1e-3  # certainty of a fill without tokens


async def fill_by_denoising(
    runtime: Runtime,
    request: InfillRequest,
    clock: Clock = time.perf_counter,
    cache: str | None = None,
    lengths: str | None = None,
) -> InfillResponse:
    """Fills a request by denoising. `cache` and `lengths` name variants, None the model's own. `clock` gives seconds;
    it measures the request's `max_ms`. Raises RequestError.
    """
    started_s = clock()
    request = with_seed(take_authors(runtime.family, request))
    plan = read_request(runtime, request, cache, lengths)
    forwards = ForwardCounter()
    await Claim(plan.count_bytes())
    timer = Timer.of(request.max_ms, clock)
    denoisers, is_cached = await forwards.run(begin_denoisers(plan))
    num_steps = await forwards.run(denoise(denoisers, timer))
    await Show(event_of(denoisers[0], num_steps))
    stats = Stats(
        steps=num_steps,
        forwards=forwards.count,
        tokens=0,
        ms=(clock() - started_s) * 1000,
        cached_context=is_cached,
        context_tokens=len(plan.context_ids),
    )
    return answer(plan, denoisers, stats)


async def denoise(denoisers: Sequence[CanvasDenoiser | UniformDenoiser], timer: Timer) -> int:
    """Settles all positions of the denoisers, the first of which is shown; returns the number of steps."""
    step = 0
    while open_denoisers := [denoiser for denoiser in denoisers if not denoiser.is_done]:
        if timer.is_over:
            for denoiser in open_denoisers:  # the next step is the last one
                denoiser.num_steps = min(denoiser.num_steps, denoiser.step + 1)
        passes = [denoiser.open_pass() for denoiser in open_denoisers]
        results = await forward(passes, partial(event_of, denoisers[0], step))
        for denoiser, result in zip(open_denoisers, results, strict=True):
            denoiser.absorb(result)
        step += 1
    return step


async def begin_denoisers(plan: Plan) -> tuple[list[CanvasDenoiser] | list[UniformDenoiser], bool]:
    """Returns the denoisers of all canvases, and whether the context was cached. Raises RequestError."""
    if plan.runtime.family.attention == "canvas":
        return await begin_uniform_denoisers(plan), False
    context, is_cached = await encode_context(plan)
    canvases, shared = await choose_lengths(plan, context)
    denoisers: list[CanvasDenoiser] = []
    for index in range(plan.request.n):
        denoisers += [make_denoiser(plan, lengths, context, index) for lengths in canvases]
    if shared is not None and plan.cache.keeps_own_keys:
        for denoiser in denoisers:
            denoiser.cache.begin_with(shared, denoiser.sequence(), with_room=True)
    return denoisers, is_cached


async def begin_uniform_denoisers(plan: Plan) -> list[UniformDenoiser]:
    canvases, _ = await choose_lengths(plan, None)
    (past,) = await forward([CanvasPass(torch.tensor(plan.texts[0]))])
    denoisers: list[UniformDenoiser] = []
    for index in range(plan.request.n):
        for lengths in canvases:
            denoisers.append(UniformDenoiser(plan, lay_canvas(plan, lengths), seeded(plan.request.seed, index), past))
    return denoisers


async def encode_context(plan: Plan) -> tuple[EncodedContext | None, bool]:
    """Returns the encoded context, None if the holes can change its keys; and whether it was cached."""
    runtime = plan.runtime
    if runtime.family.attention != "context_frozen":
        return None, False
    frame = plan.frame([0] * len(plan.outline.holes))
    key = (tuple(plan.context_ids.tolist()), tuple(frame.layout.context_positions.tolist()))
    is_stored = plan.cache.attentions == {"context_frozen"}
    if is_stored:
        stored = runtime.contexts.get(key)
        if stored is not None:
            return stored, True
    positions = frame.for_heads(slice(None), runtime.loaded.config.transformer.num_heads)
    (result,) = await forward([Pass(plan.context_ids, positions, frame.layout.edges.flatten(), keeps=True)])
    assert result.own is not None
    context = EncodedContext(result.hidden, result.own)
    if is_stored:
        runtime.contexts.put(key, context)
    return context, False


def make_trial_denoiser(plan: Plan, lengths: Lengths, context: EncodedContext | None) -> CanvasDenoiser:
    """A greedy denoiser for one forward pass over a canvas of these lengths."""
    greedy = InfillRequest(segments=[HoleSegment(hole=HoleSpec())])
    return make_denoiser(replace(plan, request=greedy), lengths, context, 0)


def make_denoiser(plan: Plan, lengths: Lengths, context: EncodedContext | None, index: int) -> CanvasDenoiser:
    """The denoiser of alternative `index`, from 0 on, with a canvas of these lengths. Raises RequestError."""
    request = plan.request
    canvas = lay_canvas(plan, lengths)
    sampler = plan.sampler()
    num_masked = max(1, int(canvas.masked.sum()))
    if plan.policy.may_expand:
        num_masked = min(MAX_STEPS, 2 * (num_masked + int(canvas.expandable.sum())))
    num_steps = request.steps or max(1, sampler.count_steps(num_masked, plan.quality))
    if not sampler.takes_back:
        num_steps = min(num_masked, num_steps)
    context_keys = None
    if context and plan.cache.attentions == {"context_frozen"}:
        context_keys = context.keys_values
    temperature = request.temperature
    if index and not temperature:  # otherwise all alternatives would be the same
        temperature = ALTERNATIVE_TEMPERATURE
    return CanvasDenoiser(
        plan=plan,
        canvas=canvas,
        sampler=sampler,
        cache=CanvasCache(plan.cache, context_keys, plan.runtime.loaded.config.transformer),
        num_steps=num_steps,
        temperature=temperature,
        generator=seeded(request.seed, index),
    )


def event_of(denoiser: CanvasDenoiser | UniformDenoiser, step: int) -> StepEvent:
    """The event that shows a denoiser's canvas after `step` steps."""
    return StepEvent(step=step, num_steps=max(1, denoiser.num_steps, step), holes=denoiser.canvas.states())


def answer(plan: Plan, denoisers: Sequence[CanvasDenoiser | UniformDenoiser], stats: Stats) -> InfillResponse:
    """Builds the response from the canvases with the most confident tokens. If the certainty of the model's texts is
    known, the fills of each hole are ranked by it, together with the given texts.
    """
    best = sorted(denoisers, key=lambda denoiser: denoiser.canvas.mean_log_confidence, reverse=True)[: plan.request.n]
    own = plan.runtime.family.own_certainty
    fills: list[list[FilledHole]] = []
    for canvas in (denoiser.canvas for denoiser in best):
        fills.append([canvas.fill(hole, certainty_of(canvas, hole, own)) for hole in range(len(canvas.outlines))])
    candidates: list[list[FilledHole]] = []
    if own is not None:
        specs = [segment.hole for segment in plan.request.segments if isinstance(segment, HoleSegment)]
        ranked_by_hole = [rank_certain(plan, [fill[hole] for fill in fills], spec) for hole, spec in enumerate(specs)]
        fills = [[ranked[index] for ranked in ranked_by_hole] for index in range(len(fills))]
        for ranked in ranked_by_hole:
            candidates.append([FilledHole(text=fill.text, certainty=fill.certainty) for fill in ranked])
    return InfillResponse(
        model=plan.runtime.names[0],
        holes=fills[0],
        alternatives=fills[1:],
        candidates=candidates,
        stats=stats.model_copy(update={"tokens": best[0].canvas.num_new_tokens}),
        seed=plan.request.seed,
    )


def rank_certain(plan: Plan, fills: Sequence[FilledHole], spec: HoleSpec) -> list[FilledHole]:
    """A hole's fills and its given texts that fit, the most certain first; fills without a certainty before all."""
    loaded = plan.runtime.loaded
    max_tokens = spec.max_tokens or loaded.config.max_hole
    ranked = list(fills)
    for given in spec.candidates:
        text, certainty = given.text, given.certainty
        is_forbidden = any(part in text for part in spec.forbid)
        if spec.min_tokens <= len(loaded.tokenizer.encode(text)) <= max_tokens and not is_forbidden:
            tokens = [(0, len(text))] if text else []
            confidence = [certainty] * len(tokens)
            ranked.append(FilledHole(text=text, tokens=tokens, confidence=confidence, certainty=certainty))
    return sorted(ranked, key=lambda fill: -1.0 if fill.certainty is None else -fill.certainty)


def certainty_of(canvas: Canvas, hole: int, own: float | None) -> float | None:
    """The probability that the fill is right: the model's `own`, or EMPTY for a fill without tokens of the model. None
    if the model's is unknown, or if the text is partly known.
    """
    if own is None:
        return None
    in_hole = (canvas.hole_of == hole) & ~canvas.anchored
    is_deleted = canvas.vocabulary.is_deletion(canvas.ids)
    if in_hole.any() and not (in_hole & ~is_deleted).any():
        return EMPTY
    return own if is_blank(canvas.outlines[hole]) else None


async def choose_lengths(plan: Plan, context: EncodedContext | None) -> tuple[list[Lengths], CanvasCache | None]:
    """Returns the lengths of the canvases to fill, and the context's KV cache if trials of lengths shared it."""
    bounds_of_holes = [hole.length_bounds(plan.runtime.loaded.config.max_hole) for hole in plan.outline.holes]
    if not any(bounds.hints for bounds in bounds_of_holes):  # all holes are anchors
        return [[[] for _ in bounds_of_holes]], None
    trials = Trials(plan, context)
    canvases = await plan.policy.search(bounds_of_holes, score_lengths(plan.runtime, context), trials.measure)
    return canvases, trials.shared


@dataclass
class Trials:
    """Forward passes over canvases that a length policy compares. `shared` is the context's KV cache, once one of the
    passes has computed it for all.
    """

    plan: Plan
    context: EncodedContext | None
    shared: CanvasCache | None = None

    async def measure(self, canvases: list[Lengths]) -> list[list[float]]:
        """The mean confidence of each hole on each canvas of these lengths. Raises RequestError."""
        attention = self.plan.runtime.family.attention
        if attention == "canvas":
            message = "this length policy asks how sure a model is of its masks, and this model has no masks"
            raise RequestError(ErrorCode.BAD_REQUEST, message, "leave it out to take the model's own")
        denoisers = [make_trial_denoiser(self.plan, lengths, self.context) for lengths in canvases]
        if attention == "bidirectional":  # one context for all trials, although it attends to the holes
            results, self.shared = await try_over_one_context(denoisers, self.shared)
        else:
            results = await forward([denoiser.open_pass() for denoiser in denoisers])
        return [mean_confidences(denoiser, result) for denoiser, result in zip(denoisers, results, strict=True)]


async def try_over_one_context(
    denoisers: list[CanvasDenoiser], shared: CanvasCache | None
) -> tuple[list[Result], CanvasCache]:
    """Returns the results of the denoisers' passes, and the context's KV cache. If none is `shared` yet, the middle
    denoiser also computes the context, and is shown meanwhile. All other denoisers compute only their holes.
    """
    results: dict[int, Result] = {}
    for denoiser in denoisers:
        denoiser.cache.cache = CACHES.find("dual")  # computes the holes alone if the context is stored, else everything
    context_cache = shared
    if context_cache is None:
        middle = len(denoisers) // 2
        denoiser = denoisers[middle]
        (results[middle],) = await forward([denoiser.open_pass()], partial(event_of, denoiser, 0))
        context_cache = denoiser.cache
        context_cache.keep(results[middle])
    left = [index for index in range(len(denoisers)) if index not in results]
    for part in split(left, lambda _: 1, TRIALS_AT_ONCE):
        showing = None if results else partial(event_of, denoisers[part[0]], 0)
        for index in part:
            denoisers[index].cache.begin_with(context_cache, denoisers[index].sequence(), with_room=False)
        results |= zip(part, await forward([denoisers[index].open_pass() for index in part], showing), strict=True)
    return [results[index] for index in range(len(denoisers))], context_cache


def score_lengths(runtime: Runtime, context: EncodedContext | None) -> LengthScores | None:
    model = runtime.loaded.model
    if context is None or not isinstance(model, Embedded):
        return None
    with torch.inference_mode():
        logits = model.length_head(context.edges.view(-1, 2 * context.edges.shape[1]))  # [G, K]
        return LengthScores(LENGTH_BUCKETS, logits.float().log_softmax(dim=-1).cpu())


def mean_confidences(denoiser: CanvasDenoiser, result: Result) -> list[float]:
    """The mean confidence of each hole's masked positions after one forward pass; 0 for a hole that was not scored."""
    assert result.chosen is not None
    confidence = result.chosen.confidence
    hole_of = torch.from_numpy(denoiser.canvas.hole_of[denoiser.canvas.masked])[: len(confidence)]
    values_of_holes = [confidence[hole_of == hole] for hole in range(len(denoiser.canvas.outlines))]
    return [float(values.mean()) if len(values) else 0.0 for values in values_of_holes]
