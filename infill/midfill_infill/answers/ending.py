"""Tells where an answer may be cut while an engine writes it, because nothing of the hole can follow.

After many lines or repeated lines a hole is likely over, because models that were not tuned to end their answers write
on. Right answers have such lines too. So these go on for a while, and stay whole if they end by themselves.
"""

import re
from typing import Final, Literal

from midfill_engine.loops import find_loop, is_endless
from midfill_infill.answers.openness import (
    begins_block,
    closes_more,
    find_closing,
    find_text_end,
    indent_width,
    leaves_open,
)
from midfill_infill.answers.overlaps import is_long_enough
from midfill_infill.answers.wrapping import closes_fence, find_start, has_marker

Extent = Literal["line", "rest", "statement", "block"]
"""How much a hole takes: a part of a line without or with line breaks, a statement on a line of its own, lines of a
block.
"""

# So many lines may leave the hole before an answer is cut: they may be a string's, or it may begin at column 0.
_LINES_BEHIND: Final = 12
_LINES_REPEATED: Final = 3
# With so many lines an answer does not end any more: hardly a gap has as many. They are less than half of the tokens
# that an answer may take.
_MAX_LINES_BEYOND: Final = 40
# A loop is beyond doubt with so many repeated characters, some 400 tokens. Lines that count may be a table, which is
# longer.
_LOOP_CHARS: Final = 1200
_COUNTING_CHARS: Final = 2400
# What opens and closes texts of several lines, in which lines may stand at any column.
_QUOTES: Final = ('"""', "'''", "`")
_COMMENTS: Final = ("#", "//", "/*", "*")
_OUTSIDE: Final = re.compile(r"[\w@}]")
_LABEL: Final = re.compile(r"\s*\w+:\s*")
_FINISHED: Final = re.compile(r"[\w;)\]}\"']\s*$")
_CONTINUING: Final = ("else", "elif", "except", "finally", "catch", "{", "}", ")", "]", "while", "case", "default")


