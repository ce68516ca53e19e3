"""One fill from holes to patch: context, request, steps, splice, one repair round. Knows no terminal and no editor."""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Final, Literal

from midfill_engine import wire
from midfill_infill.config import Quality, Seconds
from midfill_infill.context.excerpts import MAX_CHARACTERS, NEAR, Excerpt, ShownExcerpts, find_excerpts
from midfill_infill.context.origins import find_origins
from midfill_infill.context.references import Reference
from midfill_infill.context.requests import build_hole, build_request
from midfill_infill.context.segments import Segments, build_segments, with_intent
from midfill_infill.errors import MidfillError
from midfill_infill.filling import certainty
from midfill_infill.filling.candidates import LIKELY, Alternative, Answer, Place, PlacedFill, Row, place_fill, rank
from midfill_infill.filling.repairing import mask_errors, recall
from midfill_infill.filling.wishes import CHARS_PER_TOKEN, Bounds, Length, bound_length, is_within, leave_out
from midfill_infill.filling.written import Written
from midfill_infill.proposals import PROPOSERS, Proposal, Surroundings, propose
from midfill_infill.splicing.splice import splice
from midfill_infill.syntax.holes import sort_holes
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Hole, Patch

if TYPE_CHECKING:  # imports an HTTP client, a fifth of the language server's start-up time
    from midfill_infill.engines.client import EngineClient

Send = Callable[[wire.InfillRequest], Generator[wire.StepEvent | wire.InfillResponse, None, None]]

MAX_PROPOSED: Final = 8  # holes with proposals before an engine is asked: 20 to 100 ms each
MAX_TEXTS: Final = 5  # proposals for each of them that are tried: each may parse the file a few times
EXCERPTS_SHARE: Final = 0.25  # of the window of an engine of another project
# Rows of a repair: the first is greedy and often repeats the error, the others are sampled.
REPAIR_ROWS: Final = 4


@dataclass(frozen=True)
class Options:
    """User options; None leaves the choice to the engine. `min_tokens` and `max_tokens` are per hole, `n` counts
    alternatives. `seconds` are those that a body and a line should take. `presets` are the wishes that settings make: a
    model that does not heed them fills without. `length` compares with the text that a hole has now, in `sizes` tokens
    each, if they are known. `intent` is one line for the model: a comment above each hole that is part of no fill.
    `references` are related files, most important first. `shown` are the excerpts of the document's last fill, which
    this one may keep, and takes the new ones. `proposers` add texts to the engine's. `written` are lines that Midfill
    wrote and nobody has accepted.

    Seed 0 means the most likely fill; every other seed samples one, unless `temperature` is set.
    """

    model: str | None = None
    seed: int = 0
    steps: int | None = None
    quality: Quality = None
    n: int = 1
    max_tokens: int | None = None
    temperature: float | None = None
    repair: bool = True
    every: bool = False
    min_tokens: int = 0
    length: Length = "same"
    sizes: tuple[int, ...] = ()
    seconds: Seconds | None = None
    presets: tuple[wire.Wish, ...] = ()
    single_line: bool = False
    references: tuple[Reference, ...] = ()
    shown: ShownExcerpts | None = field(default=None, compare=False)
    proposers: tuple[str, ...] = PROPOSERS
    written: Written = Written()
    intent: str = ""


@dataclass(frozen=True)
class Preview:
    """The holes after a step, in document order: drafts unless `is_chosen`. `repair`: of the second round."""

    step: int
    num_steps: int
    holes: Sequence[wire.HoleState]
    repair: bool = False
    is_chosen: bool = False
    is_proposed: bool = False  # no engine was asked yet

    @classmethod
    def of(cls, alternative: Alternative, step: int, *, is_proposed: bool = False) -> "Preview":
        """The preview of whole texts."""
        holes: list[wire.HoleState] = []
        for fill in alternative.fills:
            state = wire.HoleState(
                text=fill.text,
                settled=[] if is_proposed else [(0, len(fill.text))],
                masked=0,
                tokens=list(fill.tokens),
                confidence=list(fill.confidence),
            )
            holes.append(state)
        return cls(step, max(1, step), holes, is_chosen=not is_proposed, is_proposed=is_proposed)


