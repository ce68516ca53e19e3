"""Finds what an answer repeats of the text around its hole. Knows lines, no syntax."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from midfill_infill.answers.draft import DraftText, join, trim

_MAX_LINES: Final = 40
_MAX_CHARS: Final = 8  # brackets and quotes behind a hole that are tried one by one
# Characters of names in a repeated text that is no coincidence.
_TELLING: Final = 4
_TELLING_IN_LINE: Final = 3
_NAMES: Final = re.compile(r"\w")


@dataclass(frozen=True)
class Behind:
    """The text behind a hole: the rest of its line, and the lines below."""

    rest: str
    lines: tuple[str, ...]

    @classmethod
    def of(cls, text: str) -> "Behind":
        rest, _, below = text.partition("\n")
        return cls(rest, tuple(below.split("\n", 2 * _MAX_LINES)[: 2 * _MAX_LINES]))


def cut_head(draft: DraftText, above: Sequence[str], start: str) -> tuple[DraftText, bool] | None:
    """The draft without lines that it repeats from before the hole, or without the start of the hole's line, and
    whether this is no coincidence. `above` are the lines before that line. None if it repeats nothing.
    """
    opening = start.strip()
    if opening and draft.text.lstrip().startswith(opening):
        at = draft.text.index(opening) + len(opening)
        left = trim(draft[at:], " \t", "") if start.endswith((" ", "\t")) else draft[at:]
        is_telling = len(opening) > 1 and _NAMES.search(opening) is not None
        return (left, is_telling) if left.text.strip() else None
    if opening:
        return None
    lines = draft.lines()
    ours = [(number, line.text.strip()) for number, line in enumerate(lines) if line.text.strip()]
    theirs = [line.strip() for line in above if line.strip()][-_MAX_LINES:]
    for count in range(min(len(ours) - 1, len(theirs)), 0, -1):
        said = [text for _, text in ours[:count]]
        if said == theirs[-count:]:
            is_usual = any(said[0] == one == other for one, other in pairwise(theirs))  # the document repeats it too
            is_telling = count > 1 or (len(_NAMES.findall(said[0])) >= _TELLING and not is_usual)
            return join(lines[ours[count][0] :]), is_telling
    return None


def cut_tail(draft: DraftText, behind: Behind) -> Iterator[tuple[DraftText, bool]]:
    """Drafts without the part that repeats the text behind the hole, the largest part first, and whether this is no
    coincidence.
    """
    if behind.rest.strip():
        yield from _cut_rest(draft, behind)
    else:
        yield from _cut_below(draft, behind.lines)


def _cut_rest(draft: DraftText, behind: Behind) -> Iterator[tuple[DraftText, bool]]:
    rest, following = behind.rest.rstrip(), "\n".join((behind.rest.rstrip(), *behind.lines))
    text = draft.text.rstrip()
    at = text.find(rest)
    while at >= 0:
        if at and following.startswith(text[at:]):
            yield draft[:at], len(_NAMES.findall(rest)) >= _TELLING_IN_LINE or rest.strip() in (";", ",")
            break
        at = text.find(rest, at + 1)
    for size in range(min(len(text) - 1, len(rest) - 1, _MAX_CHARS), 0, -1):
        if rest[:size].strip() and text.endswith(rest[:size]):
            yield draft[: len(text) - size], False


def _cut_below(draft: DraftText, below: Sequence[str]) -> Iterator[tuple[DraftText, bool]]:
    """The answer's last lines that equal the next lines of the document, white space before them included."""
    lines = draft.lines()
    ours = [(number, line.text.rstrip()) for number, line in enumerate(lines) if line.text.strip()]
    theirs = [line.rstrip() for line in below if line.strip()]
    for begin in range(1, len(ours)):
        said = [text for _, text in ours[begin:]]
        if len(said) > len(theirs) or said[:-1] != theirs[: len(said) - 1]:
            continue
        if said[-1] == theirs[len(said) - 1] or (len(said) > 1 and theirs[len(said) - 1].startswith(said[-1])):
            names = sum(len(_NAMES.findall(text)) for text in said)
            is_telling = names >= _TELLING or len(said) > 1 or said[0].lstrip().startswith("/*")
            yield trim(join(lines[: ours[begin][0]]), "", " \t\n"), is_telling
