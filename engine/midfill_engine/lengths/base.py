"""The interface of length policies: how many masked positions a hole's canvas gets. Knows numbers only, no tokens."""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

Lengths = list[list[int]]  # for every hole the number of positions of each masked stretch
# Asks how confident the model is over several canvases; gets for each the mean confidence of every hole.
LengthSearch = Generator[list[Lengths], list[list[float]], list[Lengths]]


@dataclass(frozen=True)
class HoleNeed:
    """What is known of a hole before its length is. `hints`: one a masked stretch, None where nothing is known.

    `min_tokens` and `max_tokens` bound the masked positions together; `anchored_tokens` come on top.
    """

    hints: tuple[int | None, ...]
    anchored_tokens: int
    min_tokens: int
    max_tokens: int
    has_limit: bool


@dataclass(frozen=True)
class LengthScores:
    """A model's opinion: `log_probs` [G, K] for each of G holes that its true length lies in bucket k.

    `buckets` are K ascending upper bounds, in tokens.
    """

    buckets: tuple[int, ...]
    log_probs: Tensor


class LengthPolicy(Protocol):
    """`may_delete`: a canvas may end shorter than it began, by settling deletions; `may_expand`: or longer.

    `chooses`: a canvas is as long as the text is thought to be, not as long as it may be.
    With `removes` deletions leave the canvas at once. A policy that returns several canvases has all of them filled,
    and the surest fill wins. `tries` are the lengths that stand side by side in a search, `fills` those that are
    filled so; both are empty where there is one. With a `beam` the model drafts so many fills from
    the left, whose END says how long a hole is.
    """

    may_delete: bool = False
    may_expand: bool = False
    chooses: bool = True
    removes: bool = False
    tries: tuple[int, ...] = ()
    fills: tuple[int, ...] = ()
    beam: int = 0

    def search(self, needs: list[HoleNeed], scores: LengthScores | None) -> LengthSearch:
        """Returns canvases with at least 1 position for every masked stretch of every hole."""
        ...


def spread(total: int, hints: tuple[int | None, ...]) -> list[int]:
    """`total` over the stretches: hinted ones take their hint, the others share the rest evenly."""
    num_open = sum(hint is None for hint in hints)
    rest = max(num_open, total - sum(hint or 0 for hint in hints))
    shares = iter([rest // num_open + (index < rest % num_open) for index in range(num_open)] if num_open else [])
    return [next(shares) if hint is None else hint for hint in hints]


def fit(wanted: list[int], need: HoleNeed) -> list[int]:
    """`wanted` cut or stretched into the hole's bounds, where every stretch keeps at least one position."""
    lengths = [max(1, length) for length in wanted]
    while lengths and sum(lengths) > max(need.max_tokens, len(lengths)):
        lengths[lengths.index(max(lengths))] -= 1
    if lengths and sum(lengths) < need.min_tokens:
        lengths[lengths.index(max(lengths))] += need.min_tokens - sum(lengths)
    return lengths


def of_total(total: int, need: HoleNeed) -> list[int]:
    """`total` positions over a hole's stretches, within its bounds."""
    return fit(spread(total, need.hints), need)
