"""Computes what a reroll keeps of the last fill: text that the user typed, and the most certain tokens or lines."""

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

KEEP_SHARE: Final = 0.5  # of the tokens or lines
SMALLEST: Final = 1e-9  # confidence whose logarithm is taken
_BREAKS: Final = re.compile(r"[ \t]*\n\s*")
_WORD: Final = re.compile(r"\w+")

Range = tuple[int, int]  # start and end in code points


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
    r"""The ranges of `current` that survive a reroll as anchors, ascending and disjoint.

    `filled` is the last fill with its `tokens` and their `confidence`; `current` is the same text after the user's
    edits, possibly with `\r\n` line ends. Three kinds of text are kept: what the user typed, the ranges `fixed` of
    `current`, and the `share` of tokens with the highest confidence, as far as they are unchanged. `by_lines` keeps
    this share of lines instead, ranked by the mean ln confidence of their tokens, because a causal model fills around
    whole lines.
    """
    if "\r\n" in current:
        chars = re.findall("\r\n|.", current, re.DOTALL)
        offsets = [0, *accumulate(map(len, chars))]  # of each character of `text` in `current`
        fixed_in_text = [(bisect_left(offsets, start), bisect_left(offsets, end)) for start, end in fixed]
        text = current.replace("\r\n", "\n")
        kept_in_text = keep_ranges(filled, tokens, confidence, text, share, fixed_in_text, by_lines=by_lines)
        return [(offsets[start], offsets[end]) for start, end in kept_in_text]
    is_kept = [False] * len(current)  # for each character
    position_of: dict[int, int] = {}  # in `current`, for each unchanged character of `filled`
    matcher = SequenceMatcher(None, filled, current, autojunk=False)
    for tag, start, end, current_start, current_end in matcher.get_opcodes():
        if tag == "equal":
            position_of |= zip(range(start, end), range(current_start, current_end), strict=True)
        else:
            is_kept[current_start:current_end] = [True] * (current_end - current_start)
    typed = bytes(is_kept)
    for word in _WORD.finditer(current):  # letters that a typed word shares with what it replaces were typed, too
        first, last = typed.find(1, *word.span()), typed.rfind(1, *word.span())
        if first >= 0:
            is_kept[first : last + 1] = [True] * (last + 1 - first)
    rated = _rate_lines(filled, tokens, confidence) if by_lines else list(zip(confidence, tokens, strict=True))
    rated.sort(key=lambda pair: -pair[0])
    for _, (start, end) in rated[: round(len(rated) * share)]:
        for char in range(start, end):
            if char in position_of:
                is_kept[position_of[char]] = True
    for start, end in fixed:
        is_kept[start:end] = [True] * (end - start)
    return _find_kept(is_kept, current)


def _rate_lines(filled: str, tokens: Sequence[Range], confidence: Sequence[float]) -> list[tuple[float, Range]]:
    """For each line that has tokens the mean ln confidence of those that begin in it, and its range with line end."""
    edges = [0, *accumulate(map(len, filled.splitlines(keepends=True)))]
    logs: dict[int, list[float]] = {}
    for (start, _), value in zip(tokens, confidence, strict=True):
        line = bisect_right(edges, start) - 1
        logs.setdefault(line, []).append(math.log(max(value, SMALLEST)))
    return [(fmean(values), (edges[line], edges[line + 1])) for line, values in logs.items()]


def _find_kept(kept_chars: Sequence[bool], text: str) -> list[Range]:
    """The ranges of kept characters with the line breaks beside them, joined if only white space is between two."""
    kept = list(kept_chars)
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

    `drafts[i]` is a text with `\n` line ends, or None for the present text of the hole, and the ranges of this text to
    keep. `holes` are in document order; the new holes correspond to them.
    """
    parts: list[bytes] = []
    new_holes: list[Hole] = []
    old_end = new_end = 0  # of the last hole, in the old and in the new document
    for hole, (draft, keep) in zip(holes, drafts, strict=True):
        before = document.data[old_end : hole.start_byte]
        start = new_end + len(before)
        if draft is None:
            text = document.decode(hole.start_byte, hole.end_byte)
            newline = "\n"  # the text has the document's line ends
        else:
            text = draft
            newline = document.newline
        content = _encode(text, newline)
        anchors: list[Anchor] = []
        for keep_start, keep_end in _make_disjoint(keep):
            start_byte = start + len(_encode(text[:keep_start], newline))
            end_byte = start + len(_encode(text[:keep_end], newline))
            anchors.append(Anchor(start_byte, end_byte))
        old_end, new_end = hole.end_byte, start + len(content)
        new_holes.append(replace(hole, start_byte=start, end_byte=new_end, anchors=tuple(anchors)))
        parts += [before, content]
    data = b"".join([*parts, document.data[old_end:]])
    return replace(document, data=data), tuple(new_holes)


def _make_disjoint(ranges: Iterable[Range]) -> Iterator[Range]:
    """Yields the ranges in order without overlaps and without empty ones. Ranges that touch stay separate."""
    position = 0
    for first, end in sorted(ranges):
        start = max(first, position)
        if start < end:
            yield start, end
            position = end


def _encode(text: str, newline: str) -> bytes:
    r"""The bytes of a text with `newline` in place of `\n`."""
    return text.replace("\n", newline).encode("utf-8", "surrogatepass")
