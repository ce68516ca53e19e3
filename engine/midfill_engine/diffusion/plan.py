"""Reads a request into a plan: what to fill, with which variants and settings. Knows tokens; runs no model."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Final

import torch
from torch import Tensor

from midfill_engine.caches import CACHES, Cache
from midfill_engine.errors import RequestError
from midfill_engine.lengths import LENGTHS, LengthPolicy
from midfill_engine.loading.runtime import Runtime
from midfill_engine.models.choice import CHUNK_POSITIONS, count_wide_copies
from midfill_engine.models.family import AuthorsSetting, Family, Pieces
from midfill_engine.models.sequence import Frame
from midfill_engine.registry import UnknownName
from midfill_engine.requests.outline import HoleOutline, RequestOutline, check_room, no_healing, outline_request
from midfill_engine.samplers import SAMPLERS, Sampler
from midfill_engine.scheduling.work import MAX_ROWS
from midfill_engine.tokens.tokenizer import heal
from midfill_engine.wire import ErrorCode, HoleSegment, InfillRequest, Segment, TextSegment

MAX_RULES: Final = 64  # token masks of a request, because every string of one is compared with all tokens
TRIALS_AT_ONCE: Final = 4  # each has a copy of the context's KV cache


@dataclass(frozen=True)
class Plan:
    """A request that was read, and its variants. `texts` are the ids of the visible texts in the model's order."""

    runtime: Runtime
    request: InfillRequest
    outline: RequestOutline
    texts: Pieces
    sampler: Callable[[], Sampler]
    policy: LengthPolicy
    cache: Cache

    @cached_property
    def context_ids(self) -> Tensor:
        return torch.tensor(list(chain.from_iterable(self.texts)), dtype=torch.int64)

    def frame(self, hole_lengths: Sequence[int]) -> Frame:
        """The positions of the context and of holes with these lengths."""
        family, config = self.runtime.family, self.runtime.loaded.config
        layout = family.lay_out([len(text) for text in self.texts], list(hole_lengths), config.hole_span)
        return Frame(layout, family, config.block_size)

    @cached_property
    def quality(self) -> float:
        """The request's dial as a number; the family's if the request has none."""
        requested = self.request.quality
        return requested if isinstance(requested, (int, float)) else self.runtime.family.quality

    def count_bytes(self) -> int:
        """Upper bound of a fill's memory: KV caches, token masks, the largest forward pass. Raises RequestError."""
        runtime, request, config = self.runtime, self.request, self.runtime.loaded.config
        shape = config.transformer
        size = runtime.dtype.itemsize
        filled = [self._count_positions(total) for total in self.policy.filled_totals or (config.max_hole,)] * request.n
        tried = [self._count_positions(total) for total in self.policy.tried_totals]
        num_context = len(self.context_ids)
        token_bytes = 2 * shape.num_layers * shape.num_kv_heads * shape.head_dim * size
        shares_context = runtime.family.attention == "bidirectional" and bool(tried)  # all trials share one
        num_hole = max(sum(filled), sum(tried))
        num_contexts = max(len(filled), len(tried))
        if shares_context:
            num_hole = max(sum(filled), sum(sorted(tried)[-TRIALS_AT_ONCE:]))
            num_contexts = len(filled)
        if runtime.family.attention == "context_frozen":  # the context is computed once, before all holes
            max_rows = max(num_context, num_hole)
            kv_bytes = num_context * token_bytes
        else:
            max_rows = num_hole + num_context * num_contexts
            kv_bytes = 0
            if self.cache.keeps_own_keys:
                kv_bytes = (sum(filled) + num_context * len(filled)) * token_bytes
        if shares_context:  # each trial has a copy of the shared KV cache, rotated to its positions; one is being made
            kv_bytes = max(kv_bytes, (2 + TRIALS_AT_ONCE) * num_context * token_bytes)
        state_bytes = min(max_rows, MAX_ROWS) * (9 * shape.dim + 2 * shape.mlp_dim) * size  # as measured
        num_wide = min(num_hole, CHUNK_POSITIONS) * count_wide_copies(request.temperature, request.top_p)
        score_bytes = shape.vocab_size * (2 * min(num_hole, MAX_ROWS) * size + 4 * num_wide)
        rule_bytes = count_rules(self.outline.holes) * shape.vocab_size * max(len(filled), len(tried))
        return int(kv_bytes + rule_bytes + state_bytes + score_bytes)

    def _count_positions(self, total: int) -> int:
        """The number of positions of all holes if each has up to `total` masked ones."""
        max_hole = self.runtime.loaded.config.max_hole
        bounds_of_holes = [hole.length_bounds(max_hole) for hole in self.outline.holes]
        return sum(bounds.anchored_tokens + min(total, bounds.max_tokens) for bounds in bounds_of_holes)


