"""Guesses the next tokens of a text: those behind its last tokens in known text (prompt lookup decoding, Saxena 2023).

Texts are strings of one letter per token, because str.find is fast. Known texts are separated by BREAK.
"""

import sys
from collections.abc import Sequence
from typing import Final

BREAK: Final = chr(sys.maxunicode)  # no token
MAX_MATCHED: Final = 8  # tokens
SURE_MATCHED: Final = 2
GUESSED: Final = 4
GUESSED_OF_SEVERAL: Final = 2  # where different tokens followed: 3 of 10 first ones are right there, otherwise 7


def spell(ids: Sequence[int]) -> str:
    return "".join(map(chr, ids))


def guess_next(text: str, known: str, *, is_sure: bool = False) -> tuple[int, ...]:
    """The ids that most often followed the end of `text` in `known`: the longest end of at most MAX_MATCHED tokens that
    any token followed there. If it `is_sure`, only what alone followed at least two tokens.
    """
    shortest = SURE_MATCHED if is_sure else 1
    for size in range(min(len(text), MAX_MATCHED), shortest - 1, -1):
        counts, last = _count_next(text[-size:], known)
        if not counts:
            continue
        num_guessed = GUESSED
        if len(counts) > 1:
            num_guessed = 0 if is_sure else GUESSED_OF_SEVERAL
        likeliest = max(counts, key=lambda letter: (counts[letter], last[letter]))
        start = last[likeliest]
        guessed, _, _ = known[start : start + num_guessed].partition(BREAK)
        return tuple(map(ord, guessed))
    return ()


def _count_next(end: str, known: str) -> tuple[dict[str, int], dict[str, int]]:
    """How often each letter follows `end` in `known`, and where it does last."""
    counts: dict[str, int] = {}
    last: dict[str, int] = {}
    start = known.find(end)
    while start >= 0:
        next_start = start + len(end)
        letter = known[next_start : next_start + 1]
        if letter not in ("", BREAK):
            counts[letter] = counts.get(letter, 0) + 1
            last[letter] = next_start
        start = known.find(end, start + 1)
    return counts, last
