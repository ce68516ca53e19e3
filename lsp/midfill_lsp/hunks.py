"""Line hunks between two texts, each of which can be reverted alone. Knows texts, no fill."""

import re
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import accumulate

from midfill_lsp.text import Span

_PIECE = re.compile(r"([^\r\n]*)(\r\n|\n|\r|$)")


@dataclass(frozen=True)
class Hunk:
    """`new` of the new text replaced `old` of the old one; either may be empty, not both."""

    old: Span
    new: Span


def find_hunks(old: str, new: str) -> list[Hunk]:
    """In order. Reverting every hunk gives the old text."""
    before, after = _TextLines(old), _TextLines(new)
    matcher = SequenceMatcher(lambda line: not line.strip(), before.texts, after.texts, autojunk=False)
    return [
        Hunk(*_spans(before, after, (start, stop), (begin, end)))
        for tag, start, stop, begin, end in matcher.get_opcodes()
        if tag != "equal"
    ]


class _TextLines:
    """The lines of a text and their offsets; the last one has no line ending."""

    def __init__(self, text: str) -> None:
        pieces = list(_PIECE.findall(text))
        if len(pieces) > 1 and not pieces[-2][1]:  # the empty match after a non-empty last line
            pieces.pop()
        self.texts = [piece for piece, _ in pieces]
        self.starts = [0, *accumulate(len(piece) + len(end) for piece, end in pieces)]

    def span(self, first: int, last: int) -> Span:
        """Lines without the last one's ending."""
        return self.starts[first], self.starts[last - 1] + len(self.texts[last - 1])

    def end(self, line: int) -> int:
        return self.starts[line] + len(self.texts[line])


def _spans(before: _TextLines, after: _TextLines, old: Span, new: Span) -> tuple[Span, Span]:
    """Added or removed lines include a line ending: the one after them, or before them at the end of the text."""
    if old[0] < old[1] and new[0] < new[1]:
        return before.span(*old), after.span(*new)
    if old[1] < len(before.texts) and new[1] < len(after.texts):
        pairs = ((lines.starts[first], lines.starts[last]) for lines, (first, last) in ((before, old), (after, new)))
    else:
        pairs = ((lines.end(first - 1), lines.end(last - 1)) for lines, (first, last) in ((before, old), (after, new)))
    return next(pairs), next(pairs)
