"""Cuts off what an answer repeats of the text around its hole. Knows lines, no syntax."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from midfill_infill.answers.draft import DraftText, join, trim
from midfill_infill.text.document import Document
from midfill_infill.text.lines import count_columns
from midfill_infill.text.spans import Hole

_MAX_BYTES: Final = 8192  # on either side of a hole that an answer is compared with
_MAX_LINES: Final = 40
_MAX_CHARS: Final = 8  # brackets and quotes behind a hole that are tried one by one
# A repeated text is telling, that is no coincidence, if it has so many characters of names.
_TELLING: Final = 4
_TELLING_IN_LINE: Final = 3
_TELLING_IN_FRAME: Final = 2
_RULE: Final = re.compile(r"[/*#=~_-]{8,}")  # a line in a comment
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
            is_telling = is_long_enough(written[0]) and not is_usual
        if len(set(written[: count + 1])) == 1:  # a repeat has no more of one line than stand above
            is_telling = False
        return join(lines[filled[count] :]), is_telling
    return None


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
    if not opening or not closing or len(text) < len(opening) + len(closing):
        return None
    if not text.startswith(opening) or not text.endswith(closing):
        return None
    if _count_name_chars(opening) == 0 and _count_name_chars(closing) < _TELLING_IN_FRAME:
        return None
    begin = draft.text.index(opening) + len(opening)
    between = draft[begin : draft.text.rindex(closing)]
    if start.endswith((" ", "\t")):
        between = trim(between, " \t", "")
    return between


def cut_frame(draft: DraftText, above: Sequence[str], below: Sequence[str], columns: int) -> DraftText | None:
    """What a draft that repeats the last lines of `above` has before lines that repeat the first of `below`, indented
    as in the file or from another column or in another unit; None for other drafts. A draft whose last lines begin at
    the `columns` of the hole may be a block in a block of the same kind, and so may a tag.
    """
    lines = draft.lines()
    filled = [number for number, line in enumerate(lines) if line.text.strip()]
    written = [lines[number].text for number in filled]
    lines_above = [line for line in above if line.strip()][-_MAX_LINES:]
    lines_below = [line for line in below if line.strip()]
    sizes = range(min(len(written) - 2, len(lines_above)), 0, -1)
    num_above = next((size for size in sizes if _are_same(written[:size], lines_above[-size:])), 0)
    head = "".join(written[:num_above]).lstrip()
    if head.startswith("<") or _count_name_chars(head) < _TELLING_IN_FRAME:
        return None
    outer = _columns(written[0]), _columns(lines_above[-num_above])
    for begin in range(num_above + 1, len(written)):
        repeated, following = written[begin:], lines_below[: len(written) - begin]
        if not _are_same(repeated, following) or _columns(repeated[0]) == columns > 0:
            continue
        places = list(zip(map(_columns, repeated), map(_columns, following), strict=True))
        steps = [(column - outer[0], other - outer[1]) for column, other in places]
        if all(column == other for column, other in places) or _are_in_proportion(steps):
            return join(lines[filled[num_above] : filled[begin]])
    return None


def _are_in_proportion(steps: Sequence[tuple[int, int]]) -> bool:
    """True if each second number is the first one multiplied by the same positive number, whatever that is."""
    first, second = next((step for step in steps if step != (0, 0)), (1, 1))
    return first * second > 0 and all(one * second == other * first for one, other in steps)


def _are_same(lines: Sequence[str], others: Sequence[str]) -> bool:
    """True if the texts of lines are the same, however far they are indented."""
    return len(lines) == len(others) and all(
        line.strip() == other.strip() for line, other in zip(lines, others, strict=True)
    )


def _columns(line: str) -> int:
    """The columns that a line is indented by."""
    return count_columns(line[: len(line) - len(line.lstrip(" \t"))].encode("ascii"))


def is_long_enough(text: str) -> bool:
    """True if a text has so many characters of names that it is hardly repeated by chance."""
    return _count_name_chars(text) >= _TELLING


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
    elif text.endswith(f"{rest};") and len(text) > len(rest) + 1:  # the line leaves out the end of its statement
        yield draft[: len(text) - len(rest) - 1], False
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
        if is_long_enough("".join(repeated)) or _RULE.fullmatch(repeated[0].strip()):
            is_telling = True
        if len(set(written[begin - 1 :])) == 1:  # a repeat has no more of one line than stand below
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
