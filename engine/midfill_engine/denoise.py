"""The denoising loop: one request in, one event a step out. Knows tokens and models; no HTTP, no threads."""

import time
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Final

import torch

from midfill_engine.caches import CACHES, OpenContext
from midfill_engine.canvas import Canvas, lay_canvas
from midfill_engine.errors import RequestError, check_model
from midfill_engine.lengths import LENGTHS, LengthPolicy, LengthScores
from midfill_engine.models.embedded import Layout
from midfill_engine.outline import Outline, outline_request
from midfill_engine.proposals import Scores, propose
from midfill_engine.registry import UnknownName
from midfill_engine.runtime import Runtime
from midfill_engine.samplers import SAMPLERS, Decision, Sampler, StepState
from midfill_engine.wire import ErrorCode, InfillRequest, InfillResponse, Stats, StepEvent

DEFAULT_QUALITY: Final = 0.8
# Alternatives of a request without temperature: the first is greedy, the others would all be the same.
ALTERNATIVE_TEMPERATURE: Final = 0.8


def denoise(
    runtime: Runtime, request: InfillRequest, *, cache: str | None = None, lengths: str | None = None
) -> Generator[StepEvent, None, InfillResponse]:
    """Fills all holes of `request` jointly. Yields step 0 before any token is settled, then one event a step.

    Closing the generator stops the work. `cache` and `lengths` name variants other than the family's own. The events
    show the first row; the answer puts the fill with the highest mean log confidence first. Raises RequestError.
    """
    fill = open_fill(runtime, request, cache, lengths)
    yield fill.event()
    while fill.canvas.masked.any():
        fill.advance()
        yield fill.event()
    return fill.response()


@dataclass
class OpenFill:
    """A fill in progress. `temperatures` and `generators` have one entry a row."""

    runtime: Runtime
    context: OpenContext
    canvas: Canvas
    sampler: Sampler
    num_steps: int
    quality: float
    temperatures: list[float]
    generators: list[torch.Generator]
    step: int = 0
    started_s: float = field(default_factory=time.perf_counter)

    def advance(self) -> None:
        """One forward pass over the rows that have masked positions, and what the sampler makes of it."""
        self.step += 1
        masked, device = self.canvas.masked, self.runtime.device
        rows = masked.any(dim=1)
        # A settled deletion still looks masked to the model: in training it never sees one.
        hidden = masked | (self.canvas.ids == self.runtime.family.delete_id)
        ids = self.canvas.ids.masked_fill(hidden, self.runtime.family.mask_id)[rows]
        scores = Scores(self.context.logits(ids.to(device), masked[rows].to(device), self.canvas.layout), masked)
        self._settle(scores)
        if self.step >= self.num_steps:
            while self.canvas.masked.any():  # deletions that a hole could not afford choose another token
                self._settle(scores)

    def _settle(self, scores: Scores) -> None:
        proposals = propose(scores, self.canvas, self.sampler, self.temperatures, self.generators)
        state = StepState(proposals, self.canvas.masked, self.step, self.num_steps, self.quality)
        is_last = self.step >= self.num_steps
        decision = Decision(self.canvas.masked) if is_last else self.sampler.decide(state)
        self.canvas.apply(decision, proposals)

    def event(self) -> StepEvent:
        holes = [self.canvas.state(0, hole) for hole in range(len(self.canvas.outlines))]
        return StepEvent(step=self.step, num_steps=self.num_steps, holes=holes)

    def response(self) -> InfillResponse:
        order = self.canvas.mean_log_confidence().argsort(descending=True, stable=True).tolist()
        fills = [[self.canvas.fill(row, hole) for hole in range(len(self.canvas.outlines))] for row in order]
        stats = Stats(
            steps=self.step,
            forwards=self.context.forwards,
            tokens=self.canvas.num_new_tokens(order[0]),
            ms=(time.perf_counter() - self.started_s) * 1000,
            cached_context=self.context.reused,
        )
        return InfillResponse(model=self.runtime.names[0], holes=fills[0], alternatives=fills[1:], stats=stats)


def open_fill(runtime: Runtime, request: InfillRequest, cache: str | None, lengths: str | None) -> OpenFill:
    """Tokenises, encodes the context and lays the canvas out. Raises RequestError."""
    started_s = time.perf_counter()
    family, config = runtime.family, runtime.loaded.config
    try:
        sampler = SAMPLERS.find(request.sampler or family.sampler)
        policy = LENGTHS.find(lengths or family.lengths)
        open_context = CACHES.find(cache or family.cache)
    except UnknownName as error:
        raise RequestError(ErrorCode.BAD_REQUEST, str(error), "use one of the known names") from error
    check_model(request.model, runtime.names)
    opening, closing = family.opening_ids(request.tag), family.closing_ids()
    outline = outline_request(request.segments, runtime.loaded.tokenizer.encode, opening, closing, config.max_context)
    check_room(outline, config.max_hole)
    text_lengths = [len(piece) for piece in outline.pieces]
    context_ids = torch.tensor([token for piece in outline.pieces for token in piece])
    bare = family.lay_out(text_lengths, [0] * len(outline.holes), config.hole_span)
    context = open_context(runtime.loaded.model, context_ids, bare, runtime.contexts)
    chosen = choose_lengths(runtime, policy, outline, bare, context)
    totals = [sum(hole) + plan.num_anchored for hole, plan in zip(chosen, outline.holes, strict=True)]
    canvas = lay_canvas(
        outline.holes,
        chosen,
        family.lay_out(text_lengths, totals, config.hole_span),
        runtime.vocabulary,
        mask_id=family.mask_id,
        num_rows=request.n,
        may_delete=policy.may_delete,
    )
    quality = DEFAULT_QUALITY if request.quality is None else request.quality
    num_masked = max(1, canvas.num_masked)
    return OpenFill(
        runtime=runtime,
        context=context,
        canvas=canvas,
        sampler=sampler,
        num_steps=min(num_masked, request.steps or max(1, sampler.count_steps(num_masked, quality))),
        quality=quality,
        temperatures=[request.temperature, *[request.temperature or ALTERNATIVE_TEMPERATURE] * (request.n - 1)],
        generators=[seeded(request.seed, row) for row in range(request.n)],
        started_s=started_s,
    )


def choose_lengths(
    runtime: Runtime, policy: LengthPolicy, outline: Outline, layout: Layout, context: OpenContext
) -> list[list[int]]:
    needs = [hole.need(runtime.loaded.config.max_hole) for hole in outline.holes]
    with torch.inference_mode():
        logits = runtime.loaded.model.length_logits(context.hidden, layout.edges)[0]  # [G, K]
        scores = LengthScores(runtime.family.length_buckets, logits.float().log_softmax(dim=-1).cpu())
    return policy.choose(needs, scores)


def check_room(outline: Outline, max_hole: int) -> None:
    for index, hole in enumerate(outline.holes):
        room = max_hole - hole.num_anchored
        if room < max(len(hole.masked), hole.min_tokens):
            message = f"hole {index} needs more than the {max_hole} tokens that this model fills at once"
            raise RequestError(ErrorCode.TOO_LARGE, message, "make the hole smaller, or split it")


def seeded(seed: int, row: int) -> torch.Generator:
    """Row 0 of a seed is the same whatever else is asked for."""
    return torch.Generator().manual_seed((seed + row * 0x9E3779B97F4A7C15) % 2**63)
