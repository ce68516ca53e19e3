"""Fills a request with a causal base, hole by hole: each prompt contains the earlier fills, and later fills re-rank
the candidates of earlier holes. Knows requests; no files.

Given candidates compete with the base's drafts; without drafts they are judged alone. A hole with anchors is filled by
one search through all its parts.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import torch

from midfill_engine.causal.anchored import AnchoredFiller, bound_tokens
from midfill_engine.causal.branches import MAX_TREE_ROWS
from midfill_engine.causal.effort import WHOLE, Effort, allow_small, choose_effort
from midfill_engine.causal.filler import MAX_BLOCK_TOKENS, Filler
from midfill_engine.causal.lines import MAX_LINE_TOKENS
from midfill_engine.causal.prompt import AHEAD_CHARACTERS, MAX_BEFORE, find_following
from midfill_engine.causal.split import Split
from midfill_engine.causal.stretch import Stretch
from midfill_engine.causal.writing import Drawing
from midfill_engine.errors import RequestError
from midfill_engine.judging import SHIPPED, Candidate, Judge, Kind
from midfill_engine.loading.runtime import Runtime
from midfill_engine.models.packed import HEAD_ROWS
from midfill_engine.requests.outline import RequestOutline, check_room, no_healing, outline_request, split_segments
from midfill_engine.requests.seeds import seeded, with_seed
from midfill_engine.requests.timer import ENDLESS, Clock, Timer
from midfill_engine.scheduling.work import Claim, ForwardCounter, Show
from midfill_engine.wire import (
    ErrorCode,
    FilledHole,
    GivenText,
    HoleSpec,
    HoleState,
    InfillRequest,
    InfillResponse,
    Stats,
    StepEvent,
)


async def fill_causally(runtime: Runtime, request: InfillRequest, clock: Clock = time.perf_counter) -> InfillResponse:
    """The time that the request has is one of `clock`, in seconds. Raises RequestError."""
    started_s = clock()
    timer = Timer.of(request.max_ms, clock)
    request = with_seed(request)
    if request.sampler is not None:
        message = f"{runtime.names[0]} reads from the left, where no sampler takes part"
        raise RequestError(ErrorCode.BAD_REQUEST, message, "leave the sampler out")
    config = runtime.loaded.config
    outline = outline_request(request.segments, runtime.loaded.tokenizer, [], [], config.max_context, no_healing)
    check_room(outline, config.max_hole)
    await Claim(count_bytes(runtime, outline, request.excerpts))
    texts, specs = split_segments(request.segments)
    generator = seeded(request.seed, 0)
    drawing = Drawing(request.n, request.temperature, request.top_p, generator)
    judge = Judge(request.judge)
    forwards = ForwardCounter()
    done: list[list[Candidate]] = []
    cut: list[bool] = []
    for number, spec in enumerate(specs):
        await Show(event_of(specs, done, forwards.count))
        split = Split.of(spec)
        candidates: list[Candidate] = []
        is_cut = False
        if split.parts:
            stretch = lay_stretch(runtime, texts, specs, done, number, split)

            def show(draft: Candidate, split: Split = split) -> StepEvent:
                return event_of(specs, done, forwards.count, split.put(draft))

            filling = fill_hole(runtime, request, stretch, drawing, spec, split, judge, timer, show)
            candidates, is_cut = await forwards.run(filling)
        if not candidates and (spec.min_lines or spec.max_lines or spec.min_tokens):
            message = "no text with so many lines or tokens was found"
            raise RequestError(ErrorCode.BAD_REQUEST, message, "ask with another seed, or write a line of it yourself")
        done.append(candidates or [split.stay()])
        cut.append(is_cut)
    await Show(event_of(specs, done, forwards.count))
    if not request.temperature and not timer.is_over:
        judging = judge_jointly(runtime, texts, specs, done, request.excerpts, judge)
        await forwards.run(judging)
    fills = []
    for row in list_rows(done, request.n):
        fills.append(list(map(answer_hole, row, cut)))
    ranked = []
    num_tokens = 0
    for candidates in done:
        ranked.append(list(map(answer_hole, candidates)))
        num_tokens += len(candidates[0].logs)
    stats = Stats(
        steps=forwards.count,
        forwards=forwards.count,
        tokens=num_tokens,
        ms=(clock() - started_s) * 1000,
        context_tokens=sum(map(len, outline.pieces)),
    )
    holes, *alternatives = fills
    return InfillResponse(
        model=runtime.names[0],
        holes=holes,
        alternatives=alternatives,
        candidates=ranked,
        stats=stats,
        seed=request.seed,
    )


async def fill_hole(
    runtime: Runtime,
    request: InfillRequest,
    stretch: Stretch,
    drawing: Drawing,
    spec: HoleSpec,
    split: Split,
    judge: Judge,
    timer: Timer,
    show: Callable[[Candidate], StepEvent],
) -> tuple[list[Candidate], bool]:
    """The candidates for a hole, best first, and whether the time was over before all were found."""
    line_end = find_line_end(stretch, split)
    stretch = replace(stretch, after=line_end + stretch.after)
    effort, most_s = limit_search(runtime, request, stretch)
    if request.temperature:
        drawing = replace(drawing, count=max(request.n, effort.drawn))
    filler = open_filler(runtime, stretch, drawing, request.excerpts, spec, split, judge, timer, effort, most_s)
    filler.show = show
    given = []
    for one in rank_given(spec.candidates):
        text = one.text.removesuffix(line_end)
        given.append(Candidate(text, certainty=one.certainty))
    if request.drafts:
        candidates = await filler.fill(given)
    else:
        candidates = await filler.compare(given)
    candidates = add_line_end(candidates, line_end)
    if request.temperature:
        candidates = shuffle(candidates, filler.kind, drawing, judge)
    whole = [split.put(candidate) for candidate in candidates]
    return list(filter(split.balances, whole)), filler.timer.is_over


def list_rows(done: Sequence[Sequence[Candidate]], count: int) -> list[list[Candidate]]:
    """At most `count` distinct fills of all holes, best first."""
    rows: list[list[Candidate]] = []
    for index in range(count):
        row = []
        for candidates in done:
            last = len(candidates) - 1
            row.append(candidates[min(index, last)])
        if row not in rows:
            rows.append(row)
    return rows


def check_variants(runtime: Runtime, cache: str | None, lengths: str | None) -> None:
    """Raises RequestError for the name of a cache or length policy: here neither takes part."""
    if cache or lengths:
        family = runtime.family.name
        message = f"models of the family {family!r} read from the left, without a sampler, cache or length policy"
        raise RequestError(ErrorCode.BAD_REQUEST, message, "leave it out to take the model's own")


def lay_stretch(
    runtime: Runtime,
    texts: Sequence[str],
    specs: Sequence[HoleSpec],
    done: Sequence[Sequence[Candidate]],
    number: int,
    split: Split,
) -> Stretch:
    """The stretch of hole `number`, behind the holes that are done."""
    spec = specs[number]
    earlier_fills = [candidates[0].text for candidates in done[:number]]
    fills = [*earlier_fills, split.head]
    before = ""
    for text, fill in zip(texts, fills, strict=False):
        before += text + fill
    masked = "".join(split.parts[::2])
    is_known = bool(masked.strip()) or split.has_anchors
    is_known_line = is_known and "\n" not in masked
    single = is_known_line or "\n" in spec.forbid or spec.indent is None
    most = runtime.loaded.config.max_hole
    if spec.max_tokens:
        most = min(spec.max_tokens, most)
    if single and split.has_anchors:
        most = min(most, bound_tokens(runtime, masked))
    text_after = texts[number + 1]
    behind = None
    if split.has_anchors:
        behind = text_after
    return Stretch(
        before,
        split.tail + text_after,
        single,
        tuple(spec.forbid),
        most,
        spec.indent or "",
        behind,
        min_tokens=spec.min_tokens,
        min_lines=spec.min_lines,
        max_lines=spec.max_lines,
        head=split.head,
        tail=split.tail,
    )


def limit_search(runtime: Runtime, request: InfillRequest, stretch: Stretch) -> tuple[Effort, float]:
    """How widely a stretch is searched, and how many seconds that should take."""
    most_ms = request.line_ms if stretch.single else request.body_ms
    if most_ms is None:
        return WHOLE, math.inf
    most_s = allow_small(most_ms / 1000, runtime.loaded.parameters)
    return choose_effort(runtime.pace, most_s, is_body=not stretch.single), most_s


def open_filler(
    runtime: Runtime,
    stretch: Stretch,
    drawing: Drawing,
    excerpts: Sequence[str],
    spec: HoleSpec,
    split: Split,
    judge: Judge = SHIPPED,
    timer: Timer = ENDLESS,
    effort: Effort = WHOLE,
    most_s: float = math.inf,
) -> Filler:
    common = (runtime, stretch, drawing, excerpts, spec.names, spec.unused)
    if len(split.parts) == 1:
        return Filler(*common, judge=judge, timer=timer, effort=effort, most_s=most_s)
    return AnchoredFiller(*common, split.parts, judge=judge, timer=timer, effort=effort, most_s=most_s)


async def judge_jointly(
    runtime: Runtime,
    texts: Sequence[str],
    specs: Sequence[HoleSpec],
    done: list[list[Candidate]],
    excerpts: Sequence[str],
    judge: Judge,
) -> None:
    """Re-ranks candidates whose following lines contain a hole that is now filled."""
    for number, (spec, candidates) in enumerate(zip(specs, done, strict=True)):
        text_after, *later_texts = texts[number + 1 :]
        behind = text_after
        for later, text in zip(done[number + 1 :], later_texts, strict=True):
            behind += later[0].text + text
        split = Split.of(spec)
        is_same = find_following(behind) == find_following(text_after)
        if is_same or split.has_anchors or len(candidates) < 2:
            continue
        stretch = lay_stretch(runtime, texts, specs, done, number, split)
        line_end = find_line_end(stretch, split)
        shown = line_end + stretch.after  # so the prompt is the same
        stretch = replace(stretch, after=line_end + behind, behind=shown)
        filler = open_filler(runtime, stretch, Drawing(), excerpts, spec, split, judge)
        proposed = []
        for candidate in candidates:
            text = candidate.text.removesuffix(line_end)
            proposed.append(replace(candidate, text=text))
        ranked = await filler.compare(proposed)
        done[number] = add_line_end(ranked, line_end) or candidates


def add_line_end(candidates: Sequence[Candidate], line_end: str) -> list[Candidate]:
    return [replace(candidate, text=candidate.text + line_end) for candidate in candidates]


def find_line_end(stretch: Stretch, split: Split) -> str:
    """The line break at the end of a stretch of whole lines, which is between two line starts; empty for others. With a
    bound of lines, also the one at the end of a known text.
    """
    if "\n" in stretch.forbid or stretch.after[:1] == "\n":
        return ""
    if stretch.before[-1:] in ("", "\n"):
        return "\n"
    is_bounded = stretch.min_lines or stretch.max_lines
    if is_bounded and split.parts and split.parts[-1].endswith("\n"):
        return "\n"
    return ""


def rank_given(given: Sequence[GivenText]) -> list[GivenText]:
    """The distinct given texts, most certain first; independent of the order of `given`."""
    best: dict[str, GivenText] = {}
    for text in sorted(given, key=lambda text: (-text.certainty, text.text)):
        best.setdefault(text.text, text)
    return list(best.values())


def shuffle(candidates: Sequence[Candidate], kind: Kind, drawing: Drawing, judge: Judge = SHIPPED) -> list[Candidate]:
    """Samples an order of the candidates, without replacement, by exp(score / temperature) (Gumbel-max trick)."""
    draws = torch.empty(len(candidates), dtype=torch.float64)
    draws.exponential_(generator=drawing.generator)
    noise = -draws.log()
    weights = judge.choose_weights(candidates, kind)
    keys = []
    scores = weights.score(candidates)
    for score, luck in zip(scores, noise, strict=True):
        keys.append(score / drawing.temperature + float(luck))
    order = sorted(range(len(candidates)), key=lambda index: -keys[index])
    return [candidates[index] for index in order]


def answer_hole(one: Candidate, is_cut: bool = False) -> FilledHole:
    """The text with its tokens; what was known has a confidence of 1."""
    rated = [(span, 1.0) for span in one.kept]
    start = 0
    for piece, log in one.logs:
        end = min(start + len(piece), len(one.text))
        confidence = math.exp(min(0.0, log))
        for span in cut_out(start, end, one.kept):
            rated.append((span, confidence))
        start = end
    rated.sort()
    log_likelihood = None
    if math.isfinite(one.nats):
        log_likelihood = one.nats
    return FilledHole(
        text=one.text,
        tokens=[span for span, _ in rated],
        confidence=[confidence for _, confidence in rated],
        anchors=list(one.kept),
        cut=is_cut,
        certainty=one.chance,
        log_likelihood=log_likelihood,
        following=one.following,
        names=one.names,
        unused=one.used,
        proposed=one.certainty,
    )


def cut_out(start: int, end: int, kept: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The parts of a range outside the `kept` ones."""
    for first, last in kept:
        part_end = min(first, end)
        if start < part_end:
            yield start, part_end
        start = max(start, last)
    if start < end:
        yield start, end


