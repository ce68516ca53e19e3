"""The denoising loop: one request in, forwards and events out. Knows tokens and models; no HTTP, no threads."""

import math
import time
from collections.abc import Generator, Sequence
from typing import Any, Final

import torch

from midfill_engine.caches import CACHES, EncodedContext
from midfill_engine.caches.held import ContextKeys
from midfill_engine.denoising.authors import dial, take_authors
from midfill_engine.denoising.canvas import Canvas, lay_canvas
from midfill_engine.denoising.causal import draft_rest, rank_rows
from midfill_engine.denoising.drafts import Laid, certainty_of, choose, lay
from midfill_engine.denoising.plan import TRIALS_AT_ONCE, Plan, count_bytes, read_request, shares_context
from midfill_engine.denoising.row import Row
from midfill_engine.denoising.seeds import seeded, with_seed
from midfill_engine.denoising.uniform import UniformRow, denoise_rows, texts_behind
from midfill_engine.denoising.work import Claim, Fill, Work, ask
from midfill_engine.errors import RequestError
from midfill_engine.experts import Proposal
from midfill_engine.lengths import Lengths, LengthScores
from midfill_engine.loading.guide import Supervision
from midfill_engine.loading.runtime import Runtime
from midfill_engine.models.packed import Pass, Result
from midfill_engine.models.sequence import Sequence as TokenSequence
from midfill_engine.wire import Draft, ErrorCode, InfillRequest, InfillResponse, Stats, StepEvent

# Alternatives of a request without temperature: the first is greedy, the others would all be the same.
ALTERNATIVE_TEMPERATURE: Final = 0.8
MAX_STEPS: Final = 1024


def denoise(
    runtime: Runtime, request: InfillRequest, *, cache: str | None = None, lengths: str | None = None
) -> Generator[StepEvent, None, InfillResponse]:
    """Fills all holes of `request` jointly. Yields step 0 before any token is settled, then one event a step.

    Closing the generator stops the work. `cache` and `lengths` name variants other than the family's own. The events
    show the first row; the answer puts the fill with the highest mean log confidence first. Raises RequestError.
    """
    fill = open_fill(runtime, request, cache=cache, lengths=lengths)
    answer: Any = None
    while True:
        try:
            item = fill.send(answer)
        except StopIteration as stop:
            assert isinstance(stop.value, InfillResponse)
            return stop.value
        answer = None
        match item:
            case StepEvent():
                yield item
            case Work():
                if item.event is not None:
                    yield item.event
                answer = runtime.run(item.passes)


def drain(steps: Generator[StepEvent, None, InfillResponse]) -> InfillResponse:
    """The answer of a fill whose events nobody needs."""
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            assert isinstance(stop.value, InfillResponse)
            return stop.value


def open_fill(
    runtime: Runtime, request: InfillRequest, *, cache: str | None = None, lengths: str | None = None
) -> Fill:
    """The fill as a coroutine: it claims memory, asks for forwards (`Work`, answered by its results) and shows events.

    Raises RequestError.
    """
    started_s = time.perf_counter()
    request = with_seed(take_authors(runtime.family, request))
    plan = read_request(runtime, request, cache, lengths)
    yield Claim(count_bytes(runtime, plan, request))
    if runtime.family.attention == "canvas":
        return (yield from fill_canvas(runtime, request, plan, started_s))
    proposals = yield from hear_experts(request, plan)
    drafts = choose_drafts(runtime, request, plan, proposals)
    keeps = plan.cache is CACHES.find("kept")
    known = runtime.recent.find(plan.context_ids) if keeps else None
    shared = known
    context, reused, forwards, canvases = None, False, 0, [[list[int]() for _ in plan.outline.holes]]
    if any(draft is None for row in drafts for draft in row):  # else there is nothing to denoise
        context, reused, forwards = yield from encode_context(runtime, plan)
        drafts, num_drafting = yield from draft_rest(runtime, request, plan, context, drafts)
        forwards += num_drafting
        canvases, num_searches, shared = yield from choose_lengths(runtime, plan, context, known)
        forwards += num_searches
    rows = open_rows(runtime, request, plan, canvases, context, drafts)
    if shared is not None:
        for row in rows if keeps else []:
            row.begin_with(shared)
    first, step = rows[0], 0
    while any(not row.is_done for row in rows):
        open_rows_now = [row for row in rows if not row.is_done]
        hurry(open_rows_now, request, started_s)
        passes = [row.open_pass() for row in open_rows_now]
        results = yield from ask(passes, show(first, step))
        yield from hear_guide(open_rows_now, results)
        for row, result in zip(open_rows_now, results, strict=True):
            row.absorb(result)
        step, forwards = step + 1, forwards + 1
    yield show(first, step)
    if keeps and bool(first.kept.kept[: len(plan.context_ids)].all()) and first.kept.layers:
        runtime.recent.put(plan.context_ids, first.share_context())
    stats = Stats(
        steps=step,
        forwards=forwards,
        tokens=0,
        ms=(time.perf_counter() - started_s) * 1000,
        cached_context=reused or known is not None,
        context_tokens=len(plan.context_ids),
    )
    likelihoods = yield from rank_rows(runtime, plan, context, [row.canvas for row in rows])
    return answer(runtime, rows, request, stats, proposals, likelihoods)


