"""Builds answers as documented in PROTOCOL.md. Knows texts and ranges, starts nothing."""

from collections.abc import Iterable

from lsprotocol import types

from midfill_infill.candidates import PlacedFill
from midfill_infill.fill import Filled
from midfill_lsp.messages import FillResult, FillStats, HoleFill, Range
from midfill_lsp.pending import PendingHole
from midfill_lsp.text import Span, Text, to_units


def describe(fill: PlacedFill, range: types.Range, encoding: str, text: str | None = None) -> HoleFill:
    """`text` is what goes to `range` where that is more than the fill: its lead and tail, or other line ends."""
    shown = fill.text if text is None else text
    shift = shown.find(fill.text)
    tokens: Iterable[Span] = [(start + shift, end + shift) for start, end in fill.tokens] if shift >= 0 else []
    return HoleFill(
        range=Range.of(range),
        text=shown,
        name=fill.hole.name,
        tokens=to_units(shown, tokens, encoding),
        confidence=fill.confidence if shift >= 0 else (),
        certainty=fill.certainty,
        is_guess=fill.is_guess,
        origin=fill.origin,
    )


def describe_placed(holes: Iterable[PendingHole], text: Text) -> list[HoleFill]:
    """The fills of a pending fill where they stand in `text`."""
    return [describe(hole.fill, text.range(hole.inner), text.encoding) for hole in holes]


def make_result(
    filled: Filled, holes: Iterable[HoleFill], *, version: int | None, applied: bool, id: int | None = None
) -> FillResult:
    return FillResult(
        id=id,
        version=version,
        applied=applied,
        holes=tuple(holes),
        alternatives=tuple(tuple(fill.text for fill in row.fills) for row in filled.alternatives),
        new_errors=filled.new_errors,
        passes=filled.passes or None,
        model=filled.model,
        stats=make_stats(filled),
    )


def make_stats(filled: Filled) -> FillStats:
    return FillStats.model_validate(filled.stats, from_attributes=True)
