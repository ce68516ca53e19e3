"""Tells where an answer may be cut while an engine writes it, because nothing of the hole can follow."""

from typing import Final, Literal

from midfill_engine.loops import find_loop, is_endless
from midfill_infill.answers.wrapping import find_start, has_end

Extent = Literal["rest", "statement", "block"]
"""How much a hole takes: a part of a line, a statement on a line of its own, lines of a block."""

# So many lines may leave the hole before an answer is cut: they may be a string's, or it may begin at column 0.
_LINES_BEHIND: Final = 12
_LINES_REPEATED: Final = 3
_CONTINUING: Final = ("else", "elif", "except", "finally", "catch", "{", "}", ")", "]", "while", "case", "default")


def find_end(text: str, extent: Extent, indent: str, behind: str, *, is_continuation: bool) -> int | None:
    """The position where an answer may be cut, because what follows cannot belong to the hole; None while it can.
    `indent` is that of a block's lines, or of a statement's own line; `behind` is the text behind the hole.
    `is_continuation`: the model sees only the text before the hole and does not end by itself.
    """
    if has_end(text):
        return len(text)
    start = find_start(text)
    if start is None:
        return None
    only_continues = is_continuation and not text[:start].strip()  # a model that wraps its code does more
    lines = [(start + offset, line) for offset, line in _list_whole_lines(text[start:]) if line.strip()]
    if not lines:
        return None
    if extent == "rest":
        offset, line = lines[0]
        return offset + len(line)
    if extent == "statement":
        others = _find_others(lines, indent)
        if only_continues:
            return others[0] if others else None
        others_from_margin = _find_others(lines, "")  # if the answer is written from column 0
        is_over = len(others_from_margin) > _LINES_REPEATED or len(others) > _LINES_BEHIND
    else:
        written = [line for _, line in lines]
        max_outside = _LINES_REPEATED if only_continues else _LINES_BEHIND
        is_over = _leaves(written, indent, max_outside) or _repeats(written, behind)
    return len(text) if is_over else None


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
    return len(line) - len(line.lstrip())