def hurry(rows: Sequence[Row | UniformRow], request: InfillRequest, started_s: float) -> None:
    """Makes the next step the last one where the request's time is over."""
    if request.max_ms is None or (time.perf_counter() - started_s) * 1000 < request.max_ms:
        return
    for row in rows:
        row.num_steps = min(row.num_steps, row.step + 1)


def fill_canvas(runtime: Runtime, request: InfillRequest, plan: Plan, started_s: float) -> Fill:
    """A fill of a model without a mask token. Raises RequestError."""
    proposals = yield from hear_experts(request, plan)
    canvases, _, _ = yield from choose_lengths(runtime, plan, None)
    texts = plan.texts()
    rows = [
        make_uniform_row(runtime, request, plan, texts, lengths, index)
        for index in range(request.n)
        for lengths in canvases
    ]
    steps, forwards = yield from denoise_rows(
        rows, torch.tensor(texts[0]), show, lambda open_rows: hurry(open_rows, request, started_s)
    )
    yield show(rows[0], steps)
    stats = Stats(
        steps=steps,
        forwards=forwards,
        tokens=0,
        ms=(time.perf_counter() - started_s) * 1000,
        context_tokens=len(plan.context_ids),
    )
    return answer(runtime, rows, request, stats, proposals)


def make_uniform_row(
    runtime: Runtime, request: InfillRequest, plan: Plan, texts: list[list[int]], lengths: Lengths, index: int
) -> UniformRow:
    """Alternative number `index`. Raises RequestError."""
    canvas = make_canvas(runtime, plan, lengths, request.n)
    model = runtime.loaded
    return UniformRow(
        model=model,
        canvas=canvas,
        behind=texts_behind(texts, canvas.hole_lengths(), model.canvas_length),
        sampler=plan.sampler(),
        num_steps=min(request.steps or model.num_steps, model.num_steps),
        quality=dial(runtime.family, request),
        generator=seeded(request.seed, index),
    )


def hear_guide(rows: list[Row], results: list[Result]) -> Generator[Work, list[Result], None]:
    """Tells every row what the supervisor says of its proposals, where there is one."""
    questions = [row.question(result) for row, result in zip(rows, results, strict=True)]
    asked = [(row, question) for row, question in zip(rows, questions, strict=True) if question is not None]
    if asked:
        answers = yield from ask([question for _, question in asked])
        for (row, _), said in zip(asked, answers, strict=True):
            row.hear(said)


def show(row: Row | UniformRow, step: int) -> StepEvent:
    holes = [row.canvas.state(0, hole) for hole in range(len(row.canvas.outlines))]
    return StepEvent(step=step, num_steps=max(row.num_steps, step), holes=holes)


def answer(
    runtime: Runtime,
    rows: Sequence[Row | UniformRow],
    request: InfillRequest,
    stats: Stats,
    proposals: list[list[Proposal]],
    likelihoods: list[float] | None = None,
) -> InfillResponse:
    """The surest rows, best first; where calibrated certainties are known, by these, else by `likelihoods`."""
    curve = runtime.family.certainty
    sure = [[certainty_of(row.canvas, hole, curve) for hole in range(len(row.canvas.outlines))] for row in rows]
    logs = torch.cat([row.canvas.mean_log_confidence() for row in rows])
    if likelihoods is not None:
        logs = torch.tensor(likelihoods)
    if all(value is not None for values in sure for value in values):
        logs = torch.tensor([sum(math.log(value) for value in values if value) for values in sure])
    best = logs.argsort(descending=True, stable=True).tolist()[: request.n]
    fills = [[rows[index].canvas.fill(0, hole, value) for hole, value in enumerate(sure[index])] for index in best]
    stats = stats.model_copy(update={"tokens": rows[best[0]].canvas.num_new_tokens(0)})
    listed = [each[: request.num_drafts] for each in proposals] if request.num_drafts else []
    return InfillResponse(
        model=runtime.names[0],
        holes=fills[0],
        alternatives=fills[1:],
        drafts=[[Draft(text=each.text, certainty=each.certainty) for each in drafts] for drafts in listed],
        stats=stats,
        seed=request.seed,
    )