class EndFinder:
    """Finds where one answer ends, while it is written. `indent` is that of a block's lines, or of a statement's own
    line; `before` and `behind` are the texts around the hole. `knows_end`: the model was tuned to end its answers, so
    no number of lines ends them. `is_prose`: nor does it in a file that people read as text, and no fence, which
    belongs to the text.
    """

    def __init__(
        self, extent: Extent, indent: str, before: str, behind: str, *, knows_end: bool, is_prose: bool = False
    ) -> None:
        self._extent: Extent = extent
        self._indent = indent
        self._before = before
        self._behind = behind
        self._knows_end = knows_end or is_prose
        self._is_prose = is_prose
        self._stays_in_block = extent == "statement" or _is_whole_block(indent, before, behind)
        _, *below = behind.split("\n", 4 * _LINES_REPEATED)
        self._following = [line.rstrip() for line in below if line.strip()][:_LINES_REPEATED]
        self._lines: list[tuple[int, str]] = []  # of code that are whole and not blank, each with its offset
        self._num_whole = 0  # characters of whole lines
        self.likely_end: int | None = None
        """Where to cut an answer that does not end by itself; None if nothing speaks for an end."""

    def find(self, text: str, *, is_continuation: bool) -> int | None:
        """The position where an answer of which `text` is there is cut now; None while it may go on. `is_continuation`:
        the model sees only the text before the hole and does not end by itself.
        """
        is_part = self._extent in ("line", "rest")
        is_prose = self._is_prose and not is_part
        start = 0 if is_prose else find_start(text)
        num_whole = text.rfind("\n") + 1
        has_new_line = num_whole > self._num_whole
        if start is not None:
            if has_marker(text, start) or (has_new_line and not is_prose and closes_fence(text, start)):
                return len(text)
            self._lines += _list_code_lines(text, max(start, self._num_whole))
        self._num_whole = num_whole
        if not has_new_line:
            return None if is_part else self._find_end_of_loop(text)
        lines = self._lines
        if is_part:
            return self._find_end_of_part(text, lines)
        outside: list[int] = []
        others_from_margin: list[int] = []
        if self._extent == "statement" and not is_prose:
            outside = _list_others(lines, self._indent)
            others_from_margin = _list_others(lines, "")  # if it is written from column 0
        elif not is_prose:
            outside = _list_outside(lines, self._indent)
        if is_continuation and not text[:start].strip():  # a model that wraps its code does more than to continue
            if self._extent == "statement" and outside:
                return outside[0]
            if len(outside) > _LINES_REPEATED:
                return _end_of_lines(lines)
        if self._repeats_below(lines):
            return _end_of_lines(lines)
        if self._stays_in_block and not self._knows_end and _has_left(text, lines, self._indent):
            return self.likely_end or num_whole
        if self.likely_end is None and (len(outside) > _LINES_BEHIND or len(others_from_margin) > _LINES_REPEATED):
            self.likely_end = _end_of_lines(lines)
        end_of_loop = self._find_end_of_loop(text[:num_whole])
        is_far_beyond = not self._knows_end and len(outside) > _MAX_LINES_BEYOND
        return self.likely_end if is_far_beyond else end_of_loop

    def _find_end_of_loop(self, text: str) -> int | None:
        """The end of an answer that repeats itself for so long that this is no right answer; None for others."""
        loop_end = find_loop_end(text)
        if loop_end is None:
            return None
        if self.likely_end is None:
            self.likely_end = loop_end
        return self.likely_end if _is_long_loop(text, loop_end) else None

    def _find_end_of_part(self, text: str, lines: list[tuple[int, str]]) -> int | None:
        """The end of an answer for a part of a line: that of its first line, unless its text must or may have more."""
        if not lines:
            return None
        ends = [offset + len(line) for offset, line in lines]
        self.likely_end = ends[0]
        _, first = lines[0]
        if self._repeats_above(first):
            if len(lines) == 1:
                return None
            lines, ends = lines[1:], ends[1:]
            self.likely_end = ends[0]
        if self._extent == "line":
            return ends[0]
        start, _ = lines[0]
        if begins_block(text, self._before, self._behind):
            self.likely_end = None
            return next((end for end in ends if closes_more(text[start:end])), None)
        closing = find_closing(self._before, self._behind)
        if closing:
            return find_text_end(text, start, closing)
        return next((end for end in ends if not leaves_open(text[start:end], self._before, self._behind)), None)

    def _repeats_above(self, line: str) -> bool:
        """True if the hole begins its line, and a line of its answer is the one above."""
        *above, own = self._before.rsplit("\n", 1)
        if own.strip() or not above:
            return False
        last_line = above[0].rstrip().rpartition("\n")[2]
        return line.strip() == last_line.strip() and is_long_enough(line)

    def _repeats_below(self, lines: list[tuple[int, str]]) -> bool:
        """True if the last lines of an answer are the next lines of the document; two lines suffice if it has no more
        and they are hardly repeated by chance.
        """
        num_below = len(self._following)
        is_telling = num_below == _LINES_REPEATED or (num_below == 2 and is_long_enough("".join(self._following)))
        return is_telling and [line.rstrip() for _, line in lines[1:][-num_below:]] == self._following


def _is_whole_block(indent: str, before: str, behind: str) -> bool:
    """True if a hole that begins at `indent` is all of a block, but for its docstring and comments above the hole."""
    above = [line for line in before.split("\n")[:-1] if line.strip() and not line.lstrip().startswith(_COMMENTS)]
    below = [line for line in behind.split("\n")[1:] if line.strip()]
    begins = bool(indent and above) and (
        indent_width(above[-1]) < len(indent) or above[-1].rstrip().endswith(_QUOTES[:2])
    )
    return begins and not (below and indent_width(below[0]) >= len(indent))


