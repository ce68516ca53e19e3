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

# What is known at the edges of a masked part.
_BREAK_AT_START: Final = re.compile(r"[ \t]*\n\s*")
_WHITE_AT_START: Final = re.compile(r"\s*")  # of one that begins in an indentation
_BREAKS_AT_END: Final = re.compile(r"(?:(?<=\S)[ \t]*[:{(\[]|)\s*\n[ \t]*\Z")  # with what opens a block
_LAST_BREAK_AT_END: Final = re.compile(r"\n[ \t]*\Z")  # of a blank one
_QUOTED: Final = re.compile(r""""(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|`(?:\\.|[^`\\\n])*`""")
_NO_BRACKETS: Final = re.compile(r"[^()\[\]{}]+")
_PAIRS: Final = re.compile(r"\(\)|\[\]|\{\}")


@dataclass(frozen=True)
class Split:
    """A hole's draft: the known `head`, the `parts`, and the known `tail`. Masked and known parts alternate; the first
    and the last one are masked. If all is known, there are no parts, and the text is the `head`.

    Known are the anchors and the line breaks beside them (`keep_breaks`). `anchor_ranges` are those of the anchors
    alone, in the string of all known characters.
    """

    head: str
    parts: tuple[str, ...]
    tail: str
    anchor_ranges: tuple[Range, ...] = field(default=(), compare=False)

    @classmethod
    def of(cls, spec: HoleSpec) -> "Split":
        known_ranges = keep_breaks(spec.draft, spec.keep)
        pieces = list(split_draft(spec.model_copy(update={"keep": known_ranges})))  # masked and known ones in turns
        parts = [text for text, _ in pieces]
        head = parts.pop(0) if pieces[0][1] else ""
        tail = parts.pop() if parts and pieces[-1][1] else ""
        indices = _list_indices(known_ranges)
        anchor_ranges = []
        for start, end in spec.keep:
            first = bisect_left(indices, start)
            anchor_ranges.append((first, first + end - start))
        return cls(head, tuple(parts), tail, tuple(anchor_ranges))

    @property
    def has_anchors(self) -> bool:
        return bool(self.head or self.tail) or len(self.parts) != 1

    @cached_property
    def unmatched(self) -> str:
        """The draft's brackets without a partner."""
        return find_unmatched(self.head + "".join(self.parts) + self.tail)

    def to_whole(self, candidate: Candidate) -> Candidate:
        """Turns a text for the parts, whose `kept` ranges are all known ones, into a text for the whole hole, whose
        `kept` ranges are the anchors alone.
        """
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

    def balances(self, text: str) -> bool:
        """True if a whole text's brackets have partners, or lack the same as the draft's; or if there is no anchor."""
        if not self.has_anchors:
            return True
        return find_unmatched(text) in ("", self.unmatched)

    def only_known(self) -> Candidate:
        """The known text alone, without the masked parts."""
        known = "".join(self.parts[1::2])
        return self.to_whole(Candidate(known, kept=((0, len(known)),)))

    def unchanged(self) -> Candidate:
        """The draft as it is, for a hole without any candidate; "" if it has no anchors: then nothing was to stay."""
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
    """The known ranges of a draft. So that a line stays a line, each is a range of `keep` with the line breaks before
    it and the bracket or colon that ends the line above, and with the break behind it and the indentation behind that.
    An indentation between two kept ranges joins them; white space with a line break leaves an empty masked part between
    them, where text may be inserted.
    """
    known: list[Range] = []
    masked_start = 0
    for kept_start, kept_end in keep:
        masked_end = _trim_end(draft, masked_start, kept_start)
        if known:
            known[-1] = (known[-1][0], _trim_start(draft, masked_start, masked_end))
        known.append((masked_end, kept_end))
        masked_start = kept_end
    if known:
        known[-1] = (known[-1][0], _trim_start(draft, masked_start, len(draft)))
    return _join_indents(draft, known, keep)


def _trim_end(draft: str, start: int, end: int) -> int:
    """The end of a masked part without the line breaks at its end and what opens a block there."""
    masked = draft[start:end]
    pattern = _BREAKS_AT_END if masked.strip() else _LAST_BREAK_AT_END
    match = pattern.search(masked)
    return start + match.start() if match else end


def _trim_start(draft: str, start: int, end: int) -> int:
    """The start of a masked part without the line break at its start, or without all white space there if only white
    space of its line stands before it. The draft's first line, whose start is not in the draft, is no such line.
    """
    _, break_above, line = draft[:start].rpartition("\n")
    pattern = _WHITE_AT_START if break_above and not line.strip() else _BREAK_AT_START
    match = pattern.match(draft, start, end)
    return match.end() if match else start


def _join_indents(draft: str, known: Sequence[Range], keep: Sequence[Range]) -> list[Range]:
    """The known ranges, joined where only an indentation, which is known now, was between two kept ranges."""
    joined: list[Range] = []
    for index, (start, end) in enumerate(known):
        between = draft[keep[index - 1][1] : keep[index][0]] if index else ""
        if between and joined[-1][1] == start and "\n" not in between:
            start, _ = joined.pop()
        joined.append((start, end))
    return joined


def find_unmatched(text: str) -> str:
    """The brackets without a partner, in order. Strings within a line are left out; longer ones and comments count."""
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
