"""Fills a request with a causal base, hole by hole: each prompt contains the earlier fills, and later fills re-rank
the candidates of earlier holes. Knows requests; no files.

Given candidates compete with the base's drafts; without drafts they are judged alone. A hole with anchors is split into
stretches with known text between them; the text after each stretch judges its candidates.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import torch

from midfill_engine.denoising.branches import MAX_TREE_ROWS
from midfill_engine.denoising.canvas import merge
from midfill_engine.denoising.filler import Filler
from midfill_engine.denoising.judging import Candidate, Kind, choose_weights
from midfill_engine.denoising.outline import RequestOutline, no_healing, outline_request, split_draft, split_segments
from midfill_engine.denoising.plan import check_room, seeded, with_seed
from midfill_engine.denoising.prompt import AHEAD_CHARACTERS, MAX_BEFORE, find_following
from midfill_engine.denoising.stretch import Stretch
from midfill_engine.denoising.work import Asking, Claim, Fill, counted
from midfill_engine.denoising.writing import Drawing
from midfill_engine.errors import RequestError
from midfill_engine.loading.runtime import Runtime
from midfill_engine.models.packed import HEAD_ROWS
from midfill_engine.wire import (
    ErrorCode,
    FilledHole,
    GivenText,
    HoleSpec,
    HoleState,
    InfillRequest,
    InfillResponse,
    Judged,
    Stats,
    StepEvent,
)

MIN_DRAWN: Final = 4  # number of sampled texts, even if fewer are requested
MORE_TOKENS: Final = 4  # beyond twice those of the masked text, between known texts


@dataclass(frozen=True)
class Part:
    """A part of a hole: an anchor's text, or the candidates for a masked stretch, best first."""

    text: str
    is_anchor: bool
    candidates: tuple[Candidate, ...] = ()


def fill_causally(runtime: Runtime, request: InfillRequest) -> Fill:
    """Raises RequestError."""
    started_s = time.perf_counter()
    request = with_seed(request)
    if request.sampler is not None:
        message = f"{runtime.names[0]} reads from the left, where no sampler takes part"
        raise RequestError(ErrorCode.BAD_REQUEST, message, "leave the sampler out")
    config = runtime.loaded.config
    tokenizer = runtime.loaded.tokenizer
    outline = outline_request(request.segments, tokenizer, [], [], config.max_context, no_healing)
    check_room(outline, config.max_hole)
    texts, specs = split_segments(request.segments)
    yield Claim(count_bytes(runtime, outline, request.excerpts))
    done: list[list[Part]] = []
    forwards = 0
    count = max(request.n, MIN_DRAWN) if request.temperature else request.n
    drawing = Drawing(count, request.temperature, request.top_p, seeded(request.seed, 0))
    for spec in specs:
        done.append([])
        given = [Candidate(each.text, certainty=each.certainty) for each in rank_given(spec.candidates)]
        for text, is_kept in split_draft(spec):
            if is_kept:
                done[-1].append(Part(text, is_anchor=True))
                continue
            yield show(specs, done, forwards)
            stretch = lay_stretch(runtime, texts, specs, done, text)
            line_end = find_line_end(stretch)
            stretch = replace(stretch, after=line_end + stretch.after)
            filler = Filler(runtime, stretch, drawing, request.excerpts, spec.names, spec.unused)
            ranking = rank_texts(filler.fill if request.drafts else filler.compare, given, line_end)
            candidates, taken = yield from counted(ranking)
            forwards += taken
            if request.temperature:
                candidates = shuffle(candidates, filler.kind, drawing)
            done[-1].append(Part(candidates[0].text if candidates else "", False, tuple(candidates)))
    yield show(specs, done, forwards)
    if not request.temperature:
        _, taken = yield from counted(judge_jointly(runtime, texts, specs, done, request.excerpts))
        forwards += taken
    rows = [[pick(parts, index) for parts in done] for index in range(request.n)]
    rows = [row for index, row in enumerate(rows) if row not in rows[:index]]
    stats = Stats(
        steps=forwards,
        forwards=forwards,
        tokens=sum(len(part.candidates[0].logs) for parts in done for part in parts if part.candidates),
        ms=(time.perf_counter() - started_s) * 1000,
        context_tokens=sum(map(len, outline.pieces)),
    )
    fills = [[answer_hole(parts) for parts in row] for row in rows]
    return InfillResponse(
        model=runtime.names[0],
        holes=fills[0],
        alternatives=fills[1:],
        candidates=list(map(list_judged, done)),
        stats=stats,
        seed=request.seed,
    )


