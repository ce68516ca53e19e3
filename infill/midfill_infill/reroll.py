"""Which part of an earlier fill a new one keeps: what the user typed into it, and its most confident tokens."""

from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Final

KEEP_SHARE: Final = 0.5

Range = tuple[int, int]


def keep_ranges(
    filled: str, tokens: Sequence[Range], confidence: Sequence[float], current: str, share: float = KEEP_SHARE
) -> list[Range]:
    """Ranges of `current` in code points, ascending and disjoint, that survive as anchors.

    `filled` is the fill as it came with its `tokens` and their `confidence`; `current` is what its user made of it.
    Everything typed is kept, and the `share` of tokens with the highest confidence that were left alone.
    """
    kept = [False] * len(current)
    matcher = SequenceMatcher(None, filled, current, autojunk=False)
    moved: dict[int, int] = {}
    for tag, start, end, begin, stop in matcher.get_opcodes():
        if tag == "equal":
            moved |= zip(range(start, end), range(begin, stop), strict=True)
        else:
            kept[begin:stop] = [True] * (stop - begin)
    ranked = sorted(range(len(tokens)), key=lambda index: -confidence[index])
    for index in ranked[: round(len(tokens) * share)]:
        for char in range(*tokens[index]):
            if char in moved:
                kept[moved[char]] = True
    return _join(kept, current)


def _join(kept: list[bool], text: str) -> list[Range]:
    """The ranges, with what is only white space between two of them: it would be masked to be found again."""
    ranges: list[Range] = []
    position = 0
    while position < len(kept):
        if not kept[position]:
            position += 1
            continue
        end = position
        while end < len(kept) and kept[end]:
            end += 1
        if ranges and not text[ranges[-1][1] : position].strip():
            ranges[-1] = ranges[-1][0], end
        else:
            ranges.append((position, end))
        position = end
    return [(start, end) for start, end in ranges if text[start:end].strip()]
