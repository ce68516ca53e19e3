"""Cuts off what an answer repeats of the text around its hole. Knows lines, no syntax."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from midfill_infill.answers.draft import DraftText, join, trim
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Hole

_MAX_BYTES: Final = 8192  # on either side of a hole that an answer is compared with
_MAX_LINES: Final = 40
_MAX_CHARS: Final = 8  # brackets and quotes behind a hole that are tried one by one
# A repeated text is telling, that is no coincidence, if it has so many characters of names.
_TELLING: Final = 4
_TELLING_IN_LINE: Final = 3
_NAME_CHAR: Final = re.compile(r"\w")


@dataclass(frozen=True)
class Before:
    """The text before a fill: the lines above, the nearest last, and the start of its first line."""

    lines: tuple[str, ...]
    start: str

    @classmethod
    def at(cls, document: Document, hole: Hole) -> "Before":
        """Reads as much of the text before a hole as an answer is compared with."""
        first = document.snap(max(0, hole.start_byte - _MAX_BYTES))
        *lines, start = (document.normalized_text(first, hole.start_byte) + hole.lead).split("\n")
        return cls(tuple(lines[-_MAX_LINES:]), start)


@dataclass(frozen=True)
class Behind:
    """The text behind a hole: the rest of its line, and the lines below."""

    rest: str
    lines: tuple[str, ...]

    @classmethod
    def at(cls, document: Document, hole: Hole) -> "Behind":
        """Reads as much of the text behind a hole as an answer is compared with."""
        end = document.snap(min(len(document.data), hole.end_byte + _MAX_BYTES))
        rest, *lines = (hole.tail + document.normalized_text(hole.end_byte, end)).split("\n")
        return cls(rest, tuple(lines[: 2 * _MAX_LINES]))


def cut_head(draft: DraftText, before: Before) -> tuple[DraftText, bool] | None:
    """The draft without the text that it repeats from before the hole, and True if this is no coincidence; None if it
    repeats nothing. The draft may repeat the start of its line unless this is blank, otherwise the last lines above.
    """
    if before.start.strip():
        return _cut_start(draft, before.start)
    lines = draft.lines()
    filled = [number for number, line in enumerate(lines) if line.text.strip()]
    written = [lines[number].text.strip() for number in filled]
    lines_above = [line.strip() for line in before.lines if line.strip()]
    for count in range(min(len(written) - 1, len(lines_above)), 0, -1):
        if written[:count] != lines_above[-count:]:
            continue
        is_telling = count > 1
        if count == 1:
            is_usual = (written[0], written[0]) in pairwise(lines_above)  # the document repeats it too
            is_telling = _count_name_chars(written[0]) >= _TELLING and not is_usual
        if _are_equal(written[: count + 1]):  # a repeat has no more of one line than stand above
            is_telling = False
        return join(lines[filled[count] :]), is_telling
    return None


def _are_equal(lines: Sequence[str]) -> bool:
    """True if all lines are the same."""
    return len(set(lines)) == 1


def _cut_start(draft: DraftText, start: str) -> tuple[DraftText, bool] | None:
    """The draft without the start of the hole's line, and True if this is no coincidence; None if the draft does not
    begin with it or has nothing else.
    """
    opening = start.strip()
    if not draft.text.lstrip().startswith(opening):
        return None
    rest = draft[draft.text.index(opening) + len(opening) :]
    if start.endswith((" ", "\t")):
        rest = trim(rest, " \t", "")
    if not rest.text.strip():
        return None
    is_telling = len(opening) > 1 and _count_name_chars(opening) > 0
    return rest, is_telling


def cut_both(draft: DraftText, start: str, rest: str) -> DraftText | None:
    """What a draft that repeats the hole's whole line has between its `start` and its `rest`; None for other drafts."""
    opening, closing = start.strip(), rest.rstrip()
    text = draft.text.strip()
    if not closing or _count_name_chars(opening) == 0 or len(text) < len(opening) + len(closing):
        return None
    if not text.startswith(opening) or not text.endswith(closing):
        return None
    begin = draft.text.index(opening) + len(opening)
    between = draft[begin : draft.text.rindex(closing)]
    if start.endswith((" ", "\t")):
        between = trim(between, " \t", "")
    return between


def _count_name_chars(text: str) -> int:
    """How many characters of names a text has."""
    return len(_NAME_CHAR.findall(text))


def cut_tail(draft: DraftText, behind: Behind) -> Iterator[tuple[DraftText, bool]]:
    """The draft without an end that repeats the text behind the hole, once for each such end, the longest first; with
    each True if this is no coincidence.
    """
    if behind.rest.strip():
        yield from _cut_rest(draft, behind)
    else:
        yield from _cut_below(draft, behind.lines)


def _cut_rest(draft: DraftText, behind: Behind) -> Iterator[tuple[DraftText, bool]]:
    """As `cut_tail`, for ends that repeat the rest of the hole's line and what follows, or begin that rest."""
    rest = behind.rest.rstrip()
    following = "\n".join((rest, *behind.lines))
    text = draft.text.rstrip()
    start = text.find(rest, 1)
    while start > 0 and not following.startswith(text[start:]):
        start = text.find(rest, start + 1)
    if start > 0:
        is_telling = _count_name_chars(rest) >= _TELLING_IN_LINE or rest.strip() in (";", ",")
        yield draft[:start], is_telling
    longest = min(len(text) - 1, len(rest) - 1, _MAX_CHARS)
    for size in range(longest, 0, -1):
        repeated = rest[:size]
        if repeated.strip() and text.endswith(repeated):
            end = len(text) - size
            yield draft[:end], False


def _cut_below(draft: DraftText, below: Sequence[str]) -> Iterator[tuple[DraftText, bool]]:
    """As `cut_tail`, for last lines that equal the next lines of the document, indentation included."""
    lines = draft.lines()
    filled = [number for number, line in enumerate(lines) if line.text.strip()]
    written = [lines[number].text.rstrip() for number in filled]
    lines_below = [line.rstrip() for line in below if line.strip()]
    for begin in range(1, len(written)):
        repeated = written[begin:]
        if not _begins_with(lines_below, repeated):
            continue
        is_telling = len(repeated) > 1 or repeated[0].lstrip().startswith("/*")
        if sum(map(_count_name_chars, repeated)) >= _TELLING:
            is_telling = True
        if _are_equal(written[begin - 1 :]):  # a repeat has no more of one line than stand below
            is_telling = False
        kept = join(lines[: filled[begin]])
        yield trim(kept, "", " \t\n"), is_telling


def _begins_with(lines: Sequence[str], beginning: Sequence[str]) -> bool:
    """True if `lines` begin with `beginning`. The last line of several may be cut off."""
    *whole, last = beginning
    if len(whole) >= len(lines) or whole != lines[: len(whole)]:
        return False
    counterpart = lines[len(whole)]
    if whole:
        return counterpart.startswith(last)
    return counterpart == last