@dataclass(frozen=True)
class Filled:
    """Result of a fill: the best candidate, the others in falling order, and the stats of all rounds.

    `passes` is the user's command that the best candidate passes, if one was run. `keeps`: the parts of a fill that its
    engine can keep when it fills again. `heeds` are the wishes that its model heeds, `left_out` the settings that it
    did not heed. `judged` are the texts that the engine has compared for each hole, in the first round.
    """

    best: Alternative
    alternatives: tuple[Alternative, ...]
    stats: wire.Stats
    model: str
    keeps: Literal["tokens", "lines", "nothing"] = "lines"
    heeds: tuple[wire.Wish, ...] = wire.WISHES
    left_out: tuple[wire.Wish, ...] = ()
    judged: Sequence[Sequence[wire.FilledHole]] = ()
    passes: str = ""

    @property
    def patch(self) -> Patch:
        return self.best.patch

    @property
    def fills(self) -> tuple[PlacedFill, ...]:
        return self.best.fills

    @property
    def new_errors(self) -> int:
        return self.best.new_errors


def fill(
    document: Document, holes: Sequence[Hole], options: Options, client: "EngineClient"
) -> Generator[Preview | Filled, None, None]:
    """Fills `holes` of `document` jointly: yields a `Preview` for each step, then one `Filled`.

    Our engine ranks the proposals together with its own texts. The first of an engine's texts without a fault wins: it
    adds no syntax error and is not blank or idle. If all have faults, the fewest win, and this fill is repaired once:
    the lines with errors are masked again, the rest are anchors; if no line is at fault, everything is masked. Only
    if a fault is left then, a proposal that the engine has not ranked replaces the fill. Closing the generator closes
    the connection, which stops the engine. Raises `MidfillError`. The same seed gives the same fill.
    """
    if not holes:
        raise MidfillError("no_hole", "there is nothing to fill")
    model = find_model(client, options.model)
    options, left_out = _leave_out(model, options)
    is_outside = client.endpoint.is_outside
    comment = document.syntax.comment if document.syntax else "#"
    room = model.max_context_tokens * CHARS_PER_TOKEN
    if is_outside:
        room = client.window * CHARS_PER_TOKEN
        excerpts = _find_excerpts(document, holes, options, room)
        room -= sum(len(excerpt.text) for excerpt in excerpts)
    else:
        excerpts = _find_excerpts(document, holes, options)
    shown = build_segments(document, holes, room)
    segments = with_intent(shown, comment, options.intent)
    place = Place(document, segments.holes, options.written)
    bounds = _bound(place, segments, options, model)
    proposals = _propose_within(place, options, bounds)
    send: Send = client.infill
    excerpt_texts = [excerpt.text for excerpt in excerpts]
    if is_outside:
        request = _request(segments, document, options, excerpts=excerpt_texts, bounds=bounds)
        origins = find_origins(document, comment, excerpts, options.references)
        send = partial(client.infill_outside, origins=origins)
    else:
        judge = certainty.load_judge(model)
        request = _request(segments, document, options, proposals, excerpt_texts, place.needs, bounds, judge)
    response = yield from _run(send, request, place, repair=False)
    stats = response.stats
    place.fits = certainty.load(model, response.model)
    most = options.max_tokens  # a token has at least one character
    ranked = [rank(response, index, listed, most=most) for index, listed in enumerate(proposals)]
    row = place.settle([[answer for answer in answers if not answer.is_left_out] for answers in ranked])
    if options.repair and any(row.candidate.faults):
        try:
            repair = _repair(place, segments, row, options, send, request.excerpts, one_by_one=is_outside)
            row, spent = yield from repair
            stats = add_stats(stats, spent)
        except MidfillError as error:
            if error.code == "cancelled":  # after any other failure the first fill is kept, its errors marked
                raise
    if any(row.candidate.faults):
        row = place.settle(_offer(row, ranked))
    rows = place.list_rows(ranked, row, options.n, every=options.every or any(bounds))
    best, *others = _within([row.candidate for row in rows], bounds, options)
    yield Preview.of(best, stats.steps)
    yield Filled(
        best,
        tuple(others),
        stats,
        response.model,
        model.keeps,
        model.heeds,
        left_out,
        response.candidates,
    )