def hear_experts(request: InfillRequest, plan: Plan) -> Generator[Work, list[Result], list[list[Proposal]]]:
    """The experts' drafts for every hole; other requests go on between two holes."""
    found: list[list[Proposal]] = []
    for hole in range(len(plan.outline.holes)):
        if hole and found[-1]:
            yield Work([], 0)
        found.append(plan.panel.propose(hole) if plan.lays_drafts or request.num_drafts else [])
    return found


def choose_drafts(
    runtime: Runtime, request: InfillRequest, plan: Plan, proposals: list[list[Proposal]]
) -> list[list[Laid | None]]:
    """For every alternative the drafts to lay out in its holes."""
    needs = [outline.need(runtime.loaded.config.max_hole) for outline in plan.outline.holes]
    tokens, vocabulary = runtime.loaded.tokenizer, runtime.vocabulary
    fitting = [
        lay(listed, outline, need, tokens, vocabulary) if plan.lays_drafts and listed else []
        for listed, outline, need in zip(proposals, plan.outline.holes, needs, strict=True)
    ]
    generators = [seeded(request.seed, index) for index in range(request.n)]
    return [
        [choose(laid, index, request.temperature, generator) for laid in fitting]
        for index, generator in enumerate(generators)
    ]


def encode_context(
    runtime: Runtime, plan: Plan
) -> Generator[Work, list[Result], tuple[EncodedContext | None, bool, int]]:
    """The context's keys where nothing that follows can change them; whether they were known; forwards it took."""
    family, config = runtime.family, runtime.loaded.config
    if family.attention != "context_frozen":
        return None, False, 0
    layout = plan.lay_out(runtime)([0] * len(plan.outline.holes))
    keeps = plan.cache.attentions == {"context_frozen"}
    key = runtime.contexts.key(plan.context_ids, layout.context_positions)
    known = runtime.contexts.get(key) if keeps else None
    if known is not None:
        return known, True, 0
    sequence = TokenSequence.of(plan.context_ids, torch.arange(0), layout, family.attention, 0, 0)
    positions = sequence.for_heads(sequence.positions, config.transformer.num_heads)
    (result,) = yield from ask([Pass(plan.context_ids, positions, wanted=layout.edges.flatten(), keeps=True)])
    assert result.own is not None
    context = EncodedContext(result.hidden, result.own)
    if keeps:
        runtime.contexts.put(key, context)
    return context, False, 1


def choose_lengths(
    runtime: Runtime, plan: Plan, context: EncodedContext | None, shared: ContextKeys | None = None
) -> Generator[Work, list[Result], tuple[list[Lengths], int, ContextKeys | None]]:
    """The canvases to fill, how many forwards the search took, and the context's keys if it shared them."""
    needs = [hole.need(runtime.loaded.config.max_hole) for hole in plan.outline.holes]
    if not any(need.hints for need in needs):  # all is kept, nothing to fill
        return [[[] for _ in needs]], 0, shared
    search = plan.policy.search(needs, score_lengths(runtime, context))
    confidences: list[list[float]] | None = None
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
        if shares_context(runtime, plan):
            results, shared, num_asked = yield from try_over_one_context(rows, shared)
        else:
            results, num_asked = (yield from ask([row.open_pass() for row in rows])), 1
        forwards += num_asked
        confidences = [mean_confidences(row, result) for row, result in zip(rows, results, strict=True)]


def try_over_one_context(
    rows: list[Row], shared: ContextKeys | None
) -> Generator[Work, list[Result], tuple[list[Result], ContextKeys, int]]:
    """Results of first forwards, the context's keys, and how many forwards it took.

    Without keys from before, the middle row computes the context, and is shown meanwhile; the others only their holes.
    Of keys from an earlier request it computes what is new.
    """
    found: list[Result | None] = [None] * len(rows)
    forwards = 0
    if shared is None or not shared.is_whole:
        middle = len(rows) // 2
        row = rows[middle]
        row.cache = CACHES.find("kept")  # it computes what is not there, and keeps it
        if shared is not None:
            row.begin_with(shared)
        (result,) = yield from ask([row.open_pass()], show(row, 0))
        row.keep(result)
        found[middle], shared, forwards = result, row.share_context(), 1
    left = [index for index, result in enumerate(found) if result is None]
    for start in range(0, len(left), TRIALS_AT_ONCE):
        part = left[start : start + TRIALS_AT_ONCE]
        event = show(rows[part[0]], 0) if not forwards else None
        results = yield from ask([rows[index].open_over(shared) for index in part], event)
        for index, result in zip(part, results, strict=True):
            found[index] = result
        forwards += 1
    return [result for result in found if result is not None], shared, forwards


def score_lengths(runtime: Runtime, context: EncodedContext | None) -> LengthScores | None:
    if context is None or not runtime.family.length_buckets:
        return None
    with torch.inference_mode():
        logits = runtime.loaded.model.length_head(context.edges.view(-1, 2 * context.edges.shape[1]))  # [G, K]
        return LengthScores(runtime.family.length_buckets, logits.float().log_softmax(dim=-1).cpu())


