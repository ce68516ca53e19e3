"""Fills a request with a causal model, hole by hole: each prompt contains the earlier fills, and later fills re-rank
the candidates of earlier holes. Knows requests; no files.

The texts that a request gives for a hole (its `candidates`) compete with the model's own drafts, or are ranked alone if
the request wants no drafts. A hole with anchors is filled by one search through all its masked parts.
"""

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from midfill_engine.causal.anchored import AnchoredFiller, bound_tokens
from midfill_engine.causal.branches import MAX_TREE_ROWS
from midfill_engine.causal.effort import WHOLE, Effort, allow_small, choose_effort
from midfill_engine.causal.filler import MAX_BODY_TOKENS, Filler
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
    """Fills all holes of a request. `clock` gives seconds; it measures the request's `max_ms`. Raises RequestError."""
    started_s = clock()
    request = with_seed(request)
    if request.sampler is not None:
        message = f"{runtime.names[0]} reads from the left, where no sampler takes part"
        raise RequestError(ErrorCode.BAD_REQUEST, message, "leave the sampler out")
    config = runtime.loaded.config
    outline = outline_request(request.segments, runtime.loaded.tokenizer, [], [], config.max_context, no_healing)
    check_room(outline, config.max_hole)
    await Claim(count_bytes(runtime, outline, request.excerpts))
    filler = RequestFiller(runtime, request, Timer.of(request.max_ms, clock))
    for index, split in enumerate(filler.splits):
        await Show(filler.event())
        candidates, is_cut = [split.unchanged()], False
        if split.parts:
            candidates, is_cut = await filler.forwards.run(filler.fill_hole(index))
        filler.keep(candidates, is_cut)
    await Show(filler.event())
    if not request.temperature:
        await filler.forwards.run(filler.judge_jointly())
    fills = []
    for alternative in list_alternatives(filler.done, request.n):
        pairs = zip(alternative, filler.cut, strict=True)
        fills.append([answer_hole(candidate, is_cut) for candidate, is_cut in pairs])
    ranked = []
    num_tokens = 0
    for candidates in filler.done:
        ranked.append([answer_hole(candidate) for candidate in candidates])
        num_tokens += len(candidates[0].logs)
    num_forwards = filler.forwards.count
    stats = Stats(
        steps=num_forwards,
        forwards=num_forwards,
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


@dataclass
class RequestFiller:
    """Fills the holes of a request in order. For each filled hole, `done` has its candidates, best first, and `cut` is
    true if the time ended its search. `states` has the current state of every hole, which the events show.
    """

    runtime: Runtime
    request: InfillRequest
    timer: Timer = ENDLESS

    def __post_init__(self) -> None:
        request = self.request
        self.texts, self.specs = split_segments(request.segments)
        self.splits = [Split.of(spec) for spec in self.specs]
        self.drawing = Drawing(request.n, request.temperature, request.top_p, seeded(request.seed, 0))
        self.judge = Judge(request.judge)
        self.forwards = ForwardCounter()
        self.done: list[list[Candidate]] = []
        self.cut: list[bool] = []
        self.states: list[HoleState] = []
        for split in self.splits:
            known = split.only_known().text
            self.states.append(HoleState(text=known, settled=whole_range(known), masked=1))

    def keep(self, candidates: list[Candidate], is_cut: bool) -> None:
        """Makes these the candidates, best first, of the first hole that has none yet."""
        self.states[len(self.done)] = state_of(candidates[0])
        self.done.append(candidates)
        self.cut.append(is_cut)

    async def fill_hole(self, index: int) -> tuple[list[Candidate], bool]:
        """Returns the candidates for the whole hole, best first, and whether the time ended the search. Without
        any, returns `Split.unchanged`; or raises RequestError if the hole has bounds of lines or a minimum of tokens.
        """
        request = self.request
        split = self.splits[index]
        stretch, line_end = self.lay_stretch(index)
        effort, allowed_s = limit_search(self.runtime, request, stretch)
        drawing = self.drawing
        if drawing.temperature:
            drawing = replace(drawing, count=max(request.n, effort.samples))
        filler = self.open_filler(index, stretch, drawing, effort, allowed_s)
        filler.show = self.event
        proposed = strip_given(self.specs[index].candidates, line_end)
        if request.drafts:
            candidates = await filler.fill(proposed)
        else:
            candidates = await filler.compare(proposed)
        candidates = add_line_end(candidates, line_end)
        if drawing.temperature:
            candidates = shuffle(candidates, filler.kind, drawing, self.judge)
        fills = [split.to_whole(candidate) for candidate in candidates]
        balanced_fills = [fill for fill in fills if split.balances(fill.text)]
        if not balanced_fills and stretch.is_bounded:
            message = "no text with so many lines or tokens was found"
            next_step = "ask for another length, or write a line of it yourself"
            raise RequestError(ErrorCode.BAD_REQUEST, message, next_step)
        return balanced_fills or [split.unchanged()], filler.timer.is_over

    async def judge_jointly(self) -> None:
        """Ranks again, in `done`, the candidates of each hole without anchors if the next lines contain a later hole,
        because that hole is filled now. Stops once the time is over: the remaining holes keep their order.
        """
        for index, (split, candidates) in enumerate(zip(self.splits, self.done, strict=True)):
            text_after, *later_texts = self.texts[index + 1 :]
            filled_after = text_after
            for later, text in zip(self.done[index + 1 :], later_texts, strict=True):
                filled_after += later[0].text + text
            is_same = find_following(filled_after) == find_following(text_after)
            if is_same or split.has_anchors or len(candidates) < 2:
                continue
            if self.timer.is_over:
                return
            stretch, line_end = self.lay_stretch(index)
            shown = stretch.after  # the prompt showed it in the fill, so the prompt stays the same
            filled_stretch = replace(stretch, after=line_end + filled_after, behind=shown)
            filler = self.open_filler(index, filled_stretch, Drawing())
            proposed = []
            for candidate in candidates:
                text = candidate.text.removesuffix(line_end)
                proposed.append(replace(candidate, text=text))
            ranked = await filler.compare(proposed)
            self.done[index] = add_line_end(ranked, line_end) or candidates

    def lay_stretch(self, index: int) -> tuple[Stretch, str]:
        """Returns the stretch of hole `index`, whose text before contains the best candidates of the earlier holes; and
        the `find_line_end` of the hole. Drafts are written without that line end, because `after` begins with it.
        """
        spec = self.specs[index]
        split = self.splits[index]
        earlier_fills = [candidates[0].text for candidates in self.done[:index]]
        fills = [*earlier_fills, split.head]
        before = ""
        for text, fill in zip(self.texts, fills, strict=False):  # `fills` ends with this hole's `head`
            before += text + fill
        masked = "".join(split.parts[::2])
        has_draft = bool(masked.strip()) or split.has_anchors
        is_drafted_line = has_draft and "\n" not in masked  # what was one line stays one line
        single = is_drafted_line or "\n" in spec.forbid or spec.indent is None
        max_tokens = self.runtime.loaded.config.max_hole
        if spec.max_tokens:
            max_tokens = min(spec.max_tokens, max_tokens)
        if single and split.has_anchors:
            max_tokens = min(max_tokens, bound_tokens(self.runtime, masked))
        text_after = self.texts[index + 1]
        behind = None
        if split.has_anchors:
            behind = text_after
        after = split.tail + text_after
        line_end = find_line_end(before, after, spec, split)
        stretch = Stretch(
            before,
            after=line_end + after,
            single=single,
            forbid=tuple(spec.forbid),
            max_tokens=max_tokens,
            indent=spec.indent or "",
            behind=behind,
            min_tokens=spec.min_tokens,
            min_lines=spec.min_lines,
            max_lines=spec.max_lines,
            head=split.head,
            tail=split.tail,
        )
        return stretch, line_end

    def open_filler(
        self,
        index: int,
        stretch: Stretch,
        drawing: Drawing,
        effort: Effort = WHOLE,
        allowed_s: float = math.inf,
    ) -> Filler:
        """The filler of the stretch of hole `index`: an AnchoredFiller if it has anchors between masked parts."""
        spec = self.specs[index]
        parts = self.splits[index].parts
        common = (self.runtime, stretch, drawing, self.request.excerpts, spec.names, spec.unused)
        if len(parts) == 1:
            return Filler(*common, judge=self.judge, timer=self.timer, effort=effort, allowed_s=allowed_s)
        return AnchoredFiller(*common, parts, judge=self.judge, timer=self.timer, effort=effort, allowed_s=allowed_s)

    def event(self, draft: Candidate | None = None) -> StepEvent:
        """The event that shows all holes as they are now. The hole that is being filled shows its `draft`; without a
        draft it shows its known text.
        """
        states = list(self.states)
        step = self.forwards.count
        max_steps = 1
        if draft is not None:
            index = len(self.done)
            whole = self.splits[index].to_whole(draft)
            states[index] = state_of(whole).model_copy(update={"settled": list(whole.kept), "masked": 1})
            max_steps = MAX_LINE_TOKENS + MAX_BODY_TOKENS
        return StepEvent(step=step, num_steps=max(step, max_steps), holes=states)


def list_alternatives(done: Sequence[Sequence[Candidate]], count: int) -> list[list[Candidate]]:
    """At most `count` distinct alternatives, best first. The i-th has each hole's i-th candidate, or its last one."""
    alternatives: list[list[Candidate]] = []
    for index in range(count):
        alternative = []
        for candidates in done:
            last = len(candidates) - 1
            alternative.append(candidates[min(index, last)])
        if alternative not in alternatives:
            alternatives.append(alternative)
    return alternatives


def check_variants(runtime: Runtime, cache: str | None, lengths: str | None) -> None:
    """Raises RequestError if a cache or length policy is named, because neither takes part in a causal fill."""
    if cache or lengths:
        family = runtime.family.name
        message = f"models of the family {family!r} read from the left, without a sampler, cache or length policy"
        raise RequestError(ErrorCode.BAD_REQUEST, message, "name neither")


def limit_search(runtime: Runtime, request: InfillRequest, stretch: Stretch) -> tuple[Effort, float]:
    """Returns how widely a stretch is searched, and how many seconds the search should take at most."""
    allowed_ms = request.line_ms if stretch.single else request.body_ms
    if allowed_ms is None:
        return WHOLE, math.inf
    allowed_s = allow_small(allowed_ms / 1000, runtime.loaded.num_parameters)
    return choose_effort(runtime.pace, allowed_s, is_body=not stretch.single), allowed_s


def add_line_end(candidates: Sequence[Candidate], line_end: str) -> list[Candidate]:
    return [replace(candidate, text=candidate.text + line_end) for candidate in candidates]


def find_line_end(before: str, after: str, spec: HoleSpec, split: Split) -> str:
    """The line break that every fill of the hole must end with, or "". There is none if line breaks are forbidden, or
    if one comes next anyway. Otherwise there is one if the hole lies between two line starts, so that its fill is whole
    lines; or if its lines are bounded and its last masked part ends with one.
    """
    if "\n" in spec.forbid or after[:1] == "\n":
        return ""
    if before[-1:] in ("", "\n"):
        return "\n"
    is_bounded = spec.min_lines or spec.max_lines
    if is_bounded and split.parts and split.parts[-1].endswith("\n"):
        return "\n"
    return ""


def strip_given(given: Sequence[GivenText], line_end: str) -> list[Candidate]:
    """The distinct given texts without the `line_end`, most certain first; the order of `given` makes no difference."""
    candidate_of_text: dict[str, Candidate] = {}
    for given_text in sorted(given, key=lambda given_text: (-given_text.certainty, given_text.text)):
        text = given_text.text.removesuffix(line_end)
        candidate_of_text.setdefault(text, Candidate(text, certainty=given_text.certainty))
    return list(candidate_of_text.values())


def shuffle(candidates: Sequence[Candidate], kind: Kind, drawing: Drawing, judge: Judge = SHIPPED) -> list[Candidate]:
    """Samples an order of the candidates, without replacement, by exp(score / temperature) (Gumbel-max trick)."""
    draws = torch.empty(len(candidates), dtype=torch.float64)
    draws.exponential_(generator=drawing.generator)
    noise = -draws.log()
    weights = judge.choose_weights(candidates, kind)
    keys = []
    scores = weights.score(candidates)
    for score, gumbel in zip(scores, noise, strict=True):
        keys.append(score / drawing.temperature + float(gumbel))
    order = sorted(range(len(candidates)), key=lambda index: -keys[index])
    return [candidates[index] for index in order]


def answer_hole(candidate: Candidate, is_cut: bool = False) -> FilledHole:
    """The answer for a hole: the text, its tokens as ranges of it, and their confidence, which is 1 for anchors."""
    rated_spans = [(span, 1.0) for span in candidate.kept]
    start = 0
    for piece, log in candidate.logs:
        end = min(start + len(piece), len(candidate.text))
        confidence = math.exp(min(0.0, log))
        for span in cut_out(start, end, candidate.kept):
            rated_spans.append((span, confidence))
        start = end
    rated_spans.sort()
    log_likelihood = None
    if math.isfinite(candidate.nats):
        log_likelihood = candidate.nats
    return FilledHole(
        text=candidate.text,
        tokens=[span for span, _ in rated_spans],
        confidence=[confidence for _, confidence in rated_spans],
        anchors=list(candidate.kept),
        cut=is_cut,
        certainty=candidate.chance,
        log_likelihood=log_likelihood,
        following=candidate.following,
        names=candidate.names,
        unused=candidate.used,
        proposed=candidate.certainty,
    )


def cut_out(start: int, end: int, kept: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The parts of a range that lie outside the `kept` ranges, which ascend."""
    for first, last in kept:
        part_end = min(first, end)
        if start < part_end:
            yield start, part_end
        start = max(start, last)
    if start < end:
        yield start, end


def state_of(candidate: Candidate) -> HoleState:
    """The state of a hole that is filled with the candidate."""
    filled = answer_hole(candidate)
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
    """Bytes of memory that a fill claims, for the logits that exist at once and for four KV caches: the prompt's, those
    of two searches, and a copy of one of these, which is made when it needs larger memory.
    """
    config = runtime.loaded.config
    shape = config.transformer
    size = runtime.dtype.itemsize
    excerpt_tokens = sum(len(text.encode()) for text in excerpts)  # a token has at least one byte
    context_tokens = sum(map(len, outline.pieces)) + excerpt_tokens
    max_read = MAX_BEFORE + AHEAD_CHARACTERS  # tokens of the prompt
    num_tokens = min(context_tokens, max_read) + config.max_hole
    token_bytes = 2 * shape.num_layers * shape.num_kv_heads * shape.head_dim * size
    num_scored = MAX_TREE_ROWS
    if runtime.device.type == "cpu":
        num_scored = HEAD_ROWS
    score_bytes = num_scored * shape.vocab_size * (size + 4)
    return int(4 * num_tokens * token_bytes + score_bytes)
