"""How much of a document a hole takes away, and when that is more than its user may have meant. Knows lines only."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from midfill_infill.text.document import Document
from midfill_infill.text.spans import Hole

MANY_LINES: Final = 40
# A tenth of a file counts from this many lines on: every function is a tenth of a short one.
SOME_LINES: Final = 10
LARGE_SHARE: Final = 0.1


@dataclass(frozen=True)
class Taken:
    """How many lines a hole takes, of how many; `num_lines` is 0 for a hole that takes no text."""

    num_lines: int
    of_lines: int

    @property
    def is_large(self) -> bool:
        is_a_tenth = self.num_lines > SOME_LINES and self.num_lines > LARGE_SHARE * self.of_lines
        return self.num_lines > MANY_LINES or is_a_tenth


def measure(document: Document, hole: Hole) -> Taken:
    first = document.lines.at(hole.start_byte)
    last = document.lines.at(max(hole.start_byte, hole.end_byte - 1))
    has_text = bool(document.data[hole.start_byte : hole.end_byte].strip())
    num_lines = last - first + 1 if has_text else 0
    return Taken(num_lines, document.num_lines - document.lines.is_blank(document.num_lines - 1))


def find_large(document: Document, holes: Sequence[Hole]) -> tuple[Hole, ...]:
    """The bodies among `holes` that take more than a glance shows. What was selected by its ends is meant."""
    return tuple(hole for hole in holes if hole.is_body and measure(document, hole).is_large)
