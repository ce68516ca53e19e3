"""Runs one fill, from holes to patch: context, request, steps, splice, one repair. Knows no terminal and no editor."""

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
from midfill_infill.filling.candidates import (
    LIKELY,
    Alternative,
    Answer,
    CandidateSelector,
    Combination,
    PlacedFill,
    place_fill,
    rank,
)
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
"""Sends a request to an engine: yields its steps, then its answer."""

# With more holes, nothing is proposed before an engine is asked: the proposals of a hole take 20 to 100 ms.
MAX_PROPOSED: Final = 8
MAX_TEXTS: Final = 5  # proposals that are tried for each of these holes: each may parse the file a few times
EXCERPTS_SHARE: Final = 0.25  # the excerpts' part of the window of another project's engine
# Alternatives that a repair asks for: the first one is greedy and often repeats the error, the others are sampled.
REPAIR_ALTERNATIVES: Final = 4


@dataclass(frozen=True)
class Options:
    """What the user asks of a fill; None leaves the choice to the engine.

    `n` is the number of candidates to return; `every` returns all that were found. With `spares_queries` it is 1 for an
    engine of another project, where each takes a query of its own. `min_tokens` and `max_tokens` bound each hole.
    `length` asks for texts that are shorter or longer than the holes' present texts, which have `sizes` tokens, if
    known. `single_line` forbids line breaks. `seconds` is how long a body and a line should take. `presets` are the
    wishes that come from settings: a model that does not heed them fills without them, while it refuses other wishes.
    `intent` is text for the model, shown as comments above each hole; it is part of no fill. `references` are related
    files, the most important first. `shown` holds the excerpts of the document's last fill: this fill may keep them,
    and stores its own there. `proposers` are the names of those whose texts are added to the engine's. `written` are
    lines that Midfill wrote and nobody has accepted. `repair` allows a second round for a fill with a fault.

    Seed 0 means the most likely fill, every other seed a sampled one. `temperature`, if set, applies to all seeds.
    """

    model: str | None = None
    seed: int = 0
    steps: int | None = None
    quality: Quality = None
    n: int = 1
    spares_queries: bool = False
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
    """What the holes hold after a step, in document order: drafts, or the texts of the fill if `is_chosen`.

    `is_repair`: the step belongs to the second round, which fills the lines with errors again. `model` has filled the
    holes; None for proposals.
    """

    step: int
    num_steps: int
    holes: Sequence[wire.HoleState]
    is_repair: bool = False
    is_chosen: bool = False
    is_proposed: bool = False  # shows proposals: no engine was asked yet
    model: wire.ModelInfo | None = None

    @classmethod
    def of(cls, alternative: Alternative, step: int, model: wire.ModelInfo | None) -> "Preview":
        """The preview of an alternative that `model` has filled, or without a model of proposals."""
        holes: list[wire.HoleState] = []
        for fill in alternative.fills:
            state = wire.HoleState(
                text=fill.text,
                settled=[] if model is None else [(0, len(fill.text))],  # what is only proposed is not settled
                masked=0,
                tokens=list(fill.tokens),
                confidence=list(fill.confidence),
            )
            holes.append(state)
        return cls(step, max(1, step), holes, is_chosen=model is not None, is_proposed=model is None, model=model)