def mean_confidences(row: Row, result: Result) -> list[float]:
    """Of every hole's masked positions, as proposed by a first forward."""
    assert result.chosen is not None
    holes = row.canvas.hole_of[row.canvas.masked[0]]
    shown = result.chosen.confidence
    of_holes = [shown[holes[: len(shown)] == hole] for hole in range(len(row.canvas.outlines))]
    return [float(values.mean()) if len(values) else 0.0 for values in of_holes]


def trial_row(runtime: Runtime, plan: Plan, lengths: Lengths, context: EncodedContext | None) -> Row:
    """A greedy row for one forward over a canvas of these lengths."""
    return make_row(runtime, plan, lengths, context, InfillRequest(segments=[{"hole": {}}]), 0)  # type: ignore[list-item]


def open_rows(
    runtime: Runtime,
    request: InfillRequest,
    plan: Plan,
    canvases: list[Lengths],
    context: EncodedContext | None,
    drafts: list[list[Laid | None]],
) -> list[Row]:
    """Every alternative over every canvas, with its drafts laid out; one with drafts in all holes has one canvas."""
    rows = []
    for index, laid in enumerate(drafts):
        for lengths in canvases if None in laid else canvases[:1]:
            own = [hole if draft is None else [len(draft.ids)] for hole, draft in zip(lengths, laid, strict=True)]
            row = make_row(runtime, plan, own, context, request, index)
            for hole, draft in enumerate(laid):
                if draft is not None and draft.confidences:
                    row.canvas.lay_own_draft(hole, draft.ids, draft.confidences, plan.policy.remasks)
                elif draft is not None:
                    row.canvas.lay_draft(hole, draft.ids, draft.certainty)
            rows.append(row)
    return rows


def make_row(
    runtime: Runtime,
    plan: Plan,
    lengths: Lengths,
    context: EncodedContext | None,
    request: InfillRequest,
    index: int,
) -> Row:
    """Alternative number `index` of a request. Raises RequestError."""
    family = runtime.family
    canvas = make_canvas(runtime, plan, lengths, request.n)
    sampler = plan.sampler()
    quality = dial(family, request)
    num_masked = max(1, canvas.num_masked)
    if plan.policy.may_expand:
        num_masked = min(MAX_STEPS, 2 * (num_masked + int(canvas.expandable.sum())))
    num_steps = request.steps or max(1, sampler.count_steps(num_masked, quality))
    supervision = None
    if runtime.guide is not None and sampler.needs_guide:
        specials = frozenset(runtime.tokens.special_ids)
        supervision = Supervision(runtime.guide, runtime.guide.prompt(plan.texts(), specials))
    keeps_context = context is not None and plan.cache.attentions == {"context_frozen"}
    return Row(
        runtime=runtime,
        canvas=canvas,
        context_ids=plan.context_ids,
        context_keys=context.keys_values if context is not None and keeps_context else None,
        lay_out=plan.lay_out(runtime),
        sampler=sampler,
        cache=plan.cache,
        policy=plan.policy,
        panel=plan.panel,
        supervision=supervision,
        num_steps=num_steps if sampler.takes_back else min(num_masked, num_steps),
        quality=quality,
        temperature=request.temperature or (ALTERNATIVE_TEMPERATURE if index else 0.0),
        top_p=request.top_p,
        generator=seeded(request.seed, index),
    )


def make_canvas(runtime: Runtime, plan: Plan, lengths: Lengths, num_rows: int) -> Canvas:
    holes = plan.outline.holes
    totals = [sum(hole) + outline.num_anchored for hole, outline in zip(lengths, holes, strict=True)]
    spill = count_spill(runtime, plan, totals[-1])
    totals[-1] += spill
    return lay_canvas(
        holes,
        lengths,
        plan.lay_out(runtime)(totals),
        runtime.vocabulary,
        mask_id=runtime.tokens.mask_id,
        num_rows=num_rows,
        may_delete=plan.policy.may_delete,
        may_expand=plan.policy.may_expand,
        is_length_chosen=plan.policy.chooses,
        max_hole=runtime.loaded.config.max_hole,
        spill=spill,
    )


def count_spill(runtime: Runtime, plan: Plan, total: int) -> int:
    """How many positions behind a hole of `total` complete its last block: models that write in blocks know no less.

    None where the hole ends in an anchor, or must not end early.
    """
    last, block_size = plan.outline.holes[-1], runtime.loaded.config.block_size
    is_open = runtime.tokens.ends_text and not runtime.family.aligned and plan.policy.may_delete and not last.min_tokens
    if not is_open or not last.stretches or last.stretches[-1].ids is not None:
        return 0
    start = 0 if runtime.family.pipelined else len(plan.context_ids)
    return int(-(start + total) % block_size)
