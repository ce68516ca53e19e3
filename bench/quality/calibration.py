"""Compares confidences with how often they are right: a reliability table and the expected calibration error.

The error is the mean over bins of |share right - mean confidence|, weighted by their counts (Naeini et al. 2015; Guo et
al. 2017), with ten bins of equal width.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Final

from bench.quality.complete import Completion

NUM_BINS: Final = 10
ENOUGH: Final = 0.75


@dataclass(frozen=True)
class Bin:
    """Confidences from `low` up to the next bin's."""

    low: float
    count: int
    confidence: float
    right: float


@dataclass(frozen=True)
class Calibration:
    """`error` is the expected calibration error in [0, 1]; `right` and `confidence` are means over all `count`."""

    count: int
    error: float
    confidence: float
    right: float
    bins: tuple[Bin, ...]


def calibrate(pairs: Sequence[tuple[float, bool]]) -> Calibration | None:
    """The calibration of pairs (confidence, was right), without empty bins; None if there are no pairs."""
    if not pairs:
        return None
    members: list[list[tuple[float, bool]]] = [[] for _ in range(NUM_BINS)]
    for pair in pairs:
        members[min(int(pair[0] * NUM_BINS), NUM_BINS - 1)].append(pair)
    bins = []
    for index, own in enumerate(members):
        if own:
            bins.append(Bin(index / NUM_BINS, len(own), *_means(own)))
    error = sum(bin.count * abs(bin.right - bin.confidence) for bin in bins) / len(pairs)
    return Calibration(len(pairs), round(error, 4), *_means(pairs), tuple(bins))


def _means(pairs: Sequence[tuple[float, bool]]) -> tuple[float, float]:
    confidence = math.fsum(confidence for confidence, _ in pairs) / len(pairs)
    right = sum(is_right for _, is_right in pairs) / len(pairs)
    return round(confidence, 4), round(right, 4)


def settled_tokens(completions: Iterable[Completion]) -> list[tuple[float, bool]]:
    """The confidence of every visible token of the fills, and whether the true middle has the token at its place.

    Places are equal indices if both have as many tokens; otherwise the longest common runs align both.
    """
    pairs: list[tuple[float, bool]] = []
    for completion in completions:
        pairs += zip(completion.confidence, right_pieces(completion.pieces, completion.true_pieces), strict=True)
    return pairs


def right_pieces(pieces: Sequence[str], true_pieces: Sequence[str]) -> list[bool]:
    if len(pieces) == len(true_pieces):
        return [piece == true for piece, true in zip(pieces, true_pieces, strict=True)]
    right = [False] * len(pieces)
    for start, _, size in SequenceMatcher(None, pieces, true_pieces, autojunk=False).get_matching_blocks():
        right[start : start + size] = [True] * size
    return right


def whole_fills(completions: Iterable[Completion], succeeded: Iterable[bool]) -> list[tuple[float, bool]]:
    """Every fill that has tokens: the geometric mean of their confidences, and whether it succeeded."""
    pairs = []
    for completion, success in zip(completions, succeeded, strict=True):
        if completion.confidence:
            logs = [math.log(max(confidence, 1e-12)) for confidence in completion.confidence]
            pairs.append((math.exp(math.fsum(logs) / len(logs)), success))
    return pairs


def threshold_of(pairs: Sequence[tuple[float, bool]]) -> float | None:
    """The lowest certainty from which on a share of ENOUGH is right; None if there is none."""
    threshold, num_right = None, 0
    for count, (certainty, is_right) in enumerate(sorted(pairs, reverse=True), 1):
        num_right += is_right
        if num_right >= ENOUGH * count:
            threshold = round(certainty, 3)
    return threshold