@dataclass(frozen=True)
class Filled:
    """Result of a fill: the best candidate, the others (those with the fewest faults first, equal ones as the engine
    ranked them), and the stats of all rounds.

    `model` is the name that the engine's answer gives. `keeps` says which parts of a text the model can keep when it
    fills the hole again. `heeds` are the wishes that the model heeds, `left_out` those of settings that it does not.
    `compared_texts` are those that the engine compared for each hole, in the first round. `passed_command` is the
    user's command that the best candidate passed, empty if none was run.
    """

    best: Alternative
    alternatives: tuple[Alternative, ...]
    stats: wire.Stats
    model: str
    keeps: Literal["tokens", "lines", "nothing"] = "lines"
    heeds: tuple[wire.Wish, ...] = wire.WISHES
    left_out: tuple[wire.Wish, ...] = ()
    compared_texts: Sequence[Sequence[wire.FilledHole]] = ()
    passed_command: str = ""

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

    Midfill's engine ranks the proposals together with its own texts. The first text of an engine's ranking that has no
    fault is chosen: it adds no syntax error and is neither blank nor idle. If all texts have faults, the one with the
    fewest is chosen and repaired once: the lines with errors are masked again, all other text becomes anchors. If no
    line has an error, everything is masked. A text that its limit of tokens cut off is not repaired. Only if a fault is
    left after that, a proposal that the engine has not ranked may replace the fill. The same seed gives the same fill.
    Closing the generator closes the connection, which stops the engine. Raises MidfillError.
    """
    if not holes:
        raise MidfillError("no_hole", "there is nothing to fill")
    model = find_model(client, options.model)
    heeded, left_out = _drop_unheeded(model, options)
    is_outside = client.endpoint.is_outside
    if is_outside and heeded.spares_queries:
        heeded = replace(heeded, n=1)
    comment_mark = document.syntax.comment if document.syntax else "#"
    window_chars: int | None = None
    if is_outside:  # a character of several bytes, such as a Chinese one, is a token or more
        window_chars = client.window * CHARS_PER_TOKEN * len(document.text) // max(1, len(document.source))
    excerpts = _find_excerpts(document, holes, heeded, window_chars)
    excerpt_texts = [excerpt.text for excerpt in excerpts]
    budget_chars = model.max_context_tokens * CHARS_PER_TOKEN
    if window_chars is not None:
        budget_chars = window_chars - sum(map(len, excerpt_texts))
    segments = with_intent(build_segments(document, holes, budget_chars), comment_mark, heeded.intent)
    selector = CandidateSelector(document, segments.holes, heeded.written)
    bounds = _bound_lengths(selector, segments, heeded, model)
    proposals = _propose_within_bounds(selector, heeded, bounds)
    send: Send = client.infill
    if is_outside:  # it ranks no proposals: these may only replace a fill that has a fault
        request = _request(segments, document, heeded, excerpts=excerpt_texts, bounds=bounds)
        origins = find_origins(document, comment_mark, excerpts, heeded.references)
        send = partial(client.infill_outside, origins=origins)
    else:
        judge = certainty.load_judge(model)
        request = _request(segments, document, heeded, proposals, excerpt_texts, selector.needs, bounds, judge)
    response = yield from _run(send, request, selector, model)
    stats = response.stats
    selector.fits = certainty.load(model, response.model)
    ranked: list[list[Answer]] = []
    for index, hole_proposals in enumerate(proposals):  # a token mostly has one character or more
        ranked.append(rank(response, index, hole_proposals, max_characters=heeded.max_tokens))
    combination = selector.choose([[answer for answer in answers if not answer.is_unranked] for answers in ranked])
    if heeded.repair and combination.candidate.has_fault and not combination.candidate.is_cut:
        try:
            repair = _repair(
                selector, segments, combination, heeded, send, model, request.excerpts, one_by_one=is_outside
            )
            combination, repair_stats = yield from repair
            stats = add_stats(stats, repair_stats)
        except MidfillError as error:
            if error.code == "cancelled":  # after any other failure the first fill is kept, its errors marked
                raise
    if combination.candidate.has_fault:
        combination = selector.choose(_add_unranked(combination, ranked))
    lists_all = heeded.every or any(bounds)  # with bounds all, because some of them may be outside
    combinations = selector.list_combinations(ranked, combination, heeded.n, every=lists_all)
    best, *others = _choose_fitting([combination.candidate for combination in combinations], bounds, heeded)
    yield Preview.of(best, stats.steps, model)
    compared_texts = response.candidates
    yield Filled(best, tuple(others), stats, response.model, model.keeps, model.heeds, left_out, compared_texts)


def _drop_unheeded(model: wire.ModelInfo, options: Options) -> tuple[Options, tuple[wire.Wish, ...]]:
    """The options without wishes that the model does not heed, and those of these wishes that settings make. Raises
    MidfillError `not_heeded` for a wish that the command makes.
    """
    unheeded = leave_out(model, options.presets, steps=options.steps, quality=options.quality, seconds=options.seconds)
    left_out = tuple(wish for wish in options.presets if wish in unheeded)
    cleared: dict[str, Any] = dict.fromkeys(unheeded)
    return replace(options, **cleared), left_out


def _bound_lengths(
    selector: CandidateSelector, segments: Segments, options: Options, model: wire.ModelInfo
) -> list[Bounds]:
    """The bounds that `options.length` sets for the text of each hole. Raises MidfillError `not_heeded`."""
    bounds: list[Bounds] = []
    for index, (hole, spec) in enumerate(zip(selector.holes, segments.specs, strict=True)):
        size = options.sizes[index] if index < len(options.sizes) else None
        text = selector.document.normalized_text(hole.start_byte, hole.end_byte)
        is_line = spec.indent is None or options.single_line
        if spec.keep and "\n" not in text.strip():
            is_line = True
        bounds.append(bound_length(options.length, model, text, size, is_line=is_line))
    return bounds


def _propose_within_bounds(
    selector: CandidateSelector, options: Options, bounds: Sequence[Bounds]
) -> list[list[Proposal]]:
    """For every hole the proposals within its bounds, then missing imports. A hole for which `options.length` sets a
    minimum number of tokens gets imports alone, because the number of tokens of a proposal is not known here; one with
    `options.min_tokens` gets nothing.
    """
    listed: list[list[Proposal]] = []
    for proposals, bound in zip(_propose(selector, options), bounds, strict=True):
        if "min_tokens" in bound:
            listed.append([])
        else:
            listed.append([proposal for proposal in proposals if is_within(bound, proposal.text)])
    if options.proposers and not options.min_tokens:
        listed = [proposals + imports for proposals, imports in zip(listed, selector.imports, strict=True)]
    return listed


def _choose_fitting(candidates: Sequence[Alternative], bounds: Sequence[Bounds], options: Options) -> list[Alternative]:
    """The candidates whose texts are within their bounds, at most `n` of them if any bound is set and `every` is not.
    Raises MidfillError `not_heeded` if there is none.
    """
    fitting = [candidate for candidate in candidates if candidate.is_within(bounds)]
    if not fitting:
        next_step = "reroll, or type a line of it: what you type stays"
        raise MidfillError("not_heeded", f"no {options.length} text was found", next_step)
    return fitting if options.every or not any(bounds) else fitting[: options.n]


def _add_unranked(combination: Combination, ranked: Sequence[Sequence[Answer]]) -> list[list[Answer]]:
    """For each hole the answer that `combination` has, then the proposals that the engine has not ranked: only likely
    ones if the fill is idle without any other fault, because a placeholder may be what the user wants.
    """
    is_only_idle = not combination.candidate.new_errors and not combination.candidate.is_blank
    min_certainty = LIKELY if is_only_idle else 0.0
    extended: list[list[Answer]] = []
    for current, answers in zip(combination.answers, ranked, strict=True):
        unranked = [answer for answer in answers if answer.is_unranked and answer.certainty >= min_certainty]
        extended.append([current, *unranked])
    return extended


def propose_fill(document: Document, holes: Sequence[Hole], options: Options) -> Alternative | None:
    """The fill by the surest proposals, without an engine. None with more than MAX_PROPOSED holes or if `max_tokens` is
    set, and if a hole has no proposal or the fill has a fault.
    """
    if options.max_tokens is not None or len(holes) > MAX_PROPOSED:
        return None
    selector = CandidateSelector(document, sort_holes(document, list(holes)), options.written)
    listed = _propose(selector, options)
    if not all(listed):
        return None
    answers: list[list[Answer]] = []
    for proposals in listed:
        answers.append(
            [Answer.of(proposal.text, proposal.certainty, proposal.origin) for proposal in proposals[:MAX_TEXTS]]
        )
    try:
        candidate = selector.choose(answers).candidate
    except MidfillError:  # none can be inserted
        return None
    return None if candidate.has_fault else candidate


def _propose(selector: CandidateSelector, options: Options) -> list[list[Proposal]]:
    """Proposals for every hole, the surest first; none if a fill must have a minimum number of tokens."""
    if options.min_tokens:
        return [[] for _ in selector.holes]
    around = Surroundings(selector.document, selector.holes, options.references)
    listed: list[list[Proposal]] = []
    for index in range(len(selector.holes)):
        proposals: list[Proposal] = []
        for proposal in propose(options.proposers, around, index):
            if options.single_line and "\n" in proposal.text:
                continue
            weakened = selector.doubts.weaken(proposal.text, proposal.certainty)
            proposals.append(replace(proposal, certainty=weakened))
        listed.append(sorted(proposals, key=lambda proposal: -proposal.certainty))
    return listed


def find_model(client: "EngineClient", model: str | None) -> wire.ModelInfo:
    """The engine's model of that name, otherwise its first one. Raises MidfillError."""
    infos = client.models()
    if not infos:
        raise MidfillError("engine_error", f"the engine at {client.endpoint} has no model")
    return next((info for info in infos if info.id == model), infos[0])