def lay_stretch(
    runtime: Runtime, texts: Sequence[str], specs: Sequence[HoleSpec], done: Sequence[Sequence[Part]], masked: str
) -> Stretch:
    """The next stretch to fill: after the parts that are done, before the next known text."""
    number = len(done) - 1
    spec, config = specs[number], runtime.loaded.config
    before = "".join(text + "".join(part.text for part in parts) for text, parts in zip(texts, done, strict=False))
    parts = list(split_draft(spec))
    follows = parts[len(done[-1]) + 1 :]
    after = follows[0][0] if follows else texts[number + 1]
    is_whole = len(parts) == 1
    is_known_line = "\n" not in masked and (bool(masked.strip()) or not is_whole)
    single = "\n" in spec.forbid or is_known_line or spec.indent is None
    most = min(spec.max_tokens or config.max_hole, config.max_hole)
    if single and not is_whole:
        most = min(most, MORE_TOKENS + 2 * len(runtime.loaded.tokenizer.encode(masked)))
    behind = None if is_whole else texts[number + 1]
    return Stretch(before, after, single, tuple(spec.forbid), most, spec.indent or "", behind)


def judge_jointly(
    runtime: Runtime, texts: Sequence[str], specs: Sequence[HoleSpec], done: list[list[Part]], excerpts: Sequence[str]
) -> Asking[None]:
    """Re-ranks candidates whose following lines contain a hole that is now filled."""
    for number, parts in enumerate(done):
        fills = ["".join(part.text for part in each) for each in done]
        behind = "".join(
            text + fill for text, fill in zip(texts[number + 1 :], [*fills[number + 1 :], ""], strict=True)
        )
        is_known = find_following(behind) == find_following(texts[number + 1])
        if len(parts) > 1 or len(parts[0].candidates) < 2 or is_known:
            continue
        masked = next(text for text, _ in split_draft(specs[number]))
        stretch = lay_stretch(runtime, texts, specs, [*done[:number], []], masked)
        line_end = find_line_end(stretch)
        stretch = replace(stretch, after=line_end + behind, behind=line_end + stretch.after)  # the prompt is the same
        filler = Filler(runtime, stretch, excerpts=excerpts, names=specs[number].names, unused=specs[number].unused)
        candidates = yield from rank_texts(filler.compare, parts[0].candidates, line_end)
        if candidates:
            done[number] = [Part(candidates[0].text, False, tuple(candidates))]


def rank_texts(
    rank_cut: Callable[[Sequence[Candidate]], Asking[list[Candidate]]], given: Sequence[Candidate], line_end: str
) -> Asking[list[Candidate]]:
    """Ranks candidates with a filler whose stretch lacks `line_end`: removes it from the texts and appends it again."""
    found = yield from rank_cut([replace(each, text=each.text.removesuffix(line_end)) for each in given])
    return [replace(each, text=each.text + line_end) for each in found]


def find_line_end(stretch: Stretch) -> str:
    """The line break at the end of a stretch of whole lines, which is between two line starts; empty for others."""
    is_whole = stretch.before[-1:] in ("", "\n") and stretch.after[:1] != "\n" and "\n" not in stretch.forbid
    return "\n" if is_whole else ""


def rank_given(given: Sequence[GivenText]) -> list[GivenText]:
    """The distinct given texts, most certain first; independent of the order of `given`."""
    best: dict[str, GivenText] = {}
    for each in sorted(given, key=lambda each: (-each.certainty, each.text)):
        best.setdefault(each.text, each)
    return list(best.values())


