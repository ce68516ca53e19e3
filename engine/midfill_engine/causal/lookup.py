"""Guesses the next tokens of a text by what followed its last ones before (prompt lookup decoding, Saxena 2023).

Texts are strings with one letter for each token, because str.find is fast. Knows ids, no words.
"""

import sys
from collections.abc import Sequence
from typing import Final

BREAK: Final = chr(sys.maxunicode)  # separates texts, because no token has this letter
MAX_MATCHED: Final = 8  # tokens at the end of a text that are looked for
SURE_MATCHED: Final = 2
GUESSED: Final = 4
GUESSED_OF_SEVERAL: Final = 2  # where different tokens followed: 3 of 10 first ones are right there, otherwise 7


def spell(ids: Sequence[int]) -> str:
    return "".join(map(chr, ids))


def guess_next(text: str, sources: str, *, is_sure: bool = False) -> tuple[int, ...]:
    """Finds the longest end of `text`, of at most MAX_MATCHED tokens, behind which any token stands in `sources`.
    Returns the ids that follow it most often there. If they must be sure (`is_sure`), the end has at least two tokens,
    and nothing is guessed where different tokens follow.
    """
    min_matched = SURE_MATCHED if is_sure else 1
    for size in range(min(len(text), MAX_MATCHED), min_matched - 1, -1):
        counts, last_starts = _count_next(text[-size:], sources)
        if not counts:
            continue
        num_guessed = GUESSED
        if len(counts) > 1:
            num_guessed = 0 if is_sure else GUESSED_OF_SEVERAL
        likeliest = max(counts, key=lambda letter: (counts[letter], last_starts[letter]))
        start = last_starts[likeliest]
        guessed, _, _ = sources[start : start + num_guessed].partition(BREAK)
        return tuple(map(ord, guessed))
    return ()


def _count_next(end: str, sources: str) -> tuple[dict[str, int], dict[str, int]]:
    """Returns how often each letter follows `end` in `sources`, and its last position there."""
    counts: dict[str, int] = {}
    last_starts: dict[str, int] = {}
    start = sources.find(end)
    while start >= 0:
        next_start = start + len(end)
        letter = sources[next_start : next_start + 1]
        if letter not in ("", BREAK):
            counts[letter] = counts.get(letter, 0) + 1
            last_starts[letter] = next_start
        start = sources.find(end, start + 1)
    return counts, last_starts
