"""What a proposer gets, `Surroundings`, and gives, `Proposal`s. Knows documents and texts; no model, no connection."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from midfill_infill.context.references import Reference
from midfill_infill.proposals.sight import Sight
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Hole

MAX_READ_CHARACTERS: Final = 2**20  # of a document in `Surroundings.texts`


@dataclass(frozen=True)
class Proposal:
    """The whole text of a hole, the probability in [0, 1] that it is right, and a description of its origin."""

    text: str
    certainty: float
    origin: str


@dataclass(frozen=True)
class Surroundings:
    """A document, its ordered holes, and related files."""

    document: Document
    holes: tuple[Hole, ...]
    references: Sequence[Reference] = ()

    @cached_property
    def texts(self) -> list[str]:
        """The texts before, between and behind the holes, with the leads and tails of holes that they touch. Of each
        text at most an equal share of MAX_READ_CHARACTERS stays: the end of the first, the beginning of all others.
        """
        share = MAX_READ_CHARACTERS // (len(self.holes) + 1)
        leads = [*(hole.lead for hole in self.holes), ""]
        tails = ["", *(hole.tail for hole in self.holes)]
        texts: list[str] = []
        for tail, shown, lead in zip(tails, self.document.texts_around(self.holes), leads, strict=True):
            text = tail + shown + lead
            texts.append(text[:share] if texts else text[-share:])
        return texts

    @cached_property
    def sight(self) -> Sight:
        """The names in the text outside of the holes and in the related files."""
        language = self.document.syntax
        texts = self.document.texts_around(self.holes)
        texts += [reference.text for reference in self.references]
        return Sight(texts, language.names if language else None)


Proposer = Callable[[Surroundings, int], Sequence[Proposal]]
"""Proposes texts for the hole with that index."""
