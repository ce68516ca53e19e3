"""Judges texts for one hole in its function alone, where that is sound by itself: a hundredth of a long file's parse.

Knows errors and names, no engine. What passes may still fail in the whole document.
"""

from dataclasses import dataclass

from midfill_infill.errors import MidfillError
from midfill_infill.splicing.drafts import Draft
from midfill_infill.splicing.sight import Sight
from midfill_infill.splicing.splice import clean, settle_one
from midfill_infill.splicing.trials import Trials
from midfill_infill.syntax.outline import outline
from midfill_infill.text.document import Document
from midfill_infill.text.lines import count_columns
from midfill_infill.text.spans import Hole

Span = tuple[int, int]


@dataclass(frozen=True)
class Sieve:
    """The function around the hole `index` of `trials`, the other holes in it masked."""

    document: Document
    trials: Trials
    index: int

    def judge(self, text: str, sight: Sight) -> tuple[int, int] | None:
        """How many errors and names out of sight it adds; None for what cannot be put in or seen."""
        if not text.strip():
            return None
        try:
            trimmed, _ = clean(self.document, self.trials.holes[self.index], text)
        except MidfillError:
            return None
        chosen: list[Draft | None] = [None] * len(self.trials.holes)
        chosen[self.index] = settle_one(self.trials, self.document, chosen, self.index, trimmed)
        names = self.trials.find_names(chosen)[self.index]
        return self.trials.count(chosen), sum(not sight.has(name) for name in names)


def find_sieve(document: Document, holes: tuple[Hole, ...], index: int) -> Sieve | None:
    """None where a hole is in no function, or its function has errors by itself or shares a hole with another."""
    window = _find_function(document, holes[index]) if document.syntax else None
    if window is None or document.syntax is None:
        return None
    inside = tuple(hole for hole in holes if _is_inside(document, hole, window))
    trials = Trials(document, document.syntax, inside, window)
    return None if trials.num_errors else Sieve(document, trials, inside.index(holes[index]))


def _is_inside(document: Document, hole: Hole, window: Span) -> bool:
    return window[0] <= document.to_source(hole.start_byte) and document.to_source(hole.end_byte) <= window[1]


def _find_function(document: Document, hole: Hole) -> Span | None:
    """The lines of the innermost function that holds `hole`, or that it is about to go on, in bytes of the source."""
    start, end = document.to_source(hole.start_byte), document.to_source(hole.end_byte)
    lines, columns = document.source_lines, count_columns(hole.indent.encode("ascii"))
    for function in reversed(outline(document).functions):
        if function.head >= start:
            continue
        is_deeper = columns > lines.columns(lines.at(function.head))
        if end <= function.end or (is_deeper and not document.source[function.end : start].strip()):
            return lines.start(lines.at(function.start)), lines.end(lines.at(max(function.end, end)))
    return None