def _has_left(text: str, lines: list[tuple[int, str]], indent: str) -> bool:
    """True if an answer has gone on for a while behind a line that is left of `indent`, in no string, and either closes
    a brace which the answer has not opened, or follows lines that are indented as the hole. No right answer has such a
    line if none of its hole's lines is left of the first one. `lines` are those of its code.
    """
    if len(lines) <= _LINES_BEHIND:
        return False
    start, first = lines[0]
    indent = indent or first[: indent_width(first)]  # that of a blank line without any
    is_indented = _is_indented(first, lines[1][1], indent)
    for offset, line in lines[1:-_LINES_BEHIND]:
        opening = line.lstrip()
        if indent_width(line) >= len(indent) or not _OUTSIDE.match(opening) or _LABEL.fullmatch(line):
            continue
        is_unmatched = opening.startswith("}") and text.count("{", start, offset) <= text.count("}", start, offset)
        is_in_string = any(text.count(quote, start, offset) % 2 for quote in (*_QUOTES, '"'))
        if (is_indented or is_unmatched) and not is_in_string:
            return True
    return False


def _is_indented(first: str, second: str, indent: str) -> bool:
    """True if the first lines of an answer tell that it is written neither from column 0 nor in another unit."""
    if indent_width(first) >= len(indent) > 0:
        return True
    is_deeper = len(second) > len(indent) and second[len(indent)].isspace()
    return second.startswith(indent) and (is_deeper or _FINISHED.search(first) is not None)


def find_loop_end(text: str) -> int | None:
    """The end of the first round of an answer that repeats its lines, or the end of an answer whose last line repeats
    itself; None if nothing is repeated.
    """
    if is_endless(text.rpartition("\n")[2]):
        return len(text)
    if not text.endswith("\n"):
        return None
    lines = _list_whole_lines(text)
    num_kept = find_loop([line for _, line in lines])
    if num_kept is None:
        return None
    offset, _ = lines[num_kept]
    return offset


def _is_long_loop(text: str, start: int) -> bool:
    """True if an answer repeats itself from `start` on for so long that this is no right answer."""
    if start == len(text):  # its last line repeats itself
        return len(text.rpartition("\n")[2]) >= _LOOP_CHARS
    repeated = [line for line in text[start:].splitlines() if line.strip()]
    sizes = range(1, len(repeated) // 2 + 1)
    is_verbatim = any(repeated[-size:] == repeated[-2 * size : -size] for size in sizes)
    return len(text) - start >= (_LOOP_CHARS if is_verbatim else _COUNTING_CHARS)


def _list_code_lines(text: str, start: int) -> list[tuple[int, str]]:
    """The whole lines of code from `start` on that are not blank, each with its offset."""
    return [(start + offset, line) for offset, line in _list_whole_lines(text[start:]) if line.strip()]


def _end_of_lines(lines: list[tuple[int, str]]) -> int:
    """The position behind the last of the whole lines: of what follows, such as a marker, a part may be there."""
    offset, line = lines[-1]
    return offset + len(line) + 1


def _list_whole_lines(text: str) -> list[tuple[int, str]]:
    """The lines whose line break is there, each with its offset."""
    lines: list[tuple[int, str]] = []
    start = 0
    while (end := text.find("\n", start)) >= 0:
        lines.append((start, text[start:end]))
        start = end + 1
    return lines


def _list_others(lines: list[tuple[int, str]], indent: str) -> list[int]:
    """The offsets of lines that begin other statements than the first line, which `indent` stands before."""
    widths = [indent_width(line) for _, line in lines]
    offsets: list[int] = []
    for (offset, line), width in zip(lines[1:], widths[1:], strict=True):
        if width <= len(indent) + widths[0] and not line.strip().startswith(_CONTINUING):
            offsets.append(offset)
    return offsets


def _list_outside(lines: list[tuple[int, str]], indent: str) -> list[int]:
    """The offsets of the lines behind a block's last line, which begins with `indent`; none without such a line."""
    inside = [number for number, (_, line) in enumerate(lines) if number > 0 and line.startswith(indent)]
    if not indent or not inside:
        return []
    return [offset for offset, _ in lines[inside[-1] + 1 :]]
