"""Length policies by name."""

from typing import Final

from midfill_engine.lengths import calibrated, learned
from midfill_engine.lengths.base import LengthBounds, LengthPolicy, Lengths, LengthScores, choose_totals
from midfill_engine.registry import Registry

FILLED_TOTALS: Final = (4, 8, 16, 32)  # the lengths that `candidates` fills


def limit_or(default_tokens: int, bounds: LengthBounds) -> tuple[int]:
    """The length that the request sets as the limit, or a default that is not below the minimum."""
    if bounds.has_limit:
        return (bounds.max_tokens,)
    return (max(default_tokens, bounds.min_tokens),)


LENGTHS: Final = Registry(
    "length policy",
    {
        # Exactly the limit of the request, or a default. Nothing shortens it.
        "fixed": LengthPolicy(choose_totals(lambda bounds: limit_or(32, bounds)), lengths_are_chosen=False),
        "learned": LengthPolicy(learned.search, may_delete=True),
        # Grows and shrinks by tokens that the model was trained on: DreamOn (arXiv 2602.01326) does best from 64 masks.
        "expand": LengthPolicy(
            choose_totals(lambda bounds: (max(64, bounds.min_tokens),)),
            may_delete=True,
            may_expand=True,
            resizes_canvas=True,
        ),
        "calibrated": LengthPolicy(calibrated.search, tried_totals=calibrated.GRID),
        # Fills canvases of several lengths in parallel and keeps the most confident fill.
        "candidates": LengthPolicy(choose_totals(lambda bounds: FILLED_TOTALS), filled_totals=FILLED_TOTALS),
        # As long as allowed, until an end-of-text token: for models that decode from left to right.
        "until-end": LengthPolicy(
            choose_totals(lambda bounds: limit_or(128, bounds)), may_delete=True, lengths_are_chosen=False
        ),
    },
)

__all__ = ["LENGTHS", "LengthBounds", "LengthPolicy", "LengthScores", "Lengths"]
