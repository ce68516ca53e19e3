"""The interface of length policies: how many masked positions a hole gets. Knows numbers only, no tokens."""

from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

Lengths = list[list[int]]  # per hole: the number of positions of each masked stretch
Measure = Callable[[list[Lengths]], Awaitable[list[list[float]]]]  # each canvas's mean confidence per hole


@dataclass(frozen=True)
class HoleNeed:
    """The known facts about a hole's length. `hints`: one per masked stretch, None if unknown. `min_tokens` and
    `max_tokens` bound the masked positions together; `anchored_tokens` come on top.
    """

    hints: tuple[int | None, ...]
    anchored_tokens: int
    min_tokens: int
    max_tokens: int
    has_limit: bool


@dataclass(frozen=True)
class LengthScores:
    """The length head's `log_probs` [G, K]: the length of hole g is in bucket k, up to and with `buckets[k]`."""

    buckets: tuple[int, ...]
    log_probs: Tensor


Search = Callable[[list[HoleNeed], LengthScores | None, Measure], Coroutine[Any, Any, list[Lengths]]]


@dataclass(frozen=True)
class LengthPolicy:
    """`search` returns canvases with at least 1 position for every masked stretch of every hole.

    `may_delete`: deletions may shorten a canvas; `may_expand`: expansions may lengthen it. `chooses`: the canvas has
    the expected length, not the maximum. `removes`: deletions leave the canvas at once. `tries` are the lengths that a
    search compares, `fills` those filled in parallel (the most confident fill wins); both may be empty.
    """

    search: Search
    may_delete: bool = False
    may_expand: bool = False
    chooses: bool = True
    removes: bool = False
    tries: tuple[int, ...] = ()
    fills: tuple[int, ...] = ()


def spread(total: int, hints: tuple[int | None, ...]) -> list[int]:
    """Splits `total` over the stretches: hinted ones take their hint, the others share the rest evenly."""
    num_open = sum(hint is None for hint in hints)
    rest = max(num_open, total - sum(hint or 0 for hint in hints))
    lengths: list[int] = []
    num_shared = 0
    for hint in hints:
        if hint is None:
            hint = rest // num_open + (num_shared < rest % num_open)
            num_shared += 1
        lengths.append(hint)
    return lengths


def fit(wanted: list[int], need: HoleNeed) -> list[int]:
    """`wanted` within the hole's bounds; every stretch keeps at least one position."""
    lengths = [max(1, length) for length in wanted]
    while lengths and sum(lengths) > max(need.max_tokens, len(lengths)):
        lengths[lengths.index(max(lengths))] -= 1
    if lengths and sum(lengths) < need.min_tokens:
        lengths[lengths.index(max(lengths))] += need.min_tokens - sum(lengths)
    return lengths


def of_total(total: int, need: HoleNeed) -> list[int]:
    """`total` positions spread over a hole's stretches, within its bounds."""
    return fit(spread(total, need.hints), need)


def choose_totals(wanted: Callable[[HoleNeed], Iterable[int]]) -> Search:
    """A search without forward passes: canvases with the `wanted` numbers of positions for each hole."""

    async def search(needs: list[HoleNeed], scores: LengthScores | None, measure: Measure) -> list[Lengths]:
        lengths_of_holes = [[of_total(total, need) for total in wanted(need)] for need in needs]
        return distinct(lengths_of_holes)

    return search


def distinct(lengths_of_holes: list[list[list[int]]]) -> list[Lengths]:
    """Distinct canvases: the i-th one has the i-th lengths of every hole."""
    canvases: list[Lengths] = []
    for lengths in zip(*lengths_of_holes, strict=True):
        canvas = list(lengths)
        if canvas not in canvases:
            canvases.append(canvas)
    return canvases
