"""Reads holes from the left over the context's keys: how likely a finished fill is, and what the model would write.

Knows tokens and passes; takes no step. A hole read so sees the context and its own past, no other hole. What stands
behind its last token is END, so a likelihood counts the length, too.
"""

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import torch
from torch import Tensor

from midfill_engine.caches import EncodedContext
from midfill_engine.denoising.canvas import Canvas
from midfill_engine.denoising.drafts import Laid, choose, is_blank
from midfill_engine.denoising.outline import HoleOutline
from midfill_engine.denoising.plan import Plan
from midfill_engine.denoising.seeds import seeded
from midfill_engine.denoising.work import Work, ask
from midfill_engine.loading.runtime import Runtime
from midfill_engine.models.choice import Choice
from midfill_engine.models.packed import Pass, Result, score_rows
from midfill_engine.models.transformer import KeyValues
from midfill_engine.tokens.special import END, START
from midfill_engine.wire import InfillRequest, StepEvent

LENGTH_POWER: Final = 0.3
TINY: Final = 1e-38  # the smallest probability whose logarithm counts

Fill = tuple[int, Sequence[int]]  # a hole's number and its ids, without END
# From the forwards so far and the best beginning of each hole's draft: what to show, or None to end here.
Watch = Callable[[int, Mapping[int, Laid]], StepEvent | None]


@dataclass(frozen=True)
class CausalReader:
    """`context` has the keys of a request's context, `starts` the position of each hole's first token."""

    runtime: Runtime
    context: KeyValues
    starts: list[int]

    def open(self, fill: Fill, wanted: Tensor, choice: Choice | None = None) -> Pass:
        """The pass over START and a fill's ids; the state of row i predicts the fill's token i, the last one END."""
        hole, ids = fill
        num_rows, num_past = len(ids) + 1, self.context[0][0].shape[2]
        mask = torch.ones(num_rows, num_past + num_rows, dtype=torch.bool).tril(num_past)
        places = torch.arange(num_rows) + self.starts[hole] - 1
        return self.at(places, torch.tensor([START, *ids]), wanted, self.context, mask, choice=choice)

    def at(
        self,
        places: Tensor,
        ids: Tensor,
        wanted: Tensor,
        past: KeyValues,
        mask: Tensor,
        choice: Choice | None = None,
        keeps: bool = False,
    ) -> Pass:
        """The pass over `ids` [T] at `places` [T], which all heads count from the left."""
        positions = places.expand(self.runtime.loaded.config.transformer.num_heads, -1)
        return Pass(ids, positions, wanted, past, mask, keeps, choice)


def score_fills(reader: CausalReader, fills: Sequence[Fill]) -> Generator[Work, list[Result], list[float]]:
    """ln of the probability of each fill, END and so its length included: exact, in one forward for all of them.

    Fills of different holes are judged apart. What no fill may contain has no probability.
    """
    allowed = reader.runtime.vocabulary.allowed(may_delete=True)[None]
    passes = []
    for hole, ids in fills:
        rows = torch.arange(len(ids) + 1)
        asked = torch.tensor([*ids, END])
        passes.append(reader.open((hole, ids), rows, Choice(allowed, torch.zeros_like(rows), asked=asked)))
    results = yield from ask(passes)
    return [float(result.chosen.asked.double().clamp(min=TINY).log().sum()) for result in results]


def texts_of(canvas: Canvas) -> list[Fill]:
    """What stands in every hole of a finished canvas, without deletions."""
    stays = ~canvas.vocabulary.is_deletion(canvas.ids[0])
    holes = range(len(canvas.outlines))
    return [(hole, canvas.ids[0, (canvas.hole_of == hole) & stays].tolist()) for hole in holes]


@dataclass(frozen=True)
class _Draft:
    """`nats`: minus ln of its probability, END included where it is finished; `places`: where a beam keeps its keys."""

    ids: tuple[int, ...] = ()
    confidences: tuple[float, ...] = ()
    nats: float = 0.0
    places: tuple[int, ...] = ()

    @property
    def cost(self) -> float:
        """By what drafts are ranked: sums alone would take the shortest, means the one that repeats itself."""
        return self.nats / math.pow(len(self.ids) + 1, LENGTH_POWER)

    @property
    def laid(self) -> Laid:
        return Laid(self.ids, math.exp(-self.nats), self.confidences)

    def and_then(self, token: int, nats: float) -> "_Draft":
        return replace(
            self, ids=(*self.ids, token), confidences=(*self.confidences, math.exp(self.nats - nats)), nats=nats
        )