def _leave_out(model: wire.ModelInfo, options: Options) -> tuple[Options, tuple[wire.Wish, ...]]:
    """The options without what the model does not heed, and the settings among that. Raises MidfillError."""
    unheeded = leave_out(model, options.presets, steps=options.steps, quality=options.quality, seconds=options.seconds)
    left_out = tuple(wish for wish in options.presets if wish in unheeded)
    without: dict[str, Any] = dict.fromkeys(unheeded)
    return replace(options, **without), left_out


def _bound(place: Place, segments: Segments, options: Options, model: wire.ModelInfo) -> list[Bounds]:
    """The bounds of every hole that `length` sets. Raises MidfillError `not_heeded`."""
    bounds: list[Bounds] = []
    for index, (hole, spec) in enumerate(zip(place.holes, segments.specs, strict=True)):
        size = options.sizes[index] if index < len(options.sizes) else None
        text = place.document.decode(hole.start_byte, hole.end_byte)
        is_line = spec.indent is None or options.single_line
        if spec.keep and "\n" not in text.strip():
            is_line = True
        bounds.append(bound_length(options.length, model, text, size, is_line=is_line))
    return bounds


def _propose_within(place: Place, options: Options, bounds: Sequence[Bounds]) -> list[list[Proposal]]:
    """Proposals for every hole within its bounds, and missing imports."""
    listed: list[list[Proposal]] = []
    for own, bound in zip(_propose(place, options), bounds, strict=True):
        if bound:
            own = [proposal for proposal in own if "min_tokens" not in bound and is_within(bound, proposal.text)]
        listed.append(own)
    if options.proposers and not options.min_tokens:
        listed = [own + imports for own, imports in zip(listed, place.imports, strict=True)]
    return listed


def _within(rows: Sequence[Alternative], bounds: Sequence[Bounds], options: Options) -> list[Alternative]:
    """The candidates whose texts are as long as they must be, at most as many as asked for. Raises MidfillError."""
    fitting = [row for row in rows if row.is_within(bounds)]
    if not fitting:
        next_step = "reroll, or type a line of it: what you type stays"
        raise MidfillError("not_heeded", f"no {options.length} text was found", next_step)
    if options.every or not any(bounds):
        return fitting
    return fitting[: options.n]


def _offer(row: Row, ranked: Sequence[Sequence[Answer]]) -> list[list[Answer]]:
    """The row's own texts, each before the proposals that the engine has not ranked. A placeholder may be what is
    wanted, so it gives way to a likely proposal alone.
    """
    is_text = not row.candidate.new_errors and not row.candidate.is_blank
    least = LIKELY if is_text else 0.0
    offered: list[list[Answer]] = []
    for own, answers in zip(row.answers, ranked, strict=True):
        others = [answer for answer in answers if answer.is_left_out and answer.certainty >= least]
        offered.append([own, *others])
    return offered


def propose_fill(document: Document, holes: Sequence[Hole], options: Options) -> Alternative | None:
    """The surest proposals, without an engine; None with more than MAX_PROPOSED holes or bounded tokens, or a fault."""
    if options.max_tokens is not None or len(holes) > MAX_PROPOSED:
        return None
    place = Place(document, sort_holes(document, list(holes)), options.written)
    listed = _propose(place, options)
    if not all(listed):
        return None
    answers: list[list[Answer]] = []
    for proposals in listed:
        answers.append([Answer.of(each.text, each.certainty, each.origin) for each in proposals[:MAX_TEXTS]])
    try:
        candidate = place.settle(answers).candidate
    except MidfillError:  # none can be inserted
        return None
    return None if any(candidate.faults) else candidate