def _repair(
    selector: CandidateSelector,
    segments: Segments,
    combination: Combination,
    options: Options,
    send: Send,
    model: wire.ModelInfo,
    excerpts: Sequence[str],
    *,
    one_by_one: bool,
) -> Generator[Preview, None, tuple[Combination, wire.Stats]]:
    """Fills the lines of `combination` with errors again. Returns the combination with the fewest faults, perhaps the
    given one, and the stats of these requests. `one_by_one` asks for a single alternative at a time, until one has no
    fault, because the engine writes one alternative after the other.
    """
    draft = mask_errors(segments, combination)
    if one_by_one:
        has_anchors = any(spec.keep for spec in draft.specs)
        first = 0 if has_anchors else 1  # without anchors the first round's request and seed would give the same text
        rounds = [replace(options, n=1, seed=options.seed + added) for added in range(first, REPAIR_ALTERNATIVES)]
    else:
        rounds = [replace(options, n=REPAIR_ALTERNATIVES)]
    best = combination
    stats = wire.Stats(steps=0, forwards=0, tokens=0, ms=0.0, cached_context=True)
    for round_options in rounds:
        # Without bounds, which are those of whole texts: most of this one is anchored.
        request = _request(draft, selector.document, round_options, excerpts=excerpts)
        response = yield from _run(send, request, selector, model, is_repair=True)
        stats = add_stats(stats, response.stats)
        answers: list[list[Answer]] = []
        for filled_holes in (response.holes, *response.alternatives):
            recalled = map(recall, draft.specs, combination.holes, filled_holes)
            answers.append(list(map(Answer, recalled)))
        best = min([best, *selector.splice_all(answers)], key=lambda tried: tried.candidate.faults)
        if not best.candidate.has_fault:
            break
    return best, stats


