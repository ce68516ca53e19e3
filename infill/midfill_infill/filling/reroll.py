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
        offsets = [0, *accumulate(map(len, chars))]
        placed = [(bisect_left(offsets, start), bisect_left(offsets, end)) for start, end in fixed]
        text = current.replace("\r\n", "\n")
        kept_chars = keep_ranges(filled, tokens, confidence, text, share, placed, by_lines=by_lines)
        return [(offsets[start], offsets[end]) for start, end in kept_chars]
    kept = [False] * len(current)
    moved: dict[int, int] = {}
    matcher = SequenceMatcher(None, filled, current, autojunk=False)
    for tag, start, end, begin, stop in matcher.get_opcodes():
        if tag == "equal":
            moved |= zip(range(start, end), range(begin, stop), strict=True)
        else:
            kept[begin:stop] = [True] * (stop - begin)
    rated = list(zip(confidence, tokens, strict=True))
    if by_lines:
        rated = _rate_lines(filled, tokens, confidence)
    rated.sort(key=lambda pair: -pair[0])
    for _, (start, end) in rated[: round(len(rated) * share)]:
        for char in range(start, end):
            if char in moved:
                kept[moved[char]] = True
    for start, end in fixed:
        kept[start:end] = [True] * (end - start)
    return _join(kept, current)


def _rate_lines(filled: str, tokens: Sequence[Range], confidence: Sequence[float]) -> list[tuple[float, Range]]:
    """Each line that has tokens, with its line end, and the mean ln confidence of the tokens that begin in it."""
    edges = [0, *accumulate(map(len, filled.splitlines(keepends=True)))]
    logs: dict[int, list[float]] = {}
    for (start, _), value in zip(tokens, confidence, strict=True):
        line = bisect_right(edges, start) - 1
        logs.setdefault(line, []).append(math.log(max(value, SMALLEST)))
    return [(fmean(values), (edges[line], edges[line + 1])) for line, values in logs.items()]


def _join(kept: list[bool], text: str) -> list[Range]:
    """The kept ranges with the line breaks beside them, joined where only white space is between two of them."""
    for match in _BREAKS.finditer(text):
        start, end = match.span()
        if any(kept[max(0, start - 1) : start]) or any(kept[end : end + 1]):
            kept[start:end] = [True] * (end - start)
    ranges: list[Range] = []
    for run in re.finditer(b"\1+", bytes(kept)):
        start, end = run.span()
        if ranges and not text[ranges[-1][1] : start].strip():
            start, _ = ranges.pop()
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
        before = document.data[position : hole.start_byte]
        start = length + len(before)
        newline = document.newline
        if text is None:
            text = document.decode(hole.start_byte, hole.end_byte)
            newline = "\n"
        content = _encode(text, newline)
        anchors: list[Anchor] = []
        for first, last in _disjoint(keep):
            first_byte = start + len(_encode(text[:first], newline))
            last_byte = start + len(_encode(text[:last], newline))
            anchors.append(Anchor(first_byte, last_byte))
        end = start + len(content)
        placed.append(replace(hole, start_byte=start, end_byte=end, anchors=tuple(anchors)))
        parts += [before, content]
        position, length = hole.end_byte, end
    data = b"".join([*parts, document.data[position:]])
    return replace(document, data=data), tuple(placed)


def _disjoint(spans: Iterable[Range]) -> Iterator[Range]:
    """The spans in order without overlaps and without empty ones. Spans that touch stay apart."""
    position = 0
    for span_start, end in sorted(spans):
        start = max(span_start, position)
        if start < end:
            yield start, end
            position = end


def _encode(text: str, newline: str) -> bytes:
    r"""The bytes of a text with another line end than `\n`."""
    return text.replace("\n", newline).encode("utf-8", "surrogatepass")
