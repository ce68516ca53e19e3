"""Tells where an answer may be cut while it is written, because nothing of the hole can follow."""

from typing import Final, Literal

from midfill_engine.loops import find_loop, is_endless
from midfill_infill.answers.wrapping import find_start, has_end

Extent = Literal["rest", "statement", "block"]
"""How much a hole takes: a part of a line, a statement on a line of its own, lines of a block."""

# An answer may go on behind its hole for so many lines: they may be a string's, or the answer may begin at column 0.
_LINES_BEHIND: Final = 12
_REPEATED: Final = 3
_CONTINUING: Final = ("else", "elif", "except", "finally", "catch", "{", "}", ")", "]", "while", "case", "default")


def find_end(text: str, extent: Extent, indent: str, behind: str, *, goes_on: bool) -> int | None:
    """Where an answer may be cut because what follows cannot belong to the hole, as far as lines tell; None while it
    may go on. `indent` is that of a block's lines, or of a statement's own line. `goes_on`: the model sees only the
    text before the hole and does not end by itself.
    """
    if has_end(text):
        return len(text)
    start = find_start(text)
    if start is None:
        return None
    goes_on = goes_on and not text[:start].strip()  # what wraps its code does not only go on
    lines = [(start + offset, line) for offset, line in _lines(text[start:]) if line.strip()]
    if not lines:
        return None
    if extent == "rest":
        offset, line = lines[0]
        return offset + len(line)
    if extent == "statement":
        far = _find_others(lines, indent)
        if goes_on:
            return far[0] if far else None
        near = _find_others(lines, "")  # as if written from column 0
        is_over = len(near) > _REPEATED or len(far) > _LINES_BEHIND
    else:
        written = [line for _, line in lines]
        most = _REPEATED if goes_on else _LINES_BEHIND
        is_over = _leaves(written, indent, most) or _repeats(written, behind)
    return len(text) if is_over else None


def find_loop_end(text: str) -> int | None:
    """The end of an answer's first round if it repeats itself since, or all of it if its last line does; None if it
    does not.
    """
    if is_endless(text.rpartition("\n")[2]):
        return len(text)
    if not text.endswith("\n"):
        return None
    lines = _lines(text)
    num_kept = find_loop([line for _, line in lines])
    if num_kept is None:
        return None
    offset, _ = lines[num_kept]
    return offset


def _lines(text: str) -> list[tuple[int, str]]:
    """The whole lines and their offsets."""
    lines: list[tuple[int, str]] = []
    start = 0
    while (end := text.find("\n", start)) >= 0:
        lines.append((start, text[start:end]))
        start = end + 1
    return lines


def _find_others(lines: list[tuple[int, str]], indent: str) -> list[int]:
    """Where lines behind the first one begin other statements, if it stands behind `indent`."""
    _, first = lines[0]
    column = len(indent) + _column(first)
    later = lines[1:]
    offsets = [at for at, line in later if _column(line) <= column and not line.strip().startswith(_CONTINUING)]
    return offsets


def _leaves(lines: list[str], indent: str, most: int) -> bool:
    """True if more than so many lines follow the last one of the block."""
    inside = [number for number, line in enumerate(lines) if number and line.startswith(indent)]
    if not indent or not inside:
        return False
    num_outside = len(lines) - 1 - inside[-1]
    return num_outside > most


def _repeats(lines: list[str], behind: str) -> bool:
    """True if the last lines are the next ones of the document."""
    _, *below = behind.split("\n", 4 * _REPEATED)
    following = [line.rstrip() for line in below if line.strip()][:_REPEATED]
    if len(following) < _REPEATED:
        return False
    last = [line.rstrip() for line in lines[1:]][-_REPEATED:]
    return last == following


def _column(line: str) -> int:
    """How deep a line is indented, in characters."""
    return len(line) - len(line.lstrip())
