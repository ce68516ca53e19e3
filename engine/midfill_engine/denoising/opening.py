"""Creates rows: context KV cache, canvas, sampler. Knows plans and models; no loop."""

from collections.abc import Generator
from typing import Final

import torch

from midfill_engine.caches import EncodedContext
from midfill_engine.denoising.authors import dial
from midfill_engine.denoising.canvas import Canvas
from midfill_engine.denoising.drafts import Laid
from midfill_engine.denoising.laying import lay_canvas
from midfill_engine.denoising.plan import Plan
from midfill_engine.denoising.row import CanvasRow
from midfill_engine.denoising.row_cache import RowCache
from midfill_engine.denoising.seeds import seeded
from midfill_engine.denoising.uniform import UniformRow
from midfill_engine.denoising.work import Work, ask
from midfill_engine.lengths import Lengths
from midfill_engine.loading.runtime import Runtime
from midfill_engine.models.packed import Pass, Result
from midfill_engine.models.sequence import Sequence as TokenSequence
from midfill_engine.wire import InfillRequest, StepEvent

# Temperature of alternatives if the request has none: all greedy ones would be the same.
ALTERNATIVE_TEMPERATURE: Final = 0.8
MAX_STEPS: Final = 1024


def encode_context(
    runtime: Runtime, plan: Plan
) -> Generator[Work, list[Result], tuple[EncodedContext | None, bool, int]]:
    """Encodes the context if nothing behind it can change its keys. Returns it, whether it was cached, and the number
    of forward passes.
    """
    family, config = runtime.family, runtime.loaded.config
    if family.attention != "context_frozen":
        return None, False, 0
    layout = plan.lay_out(runtime)([0] * len(plan.outline.holes))
    keeps = plan.cache.attentions == {"context_frozen"}
    key = tuple(plan.context_ids.tolist()), tuple(layout.context_positions.tolist())
    known = runtime.contexts.get(key) if keeps else None
    if known is not None:
        return known, True, 0
    sequence = TokenSequence.of(plan.context_ids, torch.arange(0), layout, family)
    positions = sequence.for_heads(sequence.positions, config.transformer.num_heads)
    (result,) = yield from ask([Pass(plan.context_ids, positions, wanted=layout.edges.flatten(), keeps=True)])
    assert result.own is not None
    context = EncodedContext(result.hidden, result.own)
    if keeps:
        runtime.contexts.put(key, context)
    return context, False, 1


def trial_row(runtime: Runtime, plan: Plan, lengths: Lengths, context: EncodedContext | None) -> CanvasRow:
    """A greedy row for one forward pass over a canvas of these lengths."""
    return make_row(runtime, plan, lengths, context, InfillRequest(segments=[{"hole": {}}]), 0)  # type: ignore[list-item]


def open_rows(
    runtime: Runtime,
    request: InfillRequest,
    plan: Plan,
    canvases: list[Lengths],
    context: EncodedContext | None,
    drafts: list[list[Laid | None]],
) -> list[CanvasRow]:
    """One row per alternative and canvas, with its drafts inserted; a row with drafts in all holes uses one canvas
    only.
    """
    rows = []
    for index, laid in enumerate(drafts):
        for lengths in canvases if None in laid else canvases[:1]:
            own = [hole if draft is None else [len(draft.ids)] for hole, draft in zip(lengths, laid, strict=True)]
            row = make_row(runtime, plan, own, context, request, index)
            for hole, draft in enumerate(laid):
                if draft is not None:
                    row.canvas.lay_draft(hole, draft.ids, draft.certainty)
            rows.append(row)
    return rows


def make_row(
    runtime: Runtime, plan: Plan, lengths: Lengths, context: EncodedContext | None, request: InfillRequest, index: int
) -> CanvasRow:
    """The row of alternative number `index`. Raises RequestError."""
    family = runtime.family
    canvas = make_canvas(runtime, plan, lengths, request.n)
    sampler = plan.sampler()
    quality = dial(family, request)
    num_masked = max(1, canvas.num_masked)
    if plan.policy.may_expand:
        num_masked = min(MAX_STEPS, 2 * (num_masked + int(canvas.expandable.sum())))
    num_steps = request.steps or max(1, sampler.count_steps(num_masked, quality))
    context_keys = context.keys_values if context and plan.cache.attentions == {"context_frozen"} else None
    return CanvasRow(
        runtime=runtime,
        canvas=canvas,
        context_ids=plan.context_ids,
        lay_out=plan.lay_out(runtime),
        sampler=sampler,
        cache=RowCache(plan.cache, context_keys, runtime.loaded.config.transformer),
        policy=plan.policy,
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
        policy=plan.policy,
        mask_id=runtime.tokens.mask_id,
        num_rows=num_rows,
        max_hole=runtime.loaded.config.max_hole,
        spill=spill,
    )


def count_spill(runtime: Runtime, plan: Plan, total: int) -> int:
    """How many positions behind a hole of `total` complete its last block; models that decode in blocks need whole
    blocks.

    0 if the hole ends in an anchor or must not end early.
    """
    last, block_size = plan.outline.holes[-1], runtime.loaded.config.block_size
    is_open = runtime.tokens.ends_text and not runtime.family.aligned and plan.policy.may_delete and not last.min_tokens
    if not is_open or not last.stretches or last.stretches[-1].ids is not None:
        return 0
    start = 0 if runtime.family.pipelined else len(plan.context_ids)
    return int(-(start + total) % block_size)


def show(row: CanvasRow | UniformRow, step: int) -> StepEvent:
    """The event of a row after `step` steps."""
    holes = [row.canvas.state(hole) for hole in range(len(row.canvas.outlines))]
    return StepEvent(step=step, num_steps=max(1, row.num_steps, step), holes=holes)
