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

_BREAK_AHEAD: Final = re.compile(r"[ \t]*\n\s*")  # at the start of a masked part
_INDENT_AHEAD: Final = re.compile(r"\s*")  # at the start of one that begins in an indentation
_BREAKS_BEHIND: Final = re.compile(r"(?:(?<=\S)[ \t]*[:{(\[]|)\s*\n[ \t]*\Z")  # at its end, with what opens a block
_BREAK_BEHIND: Final = re.compile(r"\n[ \t]*\Z")  # at the end of a blank one
_QUOTED: Final = re.compile(r""""(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|`(?:\\.|[^`\\\n])*`""")
_NO_BRACKETS: Final = re.compile(r"[^()\[\]{}]+")
_PAIRS: Final = re.compile(r"\(\)|\[\]|\{\}")


@dataclass(frozen=True)
class Split:
    """A hole's draft: the known `head`, the `parts`, and the known `tail`. Masked and known parts alternate; the first
    and the last one are masked. If all is known, there are no parts, and the text is the `head`.

    Known are the anchors and the line breaks beside them (`keep_breaks`). `anchor_ranges` are those of the anchors
    alone, counted in the known characters.
    """

    head: str
    parts: tuple[str, ...]
    tail: str
    anchor_ranges: tuple[Range, ...] = field(default=(), compare=False)

    @classmethod
    def of(cls, spec: HoleSpec) -> "Split":
        known_ranges = keep_breaks(spec.draft, spec.keep)
        parts = [""]  # known and masked in turns, the head first
        is_masked = False
        for text, is_kept in split_draft(spec.model_copy(update={"keep": known_ranges})):
            if is_kept == is_masked:
                parts.append("")
                is_masked = not is_kept
            parts[-1] += text
        tail = "" if is_masked else parts.pop()
        indices = _list_indices(known_ranges)
        anchor_ranges = []
        for start, end in spec.keep:
            first = bisect_left(indices, start)
            anchor_ranges.append((first, first + end - start))
        if not parts:
            return cls(tail, (), "", tuple(anchor_ranges))
        head, *others = parts
        return cls(head, tuple(others), tail, tuple(anchor_ranges))

    @property
    def has_anchors(self) -> bool:
        if self.head or self.tail:
            return True
        return len(self.parts) != 1

    @cached_property
    def unmatched(self) -> str:
        """The draft's brackets without a partner."""
        return find_unmatched(self.head + "".join(self.parts) + self.tail)

    def to_whole(self, candidate: Candidate) -> Candidate:
        """Turns a text for the parts into one for the whole hole, whose `kept` ranges are the anchors alone."""
        start = len(self.head)
        end = start + len(candidate.text)
        text = self.head + candidate.text + self.tail
        known_ranges = [(0, start)]
        for kept_start, kept_end in candidate.kept:
            known_ranges.append((start + kept_start, start + kept_end))
        known_ranges.append((end, len(text)))
        indices = _list_indices(known_ranges)
        kept = []
        for first, last in self.anchor_ranges:
            anchor_end = indices[last - 1] + 1
            kept.append((indices[first], anchor_end))
        logs = candidate.logs
        if self.head:
            logs = ((self.head, 0.0), *logs)
        return replace(candidate, text=text, logs=logs, kept=tuple(merge(kept)))

    def balances(self, candidate: Candidate) -> bool:
        """True if a whole text's brackets have partners, or lack the same as the draft's; or if there is no anchor."""
        if not self.has_anchors:
            return True
        return find_unmatched(candidate.text) in ("", self.unmatched)

    def only_known(self) -> Candidate:
        """The known text alone, without the masked parts."""
        known = "".join(self.parts[1::2])
        return self.to_whole(Candidate(known, kept=((0, len(known)),)))

    def unchanged(self) -> Candidate:
        """The draft as it is, for a hole without any candidate; but only its known text, "", if it has no anchors."""
        if not self.has_anchors:
            return self.only_known()
        text = ""
        kept: list[Range] = []
        for index, part in enumerate(self.parts):
            start = len(text)
            text += part
            if index % 2:
                kept.append((start, len(text)))
        return self.to_whole(Candidate(text, kept=tuple(kept)))


def keep_breaks(draft: str, keep: Sequence[Range]) -> list[Range]:
    """The known ranges of a draft: those of `keep`, each with the line break beside it and the indentation behind that,
    so that a line stays a line, and with what opens the block of a kept line. An indentation between two kept ranges
    joins them; white space with a line break leaves an empty masked part between them, where text may be inserted.
    """
    known: list[Range] = []
    masked_start = 0
    for kept_start, kept_end in keep:
        masked_end = _find_break_behind(draft, masked_start, kept_start)
        if known:
            known[-1] = (known[-1][0], _find_break_ahead(draft, masked_start, masked_end))
        known.append((masked_end, kept_end))
        masked_start = kept_end
    if known:
        known[-1] = (known[-1][0], _find_break_ahead(draft, masked_start, len(draft)))
    return _join_indents(draft, known, keep)


def _find_break_behind(draft: str, start: int, end: int) -> int:
    """The end of a masked part without the line break at its end."""
    masked = draft[start:end]
    pattern = _BREAKS_BEHIND if masked.strip() else _BREAK_BEHIND
    line_break = pattern.search(masked)
    return start + line_break.start() if line_break else end


def _find_break_ahead(draft: str, start: int, end: int) -> int:
    """The start of a masked part without the line break at its start, or without the indentation of its first line."""
    _, is_later, line = draft[:start].rpartition("\n")
    pattern = _INDENT_AHEAD if is_later and not line.strip() else _BREAK_AHEAD
    line_break = pattern.match(draft, start, end)
    return line_break.end() if line_break else start


def _join_indents(draft: str, known: Sequence[Range], keep: Sequence[Range]) -> list[Range]:
    """The known ranges, joined where only an indentation, which is known now, was between two kept ranges."""
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


def _list_indices(ranges: Sequence[Range]) -> list[int]:
    """The indices of all characters in the ranges."""
    indices: list[int] = []
    for start, end in ranges:
        indices += range(start, end)
    return indices