def _propose(place: Place, options: Options) -> list[list[Proposal]]:
    """Proposals for every hole; none if it needs a number of tokens."""
    if options.min_tokens:
        return [[] for _ in place.holes]
    around = Surroundings(place.document, place.holes, options.references)
    listed: list[list[Proposal]] = []
    for index in range(len(place.holes)):
        own: list[Proposal] = []
        for proposal in propose(options.proposers, around, index):
            if options.single_line and "\n" in proposal.text:
                continue
            certainty = place.doubts.weaken(proposal.text, proposal.certainty)
            own.append(replace(proposal, certainty=certainty))
        listed.append(own)
    return listed


def find_model(client: "EngineClient", model: str | None) -> wire.ModelInfo:
    """The model of that name, otherwise the engine's first. Raises MidfillError."""
    known = client.models()
    if not known:
        raise MidfillError("engine_error", f"the engine at {client.endpoint} has no model")
    return next((info for info in known if info.id == model), known[0])


def _repair(
    place: Place,
    segments: Segments,
    row: Row,
    options: Options,
    send: Send,
    excerpts: Sequence[str],
    *,
    one_by_one: bool,
) -> Generator[Preview, None, tuple[Row, wire.Stats]]:
    """The better of `row` and the rows of a second round, and the stats of that round. `one_by_one`: an engine that
    writes one row after the other is asked for each, until one has no fault.
    """
    draft = mask_errors(segments, row)
    rounds = [replace(options, n=REPAIR_ROWS)]
    if one_by_one:
        keeps = any(spec.keep for spec in draft.specs)
        first = 0 if keeps else 1  # the same request would give the same text
        rounds = [replace(options, n=1, seed=options.seed + number) for number in range(first, REPAIR_ROWS)]
    best = row
    spent = wire.Stats(steps=0, forwards=0, tokens=0, ms=0.0, cached_context=True)
    for wanted in rounds:
        request = _request(draft, place.document, wanted, (), excerpts)
        response = yield from _run(send, request, place, repair=True)
        spent = add_stats(spent, response.stats)
        answers: list[list[Answer]] = []
        for holes in (response.holes, *response.alternatives):
            answers.append([Answer(filled) for filled in recall(draft, row, holes)])
        best = min([best, *place.rows(answers)], key=lambda row: row.candidate.faults)
        if not any(best.candidate.faults):
            break
    return best, spent


def finish(document: Document, holes: Sequence[Hole], preview: Preview) -> Filled:
    """Ends a fill early for the user: splices settled text, and guesses for the rest. Raises `MidfillError`."""
    ordered = sort_holes(document, list(holes))
    spliced = splice(document, ordered, [shown.text for shown in preview.holes])
    filled = [wire.FilledHole(text=each.text, tokens=each.tokens, confidence=each.confidence) for each in preview.holes]
    fills = tuple(map(place_fill, ordered, filled, spliced.fills))
    best = Alternative(spliced.patch, fills, spliced.new_errors)
    stats = wire.Stats(steps=preview.step, forwards=preview.step, tokens=0, ms=0.0)
    return Filled(best, (), stats, "", "tokens")


