"""Chooses excerpts of far lines and related files that share rare words with the text at holes. Knows no language."""

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from sys import intern
from typing import Final

from midfill_engine.wire import MAX_EXCERPTS
from midfill_infill.text.encoding import is_decoded

MAX_CHARACTERS: Final = 2000  # of all excerpts together
LINES: Final = 16  # lines of a chunk that are compared with the lines around holes
STEP: Final = 8  # lines from the start of a chunk to the start of the next one
MORE_LINES: Final = 6  # lines shown behind a chunk: the counterpart of a hole is in the middle of similar lines
LINES_BEFORE: Final = 16  # lines before a hole with which chunks are compared
LINES_BEHIND: Final = 6  # lines behind a hole with which chunks are compared
NEAR: Final = 1280  # characters on either side of a hole that every model reads
MAX_SEARCHED: Final = 2**18  # characters before the first hole, and behind the last one, that are searched
USUAL_WORDS: Final = 5  # added to the number of a chunk's words, so that a short chunk does not score too high
MAX_TRIED: Final = 125  # chunks that may become excerpts: those with the best scores
STAYS: Final = 0.9  # the last request's excerpts stay if they have at least this share of the best ones' score
_WORD: Final = re.compile(r"[^\W\d]\w{2,}")


@dataclass(frozen=True)
class Excerpt:
    """Lines of a related file: `source` is its index among the references. Other indices mean the document itself."""

    source: int
    text: str


@dataclass
class ShownExcerpts:
    """Remembers the excerpts of a document's last request for its next one."""

    texts: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Chunk:
    """LINES lines of a source: the index of the source, that of the first line, and the words of all lines."""

    source: int
    start: int
    words: frozenset[str]


def find_excerpts(
    around: Sequence[str],
    references: Sequence[str],
    max_chars: int = MAX_CHARACTERS,
    near: int = NEAR,
    last: Sequence[str] = (),
) -> list[Excerpt]:
    """Up to 16 excerpts with at most `max_chars` characters of whole lines, from `references` and from the document.
    They are in the order of `references`, then of the document; those that stay are in their old order.

    `around` are the document's texts before, between and behind its holes; what is within `near` characters of a hole
    is never an excerpt. Lines with undecodable bytes are left out. A chunk of lines scores the sum of the inverse
    document frequencies of the words that it shares with the lines around the holes, over the square root of its number
    of words. The texts of the `last` request's excerpts stay if they are still in these sources and score nearly as
    much as the best ones, because engines keep what they have read of a prompt up to its first change.
    """
    hole_words: set[str] = set()
    for index in range(len(around) - 1):
        hole_words.update(_find_words(around, index))
    *far, far_behind = _find_far(around, near)
    sources = [*map(_read_kept, references), *map(_read, far), _read(far_behind, from_end=True)]
    chunks: list[_Chunk] = []
    frequency: Counter[str] = Counter()
    for source, (_, words_at) in enumerate(sources):
        for start, words in words_at.items():
            if not words.isdisjoint(hole_words):
                chunks.append(_Chunk(source, start, words))
                frequency.update(words & hole_words)
    rarity = {word: math.log1p(len(chunks) / (1 + count)) for word, count in frequency.items()}

    def rate(words: frozenset[str]) -> float:
        shared = sum(rarity[word] for word in sorted(words & rarity.keys()))
        return shared / math.sqrt(USUAL_WORDS + len(words))

    room = max_chars
    chosen: dict[_Chunk, str] = {}
    for chunk in sorted(chunks, key=lambda chunk: rate(chunk.words), reverse=True)[:MAX_TRIED]:
        beside = (other for other in chosen if other.source == chunk.source)
        if any(abs(chunk.start - other.start) < LINES for other in beside) or len(chosen) >= MAX_EXCERPTS:
            continue
        lines, _ = sources[chunk.source]
        text = _read_excerpt(lines, chunk)
        if len(text) <= room:
            room -= len(text)
            chosen[chunk] = text
    min_score = STAYS * sum(rate(chunk.words) for chunk in chosen)
    # Only so many lines of a chunk are compared.
    last_words = (frozenset(_WORD.findall("\n".join(text.split("\n")[:LINES]))) for text in last)
    if last and chosen and sum(map(len, last)) <= max_chars and sum(map(rate, last_words)) >= min_score:
        found_again = _find_again(last, [*references, *far, far_behind])
        if found_again is not None:
            return found_again
    ordered = sorted(chosen, key=lambda chunk: (chunk.source, chunk.start))
    return [Excerpt(chunk.source, chosen[chunk]) for chunk in ordered]


def _find_again(texts: Sequence[str], sources: Sequence[str]) -> list[Excerpt] | None:
    """Each of the texts as an excerpt of the first source that contains it; None if no source contains one of them."""
    excerpts: list[Excerpt] = []
    for text in texts:
        source = next((index for index, whole in enumerate(sources) if text in whole), None)
        if source is None:
            return None
        excerpts.append(Excerpt(source, text))
    return excerpts


def _find_words(around: Sequence[str], index: int) -> list[str]:
    """Words of the lines around the hole `index`, without its own line, which changes while the user types."""
    *before, _ = around[index].split("\n")
    _, *behind = around[index + 1].split("\n")
    lines = [*before[-LINES_BEFORE:], *behind[:LINES_BEHIND]]
    return _WORD.findall("\n".join(lines))


def _find_far(around: Sequence[str], near: int) -> list[str]:
    """The part of each text around holes that is farther than `near` characters from all of them, in whole lines."""
    far: list[str] = []
    for index, text in enumerate(around):
        start = near if index else max(0, len(text) - MAX_SEARCHED)
        end = max(0, len(text) - near) if index < len(around) - 1 else min(len(text), start + MAX_SEARCHED)
        if start > 0:
            start = text.find("\n", start - 1, end) + 1 or end
        if end < len(text):
            end = text.rfind("\n", start, end) + 1
        far.append(text[start:end] if start < end else "")
    return far


def _read(text: str, *, from_end: bool = False) -> tuple[list[str], dict[int, frozenset[str]]]:
    """The lines of a text, and the words of each chunk by the index of its first line. A chunk starts every STEP lines.

    `from_end` counts these steps from the end, for the text behind the last hole: so its chunks stay the same while the
    hole moves down. Then up to STEP - 1 lines at the start are in no chunk. A line that is not shown has no words.
    """
    lines = text.split("\n")
    words = [frozenset(map(intern, _WORD.findall(line))) if is_decoded(line) else frozenset() for line in lines]
    first = 0
    if from_end and len(lines) > LINES:
        first = len(lines) % STEP
    words_at: dict[int, frozenset[str]] = {}
    for start in range(first, max(1, len(lines) - STEP), STEP):
        words_at[start] = frozenset().union(*words[start : start + LINES])
    return lines, words_at


# As `_read`, for related files, which stay the same from fill to fill.
_read_kept = lru_cache(maxsize=32)(_read)


def _read_excerpt(lines: Sequence[str], chunk: _Chunk) -> str:
    """The text of an excerpt: the lines of a chunk and MORE_LINES behind it, without undecodable ones."""
    shown = lines[chunk.start : chunk.start + LINES + MORE_LINES]
    return "\n".join(filter(is_decoded, shown)).strip("\n")
