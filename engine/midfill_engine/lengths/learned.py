"""A canvas whose length comes from the model's length head; deletion tokens then shorten it."""

from typing import Final

from midfill_engine.lengths.base import HoleNeed, Lengths, LengthScores, Measure, fit, spread

# A canvas that is too long fills with repeats: 97 lines were 0.33 similar at 0.15 and 0.2, 0.30 at 0.1, 0.32 at 0.3.
QUANTILE: Final = 0.2
# Growth allowed for a hinted stretch (an earlier fill that is filled again).
SLACK: Final = 0.25
DEFAULT_TOKENS: Final = 32


async def search(needs: list[HoleNeed], scores: LengthScores | None, measure: Measure) -> list[Lengths]:
    totals = [DEFAULT_TOKENS] * len(needs)
    if scores is not None:
        totals = _cover(scores)
    return [[_spread(total, need) for total, need in zip(totals, needs, strict=True)]]


def _spread(total: int, need: HoleNeed) -> list[int]:
    """`total` positions spread over a hole's anchors and stretches, of which hinted ones may grow."""
    hints: list[int | None] = []
    for hint in need.hints:
        if hint is not None:
            hint += max(1, round(hint * SLACK))
        hints.append(hint)
    return fit(spread(total - need.anchored_tokens, tuple(hints)), need)


def _cover(scores: LengthScores) -> list[int]:
    """For each hole the smallest bucket that covers `QUANTILE` of the probability."""
    is_below = scores.log_probs.float().exp().cumsum(dim=-1) < QUANTILE  # [G, K]
    last = len(scores.buckets) - 1
    return [scores.buckets[min(index, last)] for index in is_below.sum(dim=-1).tolist()]
