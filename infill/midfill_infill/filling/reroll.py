"""Computes what a reroll keeps of the last fill: text that the user typed, and its most certain tokens or lines."""

import math
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from itertools import accumulate
from statistics import fmean
from typing import Final

from midfill_infill.text.document import Document
from midfill_infill.text.spans import Anchor, Hole

KEEP_SHARE: Final = 0.5
SMALLEST: Final = 1e-9  # confidence
_BREAKS: Final = re.compile(r"[ \t]*\n\s*")

Range = tuple[int, int]


def keep_ranges(
    filled: str,
    tokens: Sequence[Range],
    confidence: Sequence[float],
    current: str,
    share: float = KEEP_SHARE,
    fixed: Sequence[Range] = (),
    *,
    by_lines: bool = False,
) -> list[Range]:
    r"""Ranges of `current` in code points, ascending and disjoint, that survive as anchors.

    `filled` is the original fill with its `tokens` and their `confidence`; `current` is the same text after the user's
    edits, possibly with `\r\n` line ends. Kept are all typed text, the `share` of tokens with the highest confidence,
    where unchanged, and the ranges `fixed` of `current`. `by_lines` keeps a share of lines instead, ranked by the mean
    ln confidence of their tokens: a causal model can fill around these.
    """
    if "\r\n" in current:
        chars = re.findall("\r\n|.", current, re.DOTALL)
        places = [0, *accumulate(map(len, chars))]
        placed = [(bisect_left(places, start), bisect_left(places, end)) for start, end in fixed]
        text = current.replace("\r\n", "\n")
        kept_chars = keep_ranges(filled, tokens, confidence, text, share, placed, by_lines=by_lines)
        return [(places[start], places[end]) for start, end in kept_chars]
    kept = [False] * len(current)
    matcher = SequenceMatcher(None, filled, current, autojunk=False)
    moved: dict[int, int] = {}
    for tag, start, end, begin, stop in matcher.get_opcodes():
        if tag == "equal":
            moved |= zip(range(start, end), range(begin, stop), strict=True)
        else:
            kept[begin:stop] = [True] * (stop - begin)
    rated = _rate_lines(filled, tokens, confidence) if by_lines else list(zip(confidence, tokens, strict=True))
    ranked = sorted(rated, key=lambda pair: -pair[0])
    for _, span in ranked[: round(len(rated) * share)]:
        for char in range(*span):
            if char in moved:
                kept[moved[char]] = True
    for start, end in fixed:
        kept[start:end] = [True] * (end - start)
    return _join(kept, current)


def _rate_lines(filled: str, tokens: Sequence[Range], confidence: Sequence[float]) -> list[tuple[float, Range]]:
    """Each line that has tokens, with its line end, and the mean ln confidence of the tokens that begin in it."""
    ends = list(accumulate(map(len, filled.splitlines(keepends=True))))
    logs: dict[int, list[float]] = {}
    for (start, _), value in zip(tokens, confidence, strict=True):
        logs.setdefault(bisect_right(ends, start), []).append(math.log(max(value, SMALLEST)))
    return [(fmean(values), (ends[line - 1] if line else 0, ends[line])) for line, values in logs.items()]


def _join(kept: list[bool], text: str) -> list[Range]:
    """The kept ranges with the line breaks beside them, joined where only white space is between two of them."""
    for start, end in (match.span() for match in _BREAKS.finditer(text)):
        if any(kept[max(0, start - 1) : start]) or any(kept[end : end + 1]):
            kept[start:end] = [True] * (end - start)
    ranges: list[Range] = []
    for start, end in (match.span() for match in re.finditer(b"\1+", bytes(kept))):
        if ranges and not text[ranges[-1][1] : start].strip():
            ranges[-1] = ranges[-1][0], end
        else:
            ranges.append((start, end))
    return [(start, end) for start, end in ranges if text[start:end].strip()]


def put_drafts(
    document: Document, holes: Sequence[Hole], drafts: Sequence[tuple[str | None, Sequence[Range]]]
) -> tuple[Document, tuple[Hole, ...]]:
    r"""Puts `drafts` into the holes. Returns the new document and its holes, with anchors for text to keep.

    `drafts[i]` is a text with `\n` line ends (None: the hole's current text) and the ranges of it to keep, in code
    points. `holes` are in document order; the new holes correspond to them.
    """
    parts: list[bytes] = []
    placed: list[Hole] = []
    position = length = 0
    for hole, (text, keep) in zip(holes, drafts, strict=True):
        own = document.decode(hole.start_byte, hole.end_byte) if text is None else text.replace("\n", document.newline)
        before = document.data[position : hole.start_byte]
        start = length + len(before)
        content = own.encode("utf-8", "surrogatepass")
        anchors = tuple(
            Anchor(start + _byte(document, text, own, a), start + _byte(document, text, own, b))
            for a, b in _disjoint(keep)
        )
        placed.append(replace(hole, start_byte=start, end_byte=start + len(content), anchors=anchors))
        parts += [before, content]
        position, length = hole.end_byte, start + len(content)
    data = b"".join([*parts, document.data[position:]])
    return replace(document, data=data), tuple(placed)


def _disjoint(spans: Iterable[Range]) -> Iterator[Range]:
    """The spans in order without overlaps and without empty ones. Spans that touch stay apart."""
    position = 0
    for start, end in sorted(spans):
        if (start := max(start, position)) < end:
            yield start, end
            position = end


def _byte(document: Document, text: str | None, own: str, char: int) -> int:
    r"""Returns the byte where code point `char` of a draft starts; text of the document may contain `\r\n`."""
    before = own[:char] if text is None else text[:char].replace("\n", document.newline)
    return len(before.encode("utf-8", "surrogatepass"))
