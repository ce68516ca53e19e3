"""Searches the length with the highest confidence, corrected for the bias to short canvases: CAL (arXiv 2602.00476).

The paper climbs from 8 in steps of one. Here one packed forward pass compares a grid, another those near the best.
"""

import math
from typing import Final

from midfill_engine.lengths.base import LengthBounds, Lengths, LengthScores, Measure, lengths_of_total, list_canvases

GRID: Final = (1, 2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64)
REACH: Final = 3  # how far from the best length the second forward pass searches


def expected_confidence(length: int) -> float:
    """The mean confidence of `length` masks whatever the text: the authors' fit on LLaDA-8B-Base (length_bias.py)."""
    return 1.00 * math.exp(-1.77 * length) + 0.56 * math.exp(-0.06 * length) + 0.24


async def search(bounds_of_holes: list[LengthBounds], scores: LengthScores | None, measure: Measure) -> list[Lengths]:
    """One canvas, with the best length of each hole. All lengths use one KV cache of the context, which is a fifteenth
    of the cost and approximate if attention is bidirectional.
    """
    if all(bounds.min_tokens >= bounds.max_tokens or None not in bounds.hints for bounds in bounds_of_holes):
        return [[lengths_of_total(bounds.max_tokens, bounds) for bounds in bounds_of_holes]]  # nothing is to choose
    rated: list[dict[int, float]] = [{} for _ in bounds_of_holes]  # the score of each length of each hole
    await _rate([list(GRID) for _ in bounds_of_holes], bounds_of_holes, measure, rated)
    near = []
    for scores_of_lengths in rated:
        best = _best(scores_of_lengths)
        near.append([best + shift for shift in range(-REACH, REACH + 1) if shift])
    await _rate(near, bounds_of_holes, measure, rated)
    return [list(map(lengths_of_total, map(_best, rated), bounds_of_holes))]


async def _rate(
    wanted: list[list[int]], bounds_of_holes: list[LengthBounds], measure: Measure, rated: list[dict[int, float]]
) -> None:
    """Adds the scores of the `wanted` lengths of each hole to `rated`. The i-th ones of all holes share a canvas."""
    lengths_of_holes = []
    for totals, bounds in zip(wanted, bounds_of_holes, strict=True):
        lengths_of_holes.append([lengths_of_total(total, bounds) for total in totals])
    canvases = list_canvases(lengths_of_holes)
    for canvas, confidences in zip(canvases, await measure(canvases), strict=True):
        for lengths, confidence, scores_of_lengths in zip(canvas, confidences, rated, strict=True):
            total = sum(lengths)
            scores_of_lengths[total] = confidence / expected_confidence(total)


def _best(scores_of_lengths: dict[int, float]) -> int:
    """The length with the highest score; of several the shortest."""
    return max(sorted(scores_of_lengths), key=lambda length: scores_of_lengths[length])
