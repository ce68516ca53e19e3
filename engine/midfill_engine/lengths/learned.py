"""Takes a canvas's length from the model's length head; deletion tokens then shorten it."""

from typing import Final

from midfill_engine.lengths.base import LengthBounds, Lengths, LengthScores, Measure, fit_to_bounds, spread

# Too long canvases fill with repeats: of 97 lines fills were 0.33 similar at 0.15 and 0.2, 0.30 at 0.1, 0.32 at 0.3.
QUANTILE: Final = 0.2
# The share by which a hinted stretch (an earlier fill that is filled again) may grow.
SLACK: Final = 0.25
DEFAULT_TOKENS: Final = 32


async def search(bounds_of_holes: list[LengthBounds], scores: LengthScores | None, measure: Measure) -> list[Lengths]:
    """One canvas. Without `scores`, of a length head, holes get a default length."""
    totals = [DEFAULT_TOKENS] * len(bounds_of_holes)
    if scores is not None:
        totals = _cover(scores)
    return [[_spread(total, bounds) for total, bounds in zip(totals, bounds_of_holes, strict=True)]]


def _spread(total: int, bounds: LengthBounds) -> list[int]:
    """The lengths of a hole's stretches, which with its anchors have `total` positions. Hinted stretches may grow."""
    hints = tuple(None if hint is None else hint + max(1, round(hint * SLACK)) for hint in bounds.hints)
    return fit_to_bounds(spread(total - bounds.anchored_tokens, hints), bounds)


def _cover(scores: LengthScores) -> list[int]:
    """For each hole the smallest bucket that covers `QUANTILE` of the probability."""
    is_below = scores.log_probs.float().exp().cumsum(dim=-1) < QUANTILE  # [G, K]
    last = len(scores.buckets) - 1
    return [scores.buckets[min(index, last)] for index in is_below.sum(dim=-1).tolist()]
