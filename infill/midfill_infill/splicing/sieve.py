"""Judges candidates for one hole within its function alone, if that function parses by itself: a hundredth of the cost
of parsing a long file.

Knows errors and names, no engine. A candidate that passes may still fail in the whole document.
"""

from dataclasses import dataclass

from midfill_infill.errors import MidfillError
from midfill_infill.splicing.drafts import DraftText
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
    """The function around hole `index` of `trials`, with other holes masked."""

    document: Document
    trials: Trials
    index: int

    def judge(self, text: str, sight: Sight) -> tuple[int, int] | None:
        """Number of errors and of unknown names a candidate adds; None if it cannot be inserted or found."""
        if not text.strip():
            return None
        try:
            trimmed, _ = clean(self.document, self.trials.holes[self.index], text)
        except MidfillError:
            return None
        chosen: list[DraftText | None] = [None] * len(self.trials.holes)
        chosen[self.index] = settle_one(self.trials, self.document, chosen, self.index, trimmed)
        names = self.trials.find_names(chosen)[self.index]
        return self.trials.count(chosen), sum(not sight.has(name) for name in names)


def find_sieve(document: Document, holes: tuple[Hole, ...], index: int) -> Sieve | None:
    """None if the hole is not in a function, or its function has errors or contains another hole."""
    window = _find_function(document, holes[index]) if document.syntax else None
    if window is None or document.syntax is None:
        return None
    inside = tuple(hole for hole in holes if _is_inside(document, hole, window))
    trials = Trials(document, document.syntax, inside, window)
    return None if trials.num_errors else Sieve(document, trials, inside.index(holes[index]))


def _is_inside(document: Document, hole: Hole, window: Span) -> bool:
    return window[0] <= document.to_source(hole.start_byte) and document.to_source(hole.end_byte) <= window[1]


def _find_function(document: Document, hole: Hole) -> Span | None:
    """Lines of the innermost function around `hole`, or that the hole continues, in source bytes."""
    start, end = document.to_source(hole.start_byte), document.to_source(hole.end_byte)
    lines, columns = document.source_lines, count_columns(hole.indent.encode("ascii"))
    for function in reversed(outline(document).functions):
        if function.head >= start:
            continue
        is_deeper = columns > lines.columns(lines.at(function.head))
        if end <= function.end or (is_deeper and not document.source[function.end : start].strip()):
            return lines.start(lines.at(function.start)), lines.end(lines.at(max(function.end, end)))
    return None
