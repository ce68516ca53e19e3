"""What proposers are shown and what they say. Knows documents and texts; no model, no connection."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from midfill_infill.context.references import Reference
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Hole

MAX_COUNTED_CHARACTERS: Final = 2**20  # of a document, the nearest to its holes


@dataclass(frozen=True)
class Proposal:
    """The whole text of a hole, the probability in [0, 1] that it is right, and where it comes from, in words."""

    text: str
    certainty: float
    origin: str


@dataclass(frozen=True)
class Surroundings:
    """A document with its holes in order, other files that matter, and whether a name is in sight of the holes.

    `taken` is what the user took before, the newest first.
    """

    document: Document
    holes: tuple[Hole, ...]
    references: Sequence[Reference] = ()
    is_seen: Callable[[str], bool] = field(default=lambda name: True, compare=False)
    taken: Sequence[str] = ()

    @cached_property
    def texts(self) -> list[str]:
        """What stands before, between and behind the holes, the holes' leads and tails included; of long texts the
        ends away from the holes are missing.
        """
        document, share = self.document, MAX_COUNTED_CHARACTERS // (len(self.holes) + 1)
        shown = document.show_around(self.holes)
        leads, tails = [*(hole.lead for hole in self.holes), ""], ["", *(hole.tail for hole in self.holes)]
        whole = [tail + text + lead for tail, text, lead in zip(tails, shown, leads, strict=True)]
        return [text[-share:] if index == 0 else text[:share] for index, text in enumerate(whole)]


def indent_body(body: str, indent: str) -> str:
    """A body whose later lines have no indent of their function, with `indent`."""
    first, *lines = body.split("\n")
    return "\n".join([first, *(indent + line if line.strip() else line for line in lines)])


Proposer = Callable[[Surroundings, int], Sequence[Proposal]]
"""Proposes texts for the hole of that number."""