def finish(document: Document, holes: Sequence[Hole], preview: Preview) -> Filled:
    """The result of a fill that the user ends early, with the drafts of `preview` as they are. Raises MidfillError."""
    assert preview.model is not None
    ordered = sort_holes(document, list(holes))
    spliced = splice(document, ordered, [state.text for state in preview.holes])
    fills: list[PlacedFill] = []
    for hole, state, spliced_fill in zip(ordered, preview.holes, spliced.fills, strict=True):
        filled = wire.FilledHole(text=state.text, tokens=state.tokens, confidence=state.confidence)
        fills.append(place_fill(hole, filled, spliced_fill))
    best = Alternative(spliced.patch, tuple(fills), spliced.new_errors)
    stats = wire.Stats(steps=preview.step, forwards=preview.step, tokens=0, ms=0.0)
    return Filled(best, (), stats, "", preview.model.keeps, preview.model.heeds)


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
    """The request for the segments; `proposals`, `needs` and `bounds` have an entry for each hole, or none at all."""
    specs: list[wire.HoleSpec] = []
    for spec, hole_proposals, hole_needs, bound in zip_longest(segments.specs, proposals, needs, bounds):
        specs.append(_complete_spec(spec, options, hole_proposals or (), hole_needs or {}, bound or {}))
    temperature = options.temperature
    if temperature is None:
        temperature = wire.ALTERNATIVE_TEMPERATURE if options.seed else 0.0  # at 0 all seeds give the same text
    times: dict[str, Any] = {}
    if options.seconds is not None:
        body_s, line_s = options.seconds
        times = {"body_ms": round(1000 * body_s), "line_ms": round(1000 * line_s)}
    return build_request(
        replace(segments, specs=tuple(specs)).in_turn,
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
    document: Document, holes: Sequence[Hole], options: Options, window_chars: int | None = None
) -> list[Excerpt]:
    """Excerpts of related files and of the document's far lines; `options.shown` remembers them for the next fill. They
    take a share of a window of `window_chars` characters; the other part is for the text near the holes.
    """
    around = document.texts_around(sort_holes(document, list(holes)))
    related = [reference.text for reference in options.references]
    shown = options.shown or ShownExcerpts()
    max_chars, near_chars = MAX_CHARACTERS, NEAR
    if window_chars is not None:
        max_chars = int(EXCERPTS_SHARE * window_chars)
        near_chars = window_chars - max_chars
    excerpts = find_excerpts(around, related, max_chars, near_chars, shown.texts)
    shown.texts = tuple(excerpt.text for excerpt in excerpts)
    return excerpts


