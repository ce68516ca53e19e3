"""Cuts off what an answer repeats, in other marks or in none, of the prose at its hole. Knows lines, no syntax."""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Final

from midfill_infill.answers.draft import DraftText, join

_QUOTES: Final = re.compile(r"[rRuU]?(?:\"\"\"|''')")
_COMMENT_MARKS: Final = {"#": re.compile(r"#+"), "//": re.compile(r"//+[/!]?|/\*+|\*+/|\*(?!\w)")}
_MARK_BEHIND: Final = re.compile(r"(?:\*+/|\"\"\"|''')$")
_LETTER: Final = re.compile(r"[^\W_]")
# A comment with fewer letters may say the same as a docstring on purpose.
_TELLING: Final = 12


@dataclass(frozen=True)
class Prose:
    """The words of the lines of the docstring and of the comment directly above a hole, and of comments in it, which a
    fill replaces. `mark` matches the start of a comment.
    """

    mark: re.Pattern[str]
    docstring: tuple[str, ...]
    comment: tuple[str, ...]
    replaced: tuple[str, ...]

    @classmethod
    def of(cls, comment: str, above: Sequence[str], replaced: str) -> "Prose":
        """Reads the lines `above` a hole, nearest last, and the text in it. `comment` begins a line comment."""
        mark = _COMMENT_MARKS[comment]
        lines = [line.strip() for line in above if line.strip()]
        num_comments = sum(1 for _ in takewhile(mark.match, reversed(lines)))
        end = len(lines) - num_comments
        parts = (
            _find_docstring(lines[:end]),
            lines[end:],
            [line for line in map(str.strip, replaced.splitlines()) if mark.match(line)],
        )
        return cls(mark, *(tuple(filter(None, (_read_words(line, mark) for line in part))) for part in parts))

    def cut_echo(self, draft: DraftText) -> tuple[DraftText, bool] | None:
        """The draft without the lines at its start that say what the prose says, and True if this is certain; None if
        it has no such lines, or nothing else.
        """
        lines = draft.lines()
        filled = [number for number, line in enumerate(lines) if line.text.strip()]
        written = [lines[number].text.strip() for number in filled]
        count, is_certain = self._count_echoes(written)
        if not 0 < count < len(written):
            return None
        return join(lines[filled[count] :]), is_certain

    def _count_echoes(self, written: Sequence[str]) -> tuple[int, bool]:
        """How many of the first lines are echoes, and True if they are no code and would say it a second time."""
        words = [_read_words(line, self.mark) for line in written]
        if written and self.mark.match(written[0]):
            end = sum(1 for _ in takewhile(self.mark.match, written))
            count = _count_known(words[:end], (*self.docstring, *self.comment))
            ends = {*self.docstring[:1], *self.docstring[-1:], *self.comment[:1], *self.comment[-1:]}
            is_certain = count == end and words[0] in ends and len(_LETTER.findall(words[0])) >= _TELLING
            return count if is_certain else 0, True
        if written and _QUOTES.match(written[0]):
            end = next((number for number, line in enumerate(written, 1) if _closes_string(line, number)), 0)
            is_certain = any(words[:end]) and _count_known(words[:end], self.docstring) == end
            return end if is_certain else 0, True
        return _count_known(words, (*self.docstring, *self.comment, *self.replaced)), False


def _read_words(line: str, mark: re.Pattern[str]) -> str:
    """The words of a line of prose, without marks around them, in small letters and without a period."""
    opening = mark.match(line) or _QUOTES.match(line)
    text = line[opening.end() :] if opening else line
    return _MARK_BEHIND.sub("", text).strip().rstrip(".:").casefold()


def _count_known(words: Sequence[str], known: Collection[str]) -> int:
    """How many of the first lines are blank or known, with at least one that is known; else 0."""
    first = list(takewhile(lambda line: not line or line in known, words))
    return len(first) if any(first) else 0


def _closes_string(line: str, number: int) -> bool:
    """True if line `number` of a string, from 1, closes it."""
    is_opening = number == 1 and _QUOTES.fullmatch(line) is not None
    return line.endswith(('"""', "'''")) and not is_opening


def _find_docstring(lines: Sequence[str]) -> Sequence[str]:
    """The lines of the string that ends with the last of the `lines`, if it is one of three quotes; else none."""
    if not lines or not lines[-1].endswith(('"""', "'''")):
        return []
    quotes = lines[-1][-3:]
    for size in range(1, len(lines) + 1):
        candidate = lines[-size:]
        if _QUOTES.match(candidate[0]) and candidate[0].count(quotes) + (size > 1) >= 2:
            return candidate
    return []
