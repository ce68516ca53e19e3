"""Chooses excerpts of far lines and related files that share rare words with the text at holes. Knows no language."""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from sys import intern
from typing import Final

from midfill_engine.wire import MAX_EXCERPTS
from midfill_infill.text.encoding import is_decoded

MAX_CHARACTERS: Final = 2000  # of all excerpts, of which a request holds at most MAX_EXCERPTS
LINES: Final = 16  # lines of a chunk that are compared
STEP: Final = 8
MORE_LINES: Final = 6  # lines shown after those: the counterpart of a hole is in the middle of similar lines
LINES_BEFORE: Final = 16  # lines before a hole that are compared
LINES_BEHIND: Final = 6
NEAR: Final = 1280  # characters on either side of a hole that every model reads
MAX_SEARCHED: Final = 2**18  # characters of the document on either side
USUAL_WORDS: Final = 5
MAX_TRIED: Final = 125  # chunks
STAYS: Final = 0.9  # of the best excerpts' score: from it on those of the last request stay
_WORD: Final = re.compile(r"[^\W\d]\w{2,}")


@dataclass(frozen=True)
class Excerpt:
    """Lines of the related file `source`; of the document itself if there are not so many."""

    source: int
    text: str


@dataclass
class ShownExcerpts:
    """The excerpts of a document's last request, for its next one."""

    texts: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Chunk:
    """Some lines of a source, by the first one, and their words."""

    source: int
    start: int
    words: frozenset[str]

    def overlaps(self, other: "_Chunk") -> bool:
        """True if two chunks share lines."""
        return self.source == other.source and abs(self.start - other.start) < LINES


@dataclass(frozen=True)
class _Rating:
    """Rates texts by the `rarity` of the words that they share with the lines around holes."""

    rarity: Mapping[str, float]

    def rate(self, words: frozenset[str]) -> float:
        shared = sum(self.rarity[word] for word in sorted(words & self.rarity.keys()))
        return shared / math.sqrt(USUAL_WORDS + len(words))

    def rate_text(self, text: str) -> float:
        """The rating of an excerpt by the lines of it that are compared."""
        lines = text.split("\n")[:LINES]
        return self.rate(frozenset(_WORD.findall("\n".join(lines))))


def find_excerpts(
    shown: Sequence[str],
    references: Sequence[str],
    most: int = MAX_CHARACTERS,
    near: int = NEAR,
    last: Sequence[str] = (),
) -> list[Excerpt]:
    """At most 16 excerpts with at most `most` characters of whole lines, in the order of `references`, then of the
    texts `shown` between holes, farther than `near` characters from them. Lines with undecodable bytes are left out.

    A chunk of lines scores the sum of the inverse document frequencies of the words that it shares with the lines
    around the holes, over the square root of its number of words. The excerpts of the `last` request stay if they are
    still there and score nearly as much: engines keep what they have read of a prompt up to its first change.
    """
    wanted: set[str] = set()
    for number in range(len(shown) - 1):
        wanted.update(_find_words(shown, number))
    *far, end = _find_far(shown, near)
    sources = [*map(_read_kept, references), *map(_read, far), _read(end, is_end=True)]
    chunks: list[_Chunk] = []
    frequency: Counter[str] = Counter()
    for source, (_, words_at) in enumerate(sources):
        for start, words in words_at.items():
            if not words.isdisjoint(wanted):
                chunks.append(_Chunk(source, start, words))
                frequency.update(words & wanted)
    rating = _Rating({word: math.log1p(len(chunks) / (1 + count)) for word, count in frequency.items()})

    def rate(chunk: _Chunk) -> float:
        return rating.rate(chunk.words)

    left = most
    taken: dict[_Chunk, str] = {}
    for chunk in sorted(chunks, key=rate, reverse=True)[:MAX_TRIED]:
        if any(chunk.overlaps(other) for other in taken) or len(taken) >= MAX_EXCERPTS:
            continue
        lines, _ = sources[chunk.source]
        text = _show(lines, chunk)
        if len(text) <= left:
            left -= len(text)
            taken[chunk] = text
    least = STAYS * sum(map(rate, taken))
    if last and taken and sum(map(len, last)) <= most and sum(map(rating.rate_text, last)) >= least:
        kept = _find_again(last, [*references, *far, end])
        if kept is not None:
            return kept
    ordered = sorted(taken, key=lambda chunk: (chunk.source, chunk.start))
    return [Excerpt(chunk.source, taken[chunk]) for chunk in ordered]


def _find_again(texts: Sequence[str], sources: Sequence[str]) -> list[Excerpt] | None:
    """The `texts` as excerpts of the first source that has them; None if one is nowhere."""
    found: list[Excerpt] = []
    for text in texts:
        source = next((number for number, whole in enumerate(sources) if text in whole), None)
        if source is None:
            return None
        found.append(Excerpt(source, text))
    return found


def _find_words(shown: Sequence[str], number: int) -> list[str]:
    """Words of the lines around a hole, without the hole's own line, which changes while the user types."""
    *before, _ = shown[number].split("\n")
    _, *behind = shown[number + 1].split("\n")
    lines = [*before[-LINES_BEFORE:], *behind[:LINES_BEHIND]]
    return _WORD.findall("\n".join(lines))


def _find_far(shown: Sequence[str], near: int) -> list[str]:
    """The part of each text between holes that is far from all holes, in whole lines."""
    far: list[str] = []
    for number, text in enumerate(shown):
        start = near if number else max(0, len(text) - MAX_SEARCHED)
        end = start + MAX_SEARCHED
        if number < len(shown) - 1:
            end = len(text) - near
        if start >= end:
            far.append("")
            continue
        lines = text[start:end].splitlines(keepends=True)
        if end != len(text):
            del lines[-1:]
        if start > 0:
            del lines[:1]
        far.append("".join(lines))
    return far


def _read(text: str, *, is_end: bool = False) -> tuple[list[str], dict[int, frozenset[str]]]:
    """The lines, and the words of each chunk by the number of its first line. A chunk starts every STEP lines, counted
    from the end with `is_end`, so that chunks stay the same as the hole moves down.
    """
    lines = text.split("\n")
    words = [frozenset(map(intern, _WORD.findall(line))) for line in lines]
    first = 0
    if is_end and len(lines) > LINES:
        first = len(lines) % STEP
    words_at: dict[int, frozenset[str]] = {}
    for start in range(first, max(1, len(lines) - STEP), STEP):
        words_at[start] = frozenset().union(*words[start : start + LINES])
    return lines, words_at


# Related files stay the same from fill to fill.
_read_kept = lru_cache(maxsize=32)(_read)


def _show(lines: Sequence[str], chunk: _Chunk) -> str:
    """The lines of a chunk and some more, without undecodable ones."""
    shown = lines[chunk.start : chunk.start + LINES + MORE_LINES]
    return "\n".join(filter(is_decoded, shown)).strip("\n")