def event_of(
    specs: Sequence[HoleSpec], done: Sequence[Sequence[Candidate]], step: int, draft: Candidate | None = None
) -> StepEvent:
    """The holes that are done, the one that `draft` is written for, and the others with what is known of them."""
    states = [state_of(candidates[0]) for candidates in done]
    most_steps = 1
    if draft is not None:
        state = state_of(draft)
        states.append(state.model_copy(update={"settled": list(draft.kept), "masked": 1}))
        most_steps = MAX_LINE_TOKENS + MAX_BLOCK_TOKENS
    for spec in specs[len(states) :]:
        known = Split.of(spec).skip().text
        settled = whole_range(known)
        states.append(HoleState(text=known, settled=settled, masked=1))
    return StepEvent(step=step, num_steps=max(step, most_steps), holes=states)


def state_of(one: Candidate) -> HoleState:
    filled = answer_hole(one)
    return HoleState(
        text=filled.text,
        settled=whole_range(filled.text),
        masked=0,
        tokens=filled.tokens,
        confidence=filled.confidence,
    )


def whole_range(text: str) -> list[tuple[int, int]]:
    if not text:
        return []
    return [(0, len(text))]


def count_bytes(runtime: Runtime, outline: RequestOutline, excerpts: Sequence[str]) -> int:
    """Memory of a fill: the KV caches of the prompt and two searches, one of which grows, and most logits at once."""
    config = runtime.loaded.config
    shape = config.transformer
    size = runtime.dtype.itemsize
    excerpt_tokens = sum(map(len, excerpts))  # a token has at least one character
    context_tokens = sum(map(len, outline.pieces)) + excerpt_tokens
    most_tokens = MAX_BEFORE + AHEAD_CHARACTERS
    num_tokens = min(context_tokens, most_tokens) + config.max_hole
    token_bytes = 2 * shape.num_layers * shape.num_kv_heads * shape.head_dim * size
    num_scored = MAX_TREE_ROWS
    if runtime.device.type == "cpu":
        num_scored = HEAD_ROWS
    score_bytes = num_scored * shape.vocab_size * (size + 4)
    return int(4 * num_tokens * token_bytes + score_bytes)
