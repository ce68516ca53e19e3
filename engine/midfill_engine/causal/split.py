"""Splits a hole's draft into masked and known parts. Knows texts and ranges; no tokens, no model."""

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

from midfill_engine.judging import Candidate
from midfill_engine.requests.outline import split_draft
from midfill_engine.tokens.pieces import merge
from midfill_engine.wire import HoleSpec

Range = tuple[int, int]

_BREAK_AHEAD: Final = re.compile(r"[ \t]*\n\s*")
_INDENT_AHEAD: Final = re.compile(r"\s*")
_BREAKS_BEHIND: Final = re.compile(r"(?:(?<=\S)[ \t]*[:{(\[]|)\s*\n[ \t]*\Z")  # and what opens the block of a kept line
_BREAK_BEHIND: Final = re.compile(r"\n[ \t]*\Z")
_QUOTED: Final = re.compile(r""""(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|`(?:\\.|[^`\\\n])*`""")
_NO_BRACKETS: Final = re.compile(r"[^()\[\]{}]+")
_PAIRS: Final = re.compile(r"\(\)|\[\]|\{\}")


@dataclass(frozen=True)
class Split:
    """A hole's draft: `parts`, masked and known in turns, the first and the last masked, between the known `head` and
    `tail`. A hole that is all known has no parts. Line breaks beside kept text are known, too: of all known characters
    the request keeps those in the ranges `asked`.
    """

    head: str
    parts: tuple[str, ...]
    tail: str
    asked: tuple[Range, ...] = field(default=(), compare=False)

    @classmethod
    def of(cls, spec: HoleSpec) -> "Split":
        known = keep_breaks(spec.draft, spec.keep)
        parts = [""]
        is_masked = False
        for text, is_kept in split_draft(spec.model_copy(update={"keep": known})):
            if is_kept == is_masked:
                parts.append("")
                is_masked = not is_kept
            parts[-1] += text
        tail = "" if is_masked else parts.pop()
        chars = _list_chars(known)
        asked = []
        for start, end in spec.keep:
            first = bisect_left(chars, start)
            asked.append((first, first + end - start))
        if not parts:
            return cls(tail, (), "", tuple(asked))
        head, *others = parts
        return cls(head, tuple(others), tail, tuple(asked))

    @property
    def has_anchors(self) -> bool:
        if self.head or self.tail:
            return True
        return len(self.parts) != 1

    @cached_property
    def unmatched(self) -> str:
        """The draft's brackets without a partner."""
        return find_unmatched(self.head + "".join(self.parts) + self.tail)

    def put(self, one: Candidate) -> Candidate:
        """A text for the parts as one for the whole hole."""
        start = len(self.head)
        end = start + len(one.text)
        text = self.head + one.text + self.tail
        known = [(0, start)]
        for first, last in one.kept:
            known.append((start + first, start + last))
        known.append((end, len(text)))
        chars = _list_chars(known)
        kept = []
        for first, last in self.asked:
            end_char = chars[last - 1] + 1
            kept.append((chars[first], end_char))
        logs = one.logs
        if self.head:
            logs = ((self.head, 0.0), *logs)
        return replace(one, text=text, logs=logs, kept=tuple(merge(kept)))

    def balances(self, one: Candidate) -> bool:
        """True for a text of the whole hole whose brackets have partners, or lack those that the draft's lack."""
        if not self.has_anchors:
            return True
        return find_unmatched(one.text) in ("", self.unmatched)

    def skip(self) -> Candidate:
        """The known text alone."""
        known = "".join(self.parts[1::2])
        return self.put(Candidate(known, kept=((0, len(known)),)))

    def stay(self) -> Candidate:
        """The draft as it is, which stands where nothing was found; what is known alone if nothing is."""
        if not self.has_anchors:
            return self.skip()
        text = ""
        kept: list[Range] = []
        for index, part in enumerate(self.parts):
            start = len(text)
            text += part
            if index % 2:
                kept.append((start, len(text)))
        return self.put(Candidate(text, kept=tuple(kept)))


def keep_breaks(draft: str, keep: Sequence[Range]) -> list[Range]:
    """The ranges `keep` of a draft, each with the line break beside it, and with the indentation behind that: what was
    a line stays one, and what opens the block of a kept line stays, too. A masked part that is all white space stays,
    as a place to insert, only where it has a break.
    """
    known: list[Range] = []
    start = 0  # of a masked part
    for first, last in keep:
        end = _find_break_behind(draft, start, first)
        if known:
            known[-1] = (known[-1][0], _find_break_ahead(draft, start, end))
        known.append((end, last))
        start = last
    if known:
        known[-1] = (known[-1][0], _find_break_ahead(draft, start, len(draft)))
    return _join_indents(draft, known, keep)


def _find_break_behind(draft: str, start: int, end: int) -> int:
    """Where a masked part ends before the line break behind it."""
    masked = draft[start:end]
    pattern = _BREAKS_BEHIND if masked.strip() else _BREAK_BEHIND
    line_break = pattern.search(masked)
    return start + line_break.start() if line_break else end


def _find_break_ahead(draft: str, start: int, end: int) -> int:
    """Where a masked part begins after the line break ahead of it, or after the indentation of its first line."""
    _, is_later, line = draft[:start].rpartition("\n")
    pattern = _INDENT_AHEAD if is_later and not line.strip() else _BREAK_AHEAD
    line_break = pattern.match(draft, start, end)
    return line_break.end() if line_break else start


def _join_indents(draft: str, known: Sequence[Range], keep: Sequence[Range]) -> list[Range]:
    """The ranges, joined where an indentation between two kept ranges is known now."""
    joined: list[Range] = []
    for index, (start, end) in enumerate(known):
        masked = ""
        if index:
            masked = draft[keep[index - 1][1] : keep[index][0]]
        if joined and masked and joined[-1][1] == start and "\n" not in masked:
            start, _ = joined.pop()
        joined.append((start, end))
    return joined


def find_unmatched(text: str) -> str:
    """The brackets without a partner, in order, outside of strings."""
    brackets = _NO_BRACKETS.sub("", _QUOTED.sub("", text))
    while True:
        unmatched = _PAIRS.sub("", brackets)
        if unmatched == brackets:
            return unmatched
        brackets = unmatched


def _list_chars(ranges: Sequence[Range]) -> list[int]:
    chars: list[int] = []
    for start, end in ranges:
        chars += range(start, end)
    return chars