@dataclass
class _Beam:
    """The likeliest beginnings of one hole's fill, and finished fills, best first.

    Each token is read once: `past` has the keys of the context and the anchor, `num_shared` of them, and behind them
    those of all tokens read so far, of which each beginning sees its own.
    """

    hole: int
    fillable: Tensor  # [V]: what any fill may contain, and END
    first: Tensor  # [V]: what the masked stretch may begin with
    later: Tensor
    anchor: list[int]  # what stands before it
    bounds: tuple[int, int]  # of the stretch's length
    width: int
    num_wanted: int
    past: KeyValues = field(default_factory=list)
    num_shared: int = 0
    live: list[_Draft] = field(default_factory=lambda: [_Draft()])
    found: list[_Draft] = field(default_factory=list)

    @property
    def is_open(self) -> bool:
        """Whether a beginning may still become one of the best `num_wanted`; its cost is that of an end for nothing."""
        best = self.found[: self.num_wanted]
        return bool(self.live) and (len(best) < self.num_wanted or self.live[0].cost < best[-1].cost)

    @property
    def best(self) -> _Draft:
        return self.live[0] if self.is_open else self.found[0]

    def read(self, reader: CausalReader) -> Pass:
        """The pass over START and the anchor, then over the newest token of each beginning."""
        if not self.past:
            return replace(reader.open((self.hole, self.anchor), torch.tensor([len(self.anchor)])), keeps=True)
        num_past, rows = self.past[0][0].shape[2], torch.arange(len(self.live))
        mask = torch.zeros(len(rows), num_past + len(rows), dtype=torch.bool)
        mask[:, : self.num_shared] = True
        mask[rows, num_past + rows] = True
        for row, draft in enumerate(self.live):
            mask[row, list(draft.places)] = True
        self.live = [replace(draft, places=(*draft.places, num_past + row)) for row, draft in enumerate(self.live)]
        place = reader.starts[self.hole] + len(self.anchor) + len(self.live[0].ids) - 1
        ids = torch.tensor([draft.ids[-1] for draft in self.live])
        return reader.at(torch.full_like(rows, place), ids, rows, self.past, mask, keeps=True)

    def keep(self, reader: CausalReader, own: KeyValues) -> None:
        """Takes in the keys of what was read last."""
        past = self.past or reader.context
        self.past = [
            (torch.cat((keys, new_keys), dim=2), torch.cat((values, new_values), dim=2))
            for (keys, values), (new_keys, new_values) in zip(past, own, strict=True)
        ]
        self.num_shared = self.num_shared or self.past[0][0].shape[2]

    def advance(self, scores: Tensor) -> None:
        """`scores` [L, V] of what follows each living beginning."""
        length = len(self.live[0].ids)
        allowed = (self.later if length else self.first).clone()
        allowed[END] = max(1, self.bounds[0]) <= length
        if length == self.bounds[1]:
            allowed[:] = False
            allowed[END] = True
        known = scores[:, : len(allowed)].float().cpu().masked_fill(~self.fillable, -torch.inf)
        nats = torch.tensor([each.nats for each in self.live])[:, None] - known.log_softmax(dim=-1)
        nats = nats.masked_fill(~allowed, torch.inf).flatten()
        best = nats.topk(min(2 * self.width, len(nats)), largest=False)
        before, self.live = self.live, []
        for value, place in zip(best.values.tolist(), best.indices.tolist(), strict=True):
            row, token = divmod(place, len(allowed))
            if token == END and value < math.inf:
                self.found.append(replace(before[row], nats=value))
            elif len(self.live) < self.width and value < math.inf:
                self.live.append(before[row].and_then(token, value))
        self.found = sorted(self.found, key=lambda each: each.cost)[: self.width]