def read_request(runtime: Runtime, request: InfillRequest, cache: str | None, lengths: str | None) -> Plan:
    """Tokenizes the request and looks up its variants; `cache` and `lengths` are names. Raises RequestError."""
    family, config, tokens = runtime.family, runtime.loaded.config, runtime.tokens
    if not request.drafts:
        message = f"{runtime.names[0]} cannot tell how likely a given text is"
        raise RequestError(ErrorCode.BAD_REQUEST, message, "use a model of the family 'causal', or leave drafts out")
    sampler, policy, chosen_cache = find_variants(runtime, cache, lengths, request.sampler)
    opening, closing = tokens.opening(request.tag), list(tokens.closing)
    healing = heal if family.heals else no_healing
    excerpts = [TextSegment(text=f"{text}\n\n") for text in request.excerpts]
    segments = [*excerpts, *request.segments]
    outline = outline_request(segments, runtime.loaded.tokenizer, opening, closing, config.max_context, healing)
    check_room(outline, config.max_hole)
    if not family.sees_suffix and len(outline.holes) > 1:
        message = f"models of the family {family.name!r} fill one hole at a time"
        raise RequestError(ErrorCode.BAD_REQUEST, message, "send a request for each hole")
    texts = family.arrange(outline.pieces, tokens)
    return Plan(runtime, request, outline, texts, sampler, policy, chosen_cache)


def find_variants(
    runtime: Runtime, cache_name: str | None, lengths_name: str | None, sampler_name: str | None = None
) -> tuple[Callable[[], Sampler], LengthPolicy, Cache]:
    """Looks up variants by name; defaults are the family's. Raises RequestError for unknown and unfit ones."""
    family, next_step = runtime.family, "leave it out to take the model's own"
    chosen_cache = cache_name or family.cache
    try:
        make_sampler = SAMPLERS.find(sampler_name or family.sampler)
        policy = LENGTHS.find(lengths_name or family.lengths)
        cache = CACHES.find(chosen_cache)
    except UnknownName as error:
        raise RequestError(ErrorCode.BAD_REQUEST, str(error), "use one of the known names") from error
    if family.attention not in cache.attentions:
        fitting = ", ".join(name for name, other in CACHES.items() if family.attention in other.attentions)
        message = f"the cache {chosen_cache!r} does not fit models of the family {family.name!r}; these do: {fitting}"
        raise RequestError(ErrorCode.BAD_REQUEST, message, next_step)
    if family.attention == "canvas" and make_sampler.takes_back:  # here every step may change every token
        raise RequestError(ErrorCode.BAD_REQUEST, "this sampler is for models with a mask token", next_step)
    if policy.may_expand and runtime.tokens.expand_id is None:
        message = f"models of the family {family.name!r} have no token that lengthens a hole"
        raise RequestError(ErrorCode.BAD_REQUEST, message, next_step)
    return make_sampler, policy, cache


def usual_cache(runtime: Runtime) -> str:
    """The name of the engine's default cache: the family's, but `dual` for bidirectional models on a CPU, because exact
    decoding is too slow there.
    """
    is_slow = runtime.device.type == "cpu" and runtime.family.attention == "bidirectional"
    return "dual" if is_slow else runtime.family.cache


def count_rules(outlines: list[HoleOutline]) -> int:
    """The number of token sets that the holes need. Raises RequestError for too many sets or forbidden strings."""
    strings: set[str] = set()
    rules: set[tuple[tuple[str, ...], str]] = set()
    for outline in outlines:
        strings.update(outline.forbid)
        for stretch in outline.masked:
            rules |= {(outline.forbid, stretch.leading), (outline.forbid, "")}
    if max(len(strings), len(rules)) > MAX_RULES:
        message = f"the holes forbid more than {MAX_RULES} different texts, or more than {MAX_RULES} sets of texts"
        raise RequestError(ErrorCode.TOO_LARGE, message, "forbid the same in all holes, or ask for fewer holes")
    return len(rules)


def take_authors(family: Family, request: InfillRequest) -> InfillRequest:
    """Puts the authors' settings in place of defaults if quality is "authors". Raises RequestError if none is known."""
    if request.quality != "authors":
        return request
    setting = family.authors
    if setting is None:
        message = f"no setting of the authors of {family.name!r} models is known"
        raise RequestError(ErrorCode.BAD_REQUEST, message, "give quality as a number from 0 to 1")
    return request.model_copy(
        update={
            "quality": setting.quality,
            "sampler": request.sampler or setting.sampler,
            "steps": request.steps or setting.steps,
            "temperature": request.temperature or setting.temperature,
            "top_p": request.top_p if request.top_p < 1 else setting.top_p,
            "segments": [_limit_hole(segment, setting) for segment in request.segments],
        }
    )


def _limit_hole(segment: Segment, setting: AuthorsSetting) -> Segment:
    if setting.max_tokens is None or not isinstance(segment, HoleSegment) or segment.hole.max_tokens is not None:
        return segment
    limit = max(setting.max_tokens, segment.hole.min_tokens)
    return HoleSegment(hole=segment.hole.model_copy(update={"max_tokens": limit}))
