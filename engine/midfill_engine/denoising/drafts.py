"""Lays given texts out in holes: which of them fit a hole, as the ids of its masked stretch. Knows no model.

A hole takes a text only where nothing of its own is known. What the text begins with must be what healing gave to
the stretch, and no token of it may be one that the hole forbids.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch

from midfill_engine.denoising.canvas import Canvas
from midfill_engine.denoising.outline import HoleOutline, TextTokens
from midfill_engine.lengths import HoleNeed
from midfill_engine.tokens.vocabulary import Vocabulary
from midfill_engine.wire import GivenText

EMPTY: Final = 1e-3  # how certain a fill without a token is: nobody asks for none


@dataclass(frozen=True)
class Laid:
    """A given text as the ids of a hole's masked stretch."""

    ids: tuple[int, ...]
    certainty: float


def is_blank(outline: HoleOutline) -> bool:
    """Whether nothing is known of the hole's text but the white space that healing gave it."""
    masked = [stretch for stretch in outline.stretches if stretch.ids is None]
    return len(masked) == 1 and masked[0].hint is None and outline.stretches[-1].ids is None


def lay(
    given: Sequence[GivenText],
    outline: HoleOutline,
    need: HoleNeed,
    tokens: TextTokens,
    vocabulary: Vocabulary,
    least: float,
) -> list[Laid]:
    """The given texts with a certainty of `least` that fit the hole, the surest first."""
    found = []
    for each in rank_given(given) if is_blank(outline) else ():
        ids = ids_of(each.text, outline, tokens) if each.certainty >= least else ()
        if ids and need.min_tokens <= len(ids) <= need.max_tokens and _is_allowed(ids, outline, vocabulary):
            found.append(Laid(ids, each.certainty))
    return found


def rank_given(given: Sequence[GivenText]) -> list[GivenText]:
    """The surest first, every text once: an order that does not depend on the one they came in."""
    best: dict[str, GivenText] = {}
    for each in sorted(given, key=lambda each: (-each.certainty, each.text)):
        best.setdefault(each.text, each)
    return list(best.values())


def ids_of(text: str, outline: HoleOutline, tokens: TextTokens) -> tuple[int, ...]:
    """The ids of the masked stretch for a user's text; none where it cannot end so."""
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
    """The draft of alternative `index`: the best, the next, ...; with a temperature one drawn by certainty, or none."""
    if temperature == 0:
        return laid[index] if index < len(laid) else None
    weights = [each.certainty ** (1 / temperature) for each in laid]
    rest = max(0.0, 1 - math.fsum(each.certainty for each in laid)) ** (1 / temperature)
    drawn = int(torch.multinomial(torch.tensor([*weights, rest + 1e-9]), 1, generator=generator))
    return laid[drawn] if drawn < len(laid) else None


def certainty_of(canvas: Canvas, hole: int, own: float | None) -> float | None:
    """The probability that the whole text of a hole is right: its draft's, otherwise `own`, how often the model's own
    fills are right; None where that is unknown, as for a hole of which a part is given.
    """
    if hole in canvas.certainties or own is None:
        return canvas.certainties.get(hole)
    here = (canvas.hole_of == hole) & ~canvas.anchored
    if not bool(here.any()):
        return 1.0
    if not bool((here & ~canvas.vocabulary.is_deletion(canvas.ids[0])).any()):
        return EMPTY
    return own if is_blank(canvas.outlines[hole]) else None
