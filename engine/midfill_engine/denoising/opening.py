"""Creates rows: context KV cache, canvas, sampler. Knows plans and models; no loop."""

from collections.abc import Generator
from dataclasses import replace
from typing import Final

import torch

from midfill_engine.caches import EncodedContext
from midfill_engine.denoising.drafts import Laid
from midfill_engine.denoising.laying import lay_canvas
from midfill_engine.denoising.plan import Plan, seeded
from midfill_engine.denoising.row import CanvasRow
from midfill_engine.denoising.row_cache import RowCache
from midfill_engine.denoising.uniform import UniformRow
from midfill_engine.denoising.work import Work, ask
from midfill_engine.lengths import Lengths
from midfill_engine.models.packed import Pass, Result
from midfill_engine.models.sequence import Sequence as TokenSequence
from midfill_engine.wire import HoleSegment, HoleSpec, InfillRequest, StepEvent

# Temperature of alternatives if the request has none: all greedy ones would be the same.
ALTERNATIVE_TEMPERATURE: Final = 0.8
MAX_STEPS: Final = 1024


def encode_context(plan: Plan) -> Generator[Work, list[Result], tuple[EncodedContext | None, bool, int]]:
    """The context if nothing behind it can change its keys, if it was cached, and the number of forward passes."""
    runtime, family = plan.runtime, plan.runtime.family
    if family.attention != "context_frozen":
        return None, False, 0
    layout = plan.lay_out([0] * len(plan.outline.holes))
    keeps = plan.cache.attentions == {"context_frozen"}
    key = tuple(plan.context_ids.tolist()), tuple(layout.context_positions.tolist())
    known = runtime.contexts.get(key) if keeps else None
    if known is not None:
        return known, True, 0
    sequence = TokenSequence.of(plan.context_ids, torch.arange(0), layout, family)
    positions = sequence.for_heads(sequence.positions, runtime.loaded.config.transformer.num_heads)
    (result,) = yield from ask([Pass(plan.context_ids, positions, wanted=layout.edges.flatten(), keeps=True)])
    assert result.own is not None
    context = EncodedContext(result.hidden, result.own)
    if keeps:
        runtime.contexts.put(key, context)
    return context, False, 1


def trial_row(plan: Plan, lengths: Lengths, context: EncodedContext | None) -> CanvasRow:
    """A greedy row for one forward pass over a canvas of these lengths."""
    greedy = InfillRequest(segments=[HoleSegment(hole=HoleSpec())])
    return make_row(replace(plan, request=greedy), lengths, context, 0)


def open_rows(
    plan: Plan, canvases: list[Lengths], context: EncodedContext | None, drafts: list[list[Laid | None]]
) -> list[CanvasRow]:
    """One row per alternative and canvas, with its drafts; an alternative with drafts in all holes has one row."""
    rows = []
    for index, laid in enumerate(drafts):
        for lengths in canvases if None in laid else canvases[:1]:
            own = [hole if draft is None else [len(draft.ids)] for hole, draft in zip(lengths, laid, strict=True)]
            row = make_row(plan, own, context, index)
            for hole, draft in enumerate(laid):
                if draft is not None:
                    row.canvas.lay_draft(hole, draft.ids, draft.certainty)
            rows.append(row)
    return rows


def make_row(plan: Plan, lengths: Lengths, context: EncodedContext | None, index: int) -> CanvasRow:
    """The row of alternative number `index`. Raises RequestError."""
    runtime, request = plan.runtime, plan.request
    canvas = lay_canvas(plan, lengths)
    sampler = plan.sampler()
    num_masked = max(1, canvas.num_masked)
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