def _request(
    segments: Segments,
    document: Document,
    options: Options,
    proposals: Sequence[Sequence[Proposal]] = (),
    excerpts: Sequence[str] = (),
    needs: Sequence[Mapping[str, list[str]]] = (),
    bounds: Sequence[Bounds] = (),
    judge: wire.FittedWeights | None = None,
) -> wire.InfillRequest:
    specs: list[wire.HoleSpec] = []
    for spec, listed, needed, bound in zip_longest(segments.specs, proposals, needs, bounds):
        specs.append(_limit(spec, options, listed or (), needed or {}, bound or {}))
    temperature = options.temperature
    if temperature is None:
        temperature = wire.ALTERNATIVE_TEMPERATURE if options.seed else 0.0  # greedily all seeds would be one
    times: dict[str, Any] = {}
    if options.seconds is not None:
        for_body, for_line = options.seconds
        times = {"body_ms": round(1000 * for_body), "line_ms": round(1000 * for_line)}
    return build_request(
        replace(segments, specs=tuple(specs)).segments,
        model=options.model,
        seed=options.seed,
        excerpts=excerpts,
        tag=document.language,
        temperature=temperature,
        steps=options.steps,
        quality=options.quality,
        n=options.n,
        judge=judge,
        **times,
    )


def _find_excerpts(
    document: Document, holes: Sequence[Hole], options: Options, room: int | None = None
) -> list[Excerpt]:
    """Excerpts of related files and of far lines. Of a `room` of so many characters they take a share, and the rest is
    for the text near the holes.
    """
    around = document.tell_around(sort_holes(document, list(holes)))
    related = [reference.text for reference in options.references]
    shown = options.shown or ShownExcerpts()
    most, near = MAX_CHARACTERS, NEAR
    if room is not None:
        most = int(EXCERPTS_SHARE * room)
        near = room - most
    found = find_excerpts(around, related, most, near, shown.texts)
    shown.texts = tuple(excerpt.text for excerpt in found)
    return found


def _limit(
    spec: wire.HoleSpec,
    options: Options,
    proposals: Sequence[Proposal],
    needs: Mapping[str, list[str]],
    bounds: Bounds,
) -> wire.HoleSpec:
    """What is asked for a hole, within the limits of the options."""
    limits: dict[str, Any] = {**needs, **bounds}
    most = min(options.max_tokens or wire.MAX_HOLE_TOKENS, limits.get("max_tokens", wire.MAX_HOLE_TOKENS))
    if most < wire.MAX_HOLE_TOKENS or options.max_tokens is not None:
        limits["max_tokens"] = most
    least = max(options.min_tokens, limits.get("min_tokens", 0))
    if least:
        limits["min_tokens"] = min(least, most)
    if options.single_line:
        limits["forbid"] = ["\n"]
    candidates = [(proposal.text, proposal.certainty) for proposal in proposals]
    return build_hole(spec, candidates=candidates, **limits)


def _run(
    send: Send, request: wire.InfillRequest, place: Place, *, repair: bool
) -> Generator[Preview, None, wire.InfillResponse]:
    """Sends one request: yields its steps, returns its answer. Prepares splicing during the engine's first step.
    Closing the generator closes the connection.
    """
    stream = send(request)
    try:
        for number, message in enumerate(stream):
            if isinstance(message, wire.InfillResponse):
                return _check(message, len(place.holes))
            yield Preview(message.step, message.num_steps, message.holes, repair)
            if not number:
                place.splicer.prepare()
    finally:
        stream.close()
    raise AssertionError("the client ends a stream with an answer or an error")


def _check(response: wire.InfillResponse, num_holes: int) -> wire.InfillResponse:
    """Raises MidfillError unless every row of the answer has a text for each hole."""
    for row in (response.holes, *response.alternatives):
        if len(row) != num_holes:
            raise MidfillError("engine_error", f"the engine answered {len(row)} of {num_holes} holes")
    return response


def add_stats(first: wire.Stats, second: wire.Stats) -> wire.Stats:
    """The sum of the stats of two requests; their context counts as cached if both found it cached."""
    return wire.Stats(
        steps=first.steps + second.steps,
        forwards=first.forwards + second.forwards,
        tokens=first.tokens + second.tokens,
        ms=first.ms + second.ms,
        cached_context=first.cached_context and second.cached_context,
    )