def _complete_spec(
    spec: wire.HoleSpec,
    options: Options,
    proposals: Sequence[Proposal],
    needs: Mapping[str, list[str]],
    bounds: Bounds,
) -> wire.HoleSpec:
    """The hole's spec with its candidates, its needed and unused names, and the stricter of all bounds."""
    fields: dict[str, Any] = {**needs, **bounds}
    max_tokens = min(options.max_tokens or wire.MAX_HOLE_TOKENS, fields.get("max_tokens", wire.MAX_HOLE_TOKENS))
    if max_tokens < wire.MAX_HOLE_TOKENS or options.max_tokens is not None:
        fields["max_tokens"] = max_tokens
    min_tokens = max(options.min_tokens, fields.get("min_tokens", 0))
    if min_tokens:
        fields["min_tokens"] = min(min_tokens, max_tokens)
    if options.single_line:
        fields["forbid"] = ["\n"]
    candidates = [(proposal.text, proposal.certainty) for proposal in proposals]
    return build_hole(spec, candidates=candidates, **fields)


def _run(
    send: Send,
    request: wire.InfillRequest,
    selector: CandidateSelector,
    model: wire.ModelInfo,
    *,
    is_repair: bool = False,
) -> Generator[Preview, None, wire.InfillResponse]:
    """Sends one request: yields its steps, returns its answer. Prepares splicing after the first message, which
    Midfill's engine sends before its first pass. Closing the generator closes the connection.
    """
    stream = send(request)
    try:
        for index, message in enumerate(stream):
            if isinstance(message, wire.InfillResponse):
                for filled_holes in (message.holes, *message.alternatives):
                    if len(filled_holes) != len(selector.holes):
                        told = f"the engine answered {len(filled_holes)} of {len(selector.holes)} holes"
                        raise MidfillError("engine_error", told)
                return message
            yield Preview(message.step, message.num_steps, message.holes, is_repair, model=model)
            if index == 0:
                selector.splicer.prepare()
    finally:
        stream.close()
    raise AssertionError("the client ends a stream with an answer or an error")


def add_stats(first: wire.Stats, second: wire.Stats) -> wire.Stats:
    """The sum of the stats of two requests; their context counts as cached if both found it cached."""
    return wire.Stats(
        steps=first.steps + second.steps,
        forwards=first.forwards + second.forwards,
        tokens=first.tokens + second.tokens,
        ms=first.ms + second.ms,
        cached_context=first.cached_context and second.cached_context,
    )
