"""Tells where an answer may be cut while an engine writes it, because nothing of the hole can follow.

After many lines or repeated lines a hole is likely over, because models that were not tuned to end their answers write
on. Right answers have such lines too. So these go on for a while, and stay whole if they end by themselves.
"""

import re
from typing import Final, Literal

from midfill_engine.loops import find_loop, is_endless
from midfill_infill.answers.openness import find_closing, find_text_end, leaves_open
from midfill_infill.answers.overlaps import is_long_enough
from midfill_infill.answers.wrapping import find_start, has_end, has_marker

Extent = Literal["rest", "statement", "block"]
"""How much a hole takes: a part of a line, a statement on a line of its own, lines of a block."""

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
    """Finds where one answer ends, while it is written. `extent`, `indent` and `behind` are those of `find_end`, and
    `before` is the text before the hole; `knows_end`: the model was tuned to end its answers, so no number of lines
    ends them. `is_prose`: nor does it in a file that people read as text, and no fence, which belongs to the text.
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
        self._num_read = 0  # characters that were judged
        self.likely_end: int | None = None
        """Where to cut an answer that does not end by itself; None if nothing speaks for an end."""

    def find(self, text: str, *, is_continuation: bool) -> int | None:
        """The position where an answer of which `text` is there is cut now; None while it may go on."""
        if self._is_prose and self._extent != "rest":
            sure_end = _find_end_of_prose(text, self._behind)
        else:
            sure_end = find_sure_end(text, self._extent, self._indent, self._behind, is_continuation=is_continuation)
        if self._extent == "rest":
            return self._find_end_of_part(text, sure_end)
        if sure_end is not None:
            return sure_end
        has_new_line = "\n" in text[self._num_read :]
        self._num_read = len(text)
        judged = text[: text.rfind("\n") + 1] if has_new_line else text
        if has_new_line and self._stays_in_block and not self._knows_end and _has_left(text, self._indent):
            return self.likely_end or len(judged)
        if self.likely_end is None and not self._is_prose:
            self.likely_end = _find_end_by_lines(text, self._extent, self._indent)
        if self.likely_end is None:
            self.likely_end = find_loop_end(judged)
        if self.likely_end is None:
            return None
        is_over = _is_long_loop(judged)
        if not self._knows_end and has_new_line:
            is_over = is_over or _is_far_beyond(text, self._extent, self._indent)
        return self.likely_end if is_over else None

    def _find_end_of_part(self, text: str, line_end: int | None) -> int | None:
        """The end of an answer for a part of a line: `line_end`, unless its text must or may have more lines."""
        start = find_start(text)
        if start is None or line_end is None or has_end(text):
            return line_end
        self.likely_end = line_end
        if self._repeats_above(text[start:line_end]):
            start = line_end
            line_end = find_sure_end(text[start:], "rest", "", "", is_continuation=False)
            if line_end is None:
                return None
            line_end += start
            self.likely_end = line_end
        closing = find_closing(self._before, self._behind)
        if closing:
            return find_text_end(text, start, closing)
        if not leaves_open(text[start:line_end], self._before, self._behind):
            return line_end
        for offset, line in _list_code_lines(text, start):
            end = offset + len(line)
            if end > line_end and not leaves_open(text[start:end], self._before, self._behind):
                return end
        return None

    def _repeats_above(self, line: str) -> bool:
        """True if the hole begins its line, and a line of its answer is the one above."""
        *above, own = self._before.rsplit("\n", 1)
        if own.strip() or not above:
            return False
        last_line = above[0].rstrip().rpartition("\n")[2]
        return line.strip() == last_line.strip() and is_long_enough(line)


def find_end(text: str, extent: Extent, indent: str, behind: str, *, is_continuation: bool) -> int | None:
    """The position where an answer is likely over, because what follows hardly belongs to the hole; None if it is not.
    `indent` is that of a block's lines, or of a statement's own line; `behind` is the text behind the hole.
    `is_continuation`: the model sees only the text before the hole and does not end by itself.
    """
    sure_end = find_sure_end(text, extent, indent, behind, is_continuation=is_continuation)
    return _find_end_by_lines(text, extent, indent) if sure_end is None else sure_end


def find_sure_end(text: str, extent: Extent, indent: str, behind: str, *, is_continuation: bool) -> int | None:
    """As `find_end`, for an end that no right answer goes on behind."""
    if has_end(text):
        return len(text)
    start = find_start(text)
    if start is None:
        return None
    lines = _list_code_lines(text, start)
    if not lines:
        return None
    if extent == "rest":
        offset, line = lines[0]
        return offset + len(line)
    written = [line for _, line in lines]
    if is_continuation and not text[:start].strip():  # a model that wraps its code does more than to continue
        if extent == "block" and _leaves(written, indent, _LINES_REPEATED):
            return _end_of_lines(lines)
        if extent == "statement":
            return next(iter(_find_others(lines, indent)), None)
    return _end_of_lines(lines) if _repeats(written, behind) else None


def _find_end_of_prose(text: str, behind: str) -> int | None:
    """As `find_sure_end`, in a file that people read as text."""
    if has_marker(text):
        return len(text)
    lines = _list_code_lines(text, 0)
    return _end_of_lines(lines) if lines and _repeats([line for _, line in lines], behind) else None


def _find_end_by_lines(text: str, extent: Extent, indent: str) -> int | None:
    """The end of an answer with more lines than most holes have; None if it has no more."""
    start = find_start(text)
    lines = _list_code_lines(text, start) if start is not None else []
    if not lines or extent == "rest":
        return None
    if extent == "statement":
        others_from_margin = _find_others(lines, "")  # if the answer is written from column 0
        is_over = len(others_from_margin) > _LINES_REPEATED or len(_find_others(lines, indent)) > _LINES_BEHIND
    else:
        is_over = _leaves([line for _, line in lines], indent, _LINES_BEHIND)
    return _end_of_lines(lines) if is_over else None


def _is_far_beyond(text: str, extent: Extent, indent: str) -> bool:
    """True if an answer has more lines than any hole has, so that its model does not end it."""
    start = find_start(text)
    lines = _list_code_lines(text, start) if start is not None else []
    if not lines:
        return False
    if extent == "statement":
        return len(_find_others(lines, indent)) > _MAX_LINES_BEYOND
    return _leaves([line for _, line in lines], indent, _MAX_LINES_BEYOND)


def _is_whole_block(indent: str, before: str, behind: str) -> bool:
    """True if a hole that begins at `indent` is all of a block, but for its docstring and comments above the hole."""
    above = [line for line in before.split("\n")[:-1] if line.strip() and not line.lstrip().startswith(_COMMENTS)]
    below = [line for line in behind.split("\n")[1:] if line.strip()]
    begins = bool(indent and above) and (
        _indent_width(above[-1]) < len(indent) or above[-1].rstrip().endswith(_QUOTES[:2])
    )
    return begins and not (below and _indent_width(below[0]) >= len(indent))


def _has_left(text: str, indent: str) -> bool:
    """True if an answer has gone on for a while behind a line that is left of `indent`, in no string, and either closes
    a brace which the answer has not opened, or follows lines that are indented as the hole. No right answer has such a
    line if none of its hole's lines is left of the first one.
    """
    start = find_start(text)
    lines = _list_code_lines(text, start) if start is not None else []
    if len(lines) <= _LINES_BEHIND:
        return False
    indent = indent or _leading(lines[0][1])  # that of a blank line without any
    is_indented = _is_indented(lines[0][1], lines[1][1], indent)
    for offset, line in lines[1:-_LINES_BEHIND]:
        opening = line.lstrip()
        if _indent_width(line) >= len(indent) or not _OUTSIDE.match(opening) or _LABEL.fullmatch(line):
            continue
        is_unmatched = opening.startswith("}") and text.count("{", start, offset) <= text.count("}", start, offset)
        is_in_string = any(text.count(quote, start, offset) % 2 for quote in (*_QUOTES, '"'))
        if (is_indented or is_unmatched) and not is_in_string:
            return True
    return False


def _is_indented(first: str, second: str, indent: str) -> bool:
    """True if the first lines of an answer tell that it is written neither from column 0 nor in another unit."""
    if _indent_width(first) >= len(indent) > 0:
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


def _is_long_loop(text: str) -> bool:
    """True if an answer repeats itself for so long that this is no right answer."""
    start = find_loop_end(text)
    if start is None:
        return False
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


def _find_others(lines: list[tuple[int, str]], indent: str) -> list[int]:
    """The offsets of lines that begin other statements than the first line, which `indent` stands before."""
    _, first = lines[0]
    width = len(indent) + _indent_width(first)
    offsets: list[int] = []
    for offset, line in lines[1:]:
        if _indent_width(line) <= width and not line.strip().startswith(_CONTINUING):
            offsets.append(offset)
    return offsets


def _leaves(lines: list[str], indent: str, max_outside: int) -> bool:
    """True if more than `max_outside` lines follow the block's last line, which begins with `indent`."""
    inside = [number for number, line in enumerate(lines) if number > 0 and line.startswith(indent)]
    if not indent or not inside:
        return False
    num_outside = len(lines) - 1 - inside[-1]
    return num_outside > max_outside


def _repeats(lines: list[str], behind: str) -> bool:
    """True if the last lines of an answer are the next lines of the document."""
    _, *below = behind.split("\n", 4 * _LINES_REPEATED)
    following = [line.rstrip() for line in below if line.strip()][:_LINES_REPEATED]
    if len(following) < _LINES_REPEATED:
        return False
    last = [line.rstrip() for line in lines[1:]][-_LINES_REPEATED:]
    return last == following


def _indent_width(line: str) -> int:
    """The number of white characters that a line begins with."""
    return len(_leading(line))


def _leading(line: str) -> str:
    """The white characters that a line begins with."""
    return line[: len(line) - len(line.lstrip())]
