"""The interface of length policies, which choose how many masked positions a hole gets. Knows no tokens."""

from bisect import bisect_right
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

Lengths = list[list[int]]  # of a canvas, per hole: the number of positions of each masked stretch
# Runs a forward pass over a canvas of each of these lengths. Returns, per canvas, the mean confidence of each hole.
Measure = Callable[[list[Lengths]], Awaitable[list[list[float]]]]


@dataclass(frozen=True)
class LengthBounds:
    """What is known of a hole's length before it is filled. `min_tokens` and `max_tokens` bound the masked positions of
    all stretches together; the `anchored_tokens` do not count. `has_limit`: the request named the maximum, otherwise it
    is the model's. `hints`: for each masked stretch the number of tokens of the draft's text there, None without text.
    """

    hints: tuple[int | None, ...]
    anchored_tokens: int
    min_tokens: int
    max_tokens: int
    has_limit: bool


@dataclass(frozen=True)
class LengthScores:
    """The length head's `log_probs` [holes, buckets]: that a hole's length, anchors included, is in bucket k: above
    `buckets[k - 1]` and at most `buckets[k]`.
    """

    buckets: tuple[int, ...]
    log_probs: Tensor


Search = Callable[[list[LengthBounds], LengthScores | None, Measure], Coroutine[Any, Any, list[Lengths]]]


@dataclass(frozen=True)
class LengthPolicy:
    """`search` returns the lengths of one or more canvases, with at least 1 position for every masked stretch.

    Deletions and expansions are tokens by which a model shortens or lengthens a hole. `may_delete` and `may_expand`:
    the model may settle them. `resizes_canvas`: after each step deletions leave the canvas, and expansions become two
    masks. `lengths_are_chosen`: `search` chose the lengths, so that a hole that uses all positions is complete;
    otherwise they are only a limit, and the text of such a hole is reported as cut.

    `tried_totals` and `filled_totals` are for the estimate of memory: the numbers of masked positions of a hole that
    `search` compares, and those on the canvases that it returns; without `filled_totals` the model's maximum.
    """

    search: Search
    may_delete: bool = False
    may_expand: bool = False
    lengths_are_chosen: bool = True
    resizes_canvas: bool = False
    tried_totals: tuple[int, ...] = ()
    filled_totals: tuple[int, ...] = ()


def spread(total: int, hints: tuple[int | None, ...]) -> list[int]:
    """Splits `total` over the stretches: hinted ones take their hint, the others share the rest evenly. The sum differs
    from `total` where hints alone exceed it, or every stretch has one.
    """
    num_open = sum(hint is None for hint in hints)
    rest = max(num_open, total - sum(hint or 0 for hint in hints))
    lengths: list[int] = []
    for hint in hints:
        if hint is not None:
            lengths.append(hint)
            continue
        length = -(-rest // num_open)  # rounded up: the first stretches get one more
        rest -= length
        num_open -= 1
        lengths.append(length)
    return lengths


def fit_to_bounds(lengths: list[int], bounds: LengthBounds) -> list[int]:
    """The stretches' `lengths`, each at least 1, with a sum within the hole's bounds: the longest stretches shrink, or
    the first of them grows. Requires a maximum of at least 1 for each stretch.
    """
    wanted = [max(1, length) for length in lengths]
    longest = max(wanted, default=0)
    # The lowest limit of a stretch that leaves more than the maximum; the first stretches at this limit give one less.
    limit = bisect_right(range(longest), bounds.max_tokens, key=lambda cap: sum(min(length, cap) for length in wanted))
    fitted = [min(length, limit) for length in wanted]
    for index, length in enumerate(fitted):
        if length == limit and sum(fitted) > bounds.max_tokens:
            fitted[index] -= 1
    if fitted and sum(fitted) < bounds.min_tokens:
        fitted[fitted.index(longest)] += bounds.min_tokens - sum(fitted)
    return fitted


def lengths_of_total(total: int, bounds: LengthBounds) -> list[int]:
    """`total` positions spread over a hole's stretches, within its bounds."""
    return fit_to_bounds(spread(total, bounds.hints), bounds)


def choose_totals(totals_of: Callable[[LengthBounds], Iterable[int]]) -> Search:
    """A search without forward passes: its i-th canvas gives each hole the i-th of its `totals_of` positions."""

    async def search(
        bounds_of_holes: list[LengthBounds], scores: LengthScores | None, measure: Measure
    ) -> list[Lengths]:
        lengths_of_holes = [
            [lengths_of_total(total, bounds) for total in totals_of(bounds)] for bounds in bounds_of_holes
        ]
        return list_canvases(lengths_of_holes)

    return search


def list_canvases(lengths_of_holes: list[list[list[int]]]) -> list[Lengths]:
    """Turns lengths by [hole][candidate][stretch] into canvases: the i-th one has the i-th candidate of every hole. All
    holes must have the same number of candidates. Equal canvases are returned once.
    """
    canvases: list[Lengths] = []
    for candidates in zip(*lengths_of_holes, strict=True):
        canvas = list(candidates)
        if canvas not in canvases:
            canvases.append(canvas)
    return canvases
