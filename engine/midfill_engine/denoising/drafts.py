"""Chooses given texts for holes, as token ids. A hole takes a text if the hole has no known text, the given text begins
with the white space that healing moved into the hole, and no token is forbidden.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch

from midfill_engine.denoising.canvas import Canvas
from midfill_engine.denoising.outline import HoleOutline
from midfill_engine.denoising.plan import Plan, seeded
from midfill_engine.tokens.tokenizer import Tokenizer
from midfill_engine.tokens.vocabulary import Vocabulary
from midfill_engine.wire import GivenText, HoleSegment

EMPTY: Final = 1e-3  # certainty of a fill without tokens


@dataclass(frozen=True)
class Laid:
    """A given text as the ids of a hole's masked stretch."""

    ids: tuple[int, ...]
    certainty: float


def is_blank(outline: HoleOutline) -> bool:
    """True if nothing of the hole's text is known except white space from healing."""
    masked = [stretch for stretch in outline.stretches if stretch.ids is None]
    return len(masked) == 1 and masked[0].hint is None and outline.stretches[-1].ids is None


def choose_drafts(plan: Plan) -> list[list[Laid | None]]:
    """The given text for each hole, for every alternative; none for families whose own certainty is unknown."""
    request, outlines, least = plan.request, plan.outline.holes, plan.runtime.family.own_certainty
    if least is None:
        return [[None] * len(outlines)] * request.n
    specs = [segment.hole for segment in request.segments if isinstance(segment, HoleSegment)]
    fitting = [lay(plan, spec.candidates, outline, least) for spec, outline in zip(specs, outlines, strict=True)]
    generators = [seeded(request.seed, index) for index in range(request.n)]
    return [
        [choose(laid, index, request.temperature, generator) for laid in fitting]
        for index, generator in enumerate(generators)
    ]


def lay(plan: Plan, given: Sequence[GivenText], outline: HoleOutline, least: float) -> list[Laid]:
    """The given texts with a certainty of `least` that fit the hole, the most certain first."""
    runtime, found = plan.runtime, []
    need = outline.need(runtime.loaded.config.max_hole)
    for each in rank_given(given) if is_blank(outline) else ():
        ids = ids_of(each.text, outline, runtime.loaded.tokenizer) if each.certainty >= least else ()
        if ids and need.min_tokens <= len(ids) <= need.max_tokens and _is_allowed(ids, outline, runtime.vocabulary):
            found.append(Laid(ids, each.certainty))
    return found


def rank_given(given: Sequence[GivenText]) -> list[GivenText]:
    """The distinct given texts, most certain first; independent of the order of `given`."""
    best: dict[str, GivenText] = {}
    for each in sorted(given, key=lambda each: (-each.certainty, each.text)):
        best.setdefault(each.text, each)
    return list(best.values())


def ids_of(text: str, outline: HoleOutline, tokens: Tokenizer) -> tuple[int, ...]:
    """The ids of a given text in the masked stretch; empty if the text lacks the hole's tail or changes in decoding."""
    if not text.endswith(outline.tail):
        return ()
    leading = outline.masked[0].leading
    whole = leading + text[: len(text) - len(outline.tail)]
    ids = tuple(tokens.encode(whole))
    return ids if b"".join(map(tokens.token_bytes, ids)) == whole.encode("utf-8", errors="replace") else ()


def _is_allowed(ids: tuple[int, ...], outline: HoleOutline, vocabulary: Vocabulary) -> bool:
    fits = bool(vocabulary.allowed(forbid=outline.forbid)[list(ids)].all())
    return fits and bool(vocabulary.allowed(leading=outline.masked[0].leading)[ids[0]])


def choose(laid: Sequence[Laid], index: int, temperature: float, generator: torch.Generator) -> Laid | None:
    """The draft of alternative `index` by rank, or with a temperature one sampled by certainty; None without one."""
    if temperature == 0:
        return laid[index] if index < len(laid) else None
    weights = [each.certainty ** (1 / temperature) for each in laid]
    rest = max(0.0, 1 - math.fsum(each.certainty for each in laid)) ** (1 / temperature)
    drawn = int(torch.multinomial(torch.tensor([*weights, rest + 1e-9]), 1, generator=generator))
    return laid[drawn] if drawn < len(laid) else None


def certainty_of(canvas: Canvas, hole: int, own: float | None) -> float | None:
    """The probability that a hole's text is right: its draft's, otherwise `own`; None if unknown or partly given."""
    if hole in canvas.certainties or own is None:
        return canvas.certainties.get(hole)
    here = (canvas.hole_of == hole) & ~canvas.anchored
    if not bool(here.any()):
        return 1.0
    if not bool((here & ~canvas.vocabulary.is_deletion(canvas.ids)).any()):
        return EMPTY
    return own if is_blank(canvas.outlines[hole]) else None