def draft_holes(
    reader: CausalReader,
    outlines: Mapping[int, HoleOutline],
    max_hole: int,
    width: int,
    num_wanted: int = 1,
    watch: Watch | None = None,
) -> Generator[Work, list[Result], tuple[dict[int, list[Laid]], int]]:
    """For every hole fills of its masked stretch, by beam search, the best first, `num_wanted` to `width`; forwards.

    They are ranked by their likelihood over a power of their length. `width` 1 keeps the one likeliest beginning. The
    certainty of a draft is the model's probability of it, END included. `watch` is told before each forward; a hole of
    which nothing is finished when it ends the drafting has none.
    """
    vocabulary = reader.runtime.vocabulary
    fillable, beams = vocabulary.allowed(may_delete=True), []
    for hole, outline in outlines.items():
        (stretch,), need = outline.masked, outline.need(max_hole)
        first, later = (
            vocabulary.allowed(forbid=outline.forbid, leading=leading, may_delete=True)
            for leading in (stretch.leading, "")
        )
        anchor = [token for part in outline.stretches for token in part.ids or ()]
        bounds = need.min_tokens, need.max_tokens
        beams.append(_Beam(hole, fillable, first, later, anchor, bounds, width, num_wanted))
    forwards = 0
    while waiting := [beam for beam in beams if beam.is_open]:
        event = None if watch is None else watch(forwards, {beam.hole: beam.best.laid for beam in beams})
        if watch is not None and event is None:
            break
        results = yield from ask([beam.read(reader) for beam in waiting], event)
        states = [result.hidden for result in results]
        scores = score_rows(reader.runtime.loaded.model.transformer, states, reader.runtime.operators)
        for beam, result, own in zip(waiting, results, scores, strict=True):
            assert result.own is not None
            beam.keep(reader, result.own)
            beam.advance(own)
        forwards += 1
    return {beam.hole: [each.laid for each in beam.found] for beam in beams if beam.found}, forwards


def open_reader(runtime: Runtime, plan: Plan, context: EncodedContext | None) -> CausalReader | None:
    """Reads the request's holes from the left, where the model can."""
    if context is None or not runtime.reads_causally:
        return None
    starts = plan.lay_out(runtime)([1] * len(plan.outline.holes)).hole_positions[0].tolist()
    return CausalReader(runtime, context.keys_values, starts)


def draft_rest(
    runtime: Runtime,
    request: InfillRequest,
    plan: Plan,
    context: EncodedContext | None,
    drafts: list[list[Laid | None]],
    watch: Watch,
) -> Generator[Work, list[Result], tuple[list[list[Laid | None]], int]]:
    """The model's own drafts where no given text fits, the next best one for every further alternative; forwards."""
    reader = open_reader(runtime, plan, context)
    if reader is None or not plan.policy.beam:
        return drafts, 0
    missing = {hole for row in drafts for hole, draft in enumerate(row) if draft is None}
    limit = runtime.loaded.config.max_hole
    wanted = {hole: outline for hole, outline in enumerate(plan.outline.holes) if hole in missing and is_blank(outline)}
    width = max(plan.policy.beam, request.n)
    num_wanted = width if request.temperature else request.n  # what is drawn from is all there is
    found, forwards = yield from draft_holes(reader, wanted, limit, width, num_wanted, watch)
    generators = [seeded(request.seed, index) for index in range(request.n)]
    made = [list(row) for row in drafts]
    for hole, laid in found.items():
        rows = [index for index, row in enumerate(drafts) if row[hole] is None]
        for number, index in enumerate(rows):
            made[index][hole] = choose(laid, number, request.temperature, generators[index])
    return made, forwards


def read_fills(
    runtime: Runtime, plan: Plan, context: EncodedContext | None, canvases: list[Canvas]
) -> Generator[Work, list[Result], list[list[float]] | None]:
    """How likely the fill of every hole of each canvas is, in nats, read from the left; None where that is not known,
    or given texts say it of the one canvas.
    """
    reader = open_reader(runtime, plan, context)
    num_holes = len(plan.outline.holes)
    if reader is None or (len(canvases) == 1 and len(canvases[0].certainties) == num_holes):
        return None
    scores = yield from score_fills(reader, [text for canvas in canvases for text in texts_of(canvas)])
    return [scores[start : start + num_holes] for start in range(0, len(scores), num_holes)]