def shuffle(candidates: Sequence[Candidate], kind: Kind, drawing: Drawing) -> list[Candidate]:
    """Samples an order of the candidates, without replacement, by exp(score / temperature) (Gumbel-max trick)."""
    noise = -torch.empty(len(candidates), dtype=torch.float64).exponential_(generator=drawing.generator).log()
    scores = choose_weights(candidates, kind).score(candidates)
    keys = [score / drawing.temperature + float(luck) for score, luck in zip(scores, noise, strict=True)]
    order = sorted(range(len(candidates)), key=lambda index: -keys[index])
    return [candidates[index] for index in order]


def pick(parts: Sequence[Part], index: int) -> list[Part]:
    """The parts of alternative `index`: each has its candidate of that rank, or its last one."""
    chosen = [part.candidates[index : index + 1] or part.candidates[-1:] for part in parts]
    return [
        replace(part, text=one[0].text, candidates=one) if one else part
        for part, one in zip(parts, chosen, strict=True)
    ]


def list_judged(parts: Sequence[Part]) -> list[Judged]:
    """The compared candidates of a hole, best first; for a hole with anchors the texts of its alternatives."""
    if len(parts) == 1:
        return [
            Judged(
                text=each.text,
                certainty=each.chance,
                log_likelihood=each.nats if math.isfinite(each.nats) else None,
                following=each.following,
            )
            for each in parts[0].candidates
        ]
    found: dict[str, Judged] = {}
    for index in range(max((len(part.candidates) for part in parts), default=0)):
        filled = answer_hole(pick(parts, index))
        found.setdefault(filled.text, Judged(text=filled.text, certainty=filled.certainty))
    return list(found.values())


def answer_hole(parts: Sequence[Part]) -> FilledHole:
    text, tokens, confidence, anchors = "", list[tuple[int, int]](), list[float](), list[tuple[int, int]]()
    certainties: list[float | None] = []
    for part in parts:
        start = len(text)
        text += part.text
        if part.is_anchor:
            anchors.append((start, len(text)))
            tokens.append((start, len(text)))
            confidence.append(1.0)
        elif part.candidates:
            certainties.append(part.candidates[0].chance)
            for piece, log in part.candidates[0].logs:
                end = min(start + len(piece), len(text))
                if start < end:
                    tokens.append((start, end))
                    confidence.append(math.exp(min(0.0, log)))
                start = end
    known = [certainty for certainty in certainties if certainty is not None]
    certainty = math.prod(known) if known and len(known) == len(certainties) else None
    return FilledHole(
        text=text, tokens=tokens, confidence=confidence, anchors=merge(anchors), cut=False, certainty=certainty
    )


def show(specs: Sequence[HoleSpec], done: Sequence[Sequence[Part]], step: int) -> StepEvent:
    states = []
    for number, spec in enumerate(specs):
        if number >= len(done) or len(done[number]) < len(list(split_draft(spec))):
            kept = "".join(text for text, is_kept in split_draft(spec) if is_kept)
            states.append(HoleState(text=kept, settled=[(0, len(kept))] if kept else [], masked=1))
            continue
        filled = answer_hole(done[number])
        settled = [(0, len(filled.text))] if filled.text else []
        states.append(
            HoleState(text=filled.text, settled=settled, masked=0, tokens=filled.tokens, confidence=filled.confidence)
        )
    return StepEvent(step=step, num_steps=max(step, 1), holes=states)


def count_bytes(runtime: Runtime, outline: RequestOutline, excerpts: Sequence[str]) -> int:
    """Memory of a fill: the KV caches of the prompt and two searches, one of which grows, and most logits at once."""
    shape, size = runtime.loaded.config.transformer, runtime.dtype.itemsize
    context = sum(map(len, outline.pieces)) + sum(map(len, excerpts))  # a token has at least one character
    num_tokens = min(context, MAX_BEFORE + AHEAD_CHARACTERS) + runtime.loaded.config.max_hole
    a_token = 2 * shape.num_layers * shape.num_kv_heads * shape.head_dim * size
    num_scored = HEAD_ROWS if runtime.device.type == "cpu" else MAX_TREE_ROWS
    scores = num_scored * shape.vocab_size * (size + 4)
    return int(4 * num_tokens * a_token + scores)
