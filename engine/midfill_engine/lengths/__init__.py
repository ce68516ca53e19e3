"""Length policies by name."""

from typing import Final

from midfill_engine.lengths import calibrated, learned
from midfill_engine.lengths.base import HoleNeed, LengthPolicy, Lengths, LengthScores, choose_totals
from midfill_engine.registry import Registry

FILLED_TOTALS: Final = (4, 8, 16, 32)  # the lengths that `candidates` fills


def limit_or(default_tokens: int, need: HoleNeed) -> tuple[int]:
    """The length that the request sets as the limit, or a default that is not below the minimum."""
    if need.has_limit:
        return (need.max_tokens,)
    return (max(default_tokens, need.min_tokens),)


LENGTHS: Final = Registry(
    "length policy",
    {
        # Exactly the limit of the request, or a default. Nothing shortens it.
        "fixed": LengthPolicy(choose_totals(lambda need: limit_or(32, need)), chooses=False),
        "learned": LengthPolicy(learned.search, may_delete=True),
        # Grows and shrinks by tokens that the model was trained on: DreamOn (arXiv 2602.01326) does best from 64 masks.
        "expand": LengthPolicy(
            choose_totals(lambda need: (max(64, need.min_tokens),)), may_delete=True, may_expand=True, removes=True
        ),
        "calibrated": LengthPolicy(calibrated.search, tries=calibrated.GRID),
        # Fills canvases of several lengths in parallel and keeps the most confident fill.
        "candidates": LengthPolicy(choose_totals(lambda need: FILLED_TOTALS), fills=FILLED_TOTALS),
        # As long as allowed, until an end-of-text token: for models that decode from left to right.
        "until-end": LengthPolicy(choose_totals(lambda need: limit_or(128, need)), may_delete=True, chooses=False),
    },
)

__all__ = ["LENGTHS", "HoleNeed", "LengthPolicy", "LengthScores", "Lengths"]
