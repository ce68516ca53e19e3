"""Proposes lines of the file and of others that matter, as they are and renamed, and inside of a line counted words.

Knows where holes are; what is likely there is counted in `counts`.
"""

from collections.abc import Sequence
from dataclasses import replace
from threading import Lock
from typing import Final

from midfill_infill.proposals.base import Proposal, Surroundings
from midfill_infill.proposals.counts import Counts, Texts
from midfill_infill.proposals.gap import Gap

LEAST_OF_BODY: Final = 0.1  # a line less certain than that is no proposal for a body
# Certainties are fitted on lines: of 103 lines that were compared as bodies 3 were right, where they said 12.
BODY_ODDS: Final = 0.2


class Lines:
    """Keeps what it has counted for the next document, which is often the same one a little later."""

    def __init__(self, counts: Counts | None = None) -> None:
        self._counts = counts or Counts()
        self._lock = Lock()

    def __call__(self, around: Surroundings, index: int) -> Sequence[Proposal]:
        texts, gaps = list(around.texts), list[Gap]()
        for number in range(len(around.holes)):
            gaps.append(Gap.between(texts[number], texts[number + 1]))
            texts[number], texts[number + 1] = gaps[-1].before, gaps[-1].after
        gap = gaps[index]
        gap = Gap(texts[index], texts[index + 1], gap.lead, gap.tail)
        others = tuple(each.text for each in around.references)
        with self._lock:
            found = self._counts.read(Texts(tuple(texts), others)).propose(index, gap)
        return _weigh_bodies(found) if around.holes[index].is_body else found


def _weigh_bodies(found: Sequence[Proposal]) -> list[Proposal]:
    chosen = [each for each in found if each.certainty >= LEAST_OF_BODY]
    odds = [BODY_ODDS * each.certainty / (1 - each.certainty + 1e-9) for each in chosen]
    return [replace(each, certainty=value / (1 + value)) for each, value in zip(chosen, odds, strict=True)]
