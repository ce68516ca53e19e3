"""Proposers of texts for holes, one file each, found by name. A proposer is loaded when it is first asked."""

from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import Final

from midfill_infill.errors import MidfillError
from midfill_infill.proposals.base import Proposal, Proposer, Surroundings

__all__ = ["PROPOSERS", "Proposal", "Surroundings", "propose"]

MAX_PROPOSALS: Final = 40
MAX_HOLES: Final = 16  # of a document with more nothing is proposed: a proposer takes up to 20 ms a hole
PROPOSERS: Final = ("lines", "siblings", "examples", "taken")


@cache
def find_proposer(name: str) -> Proposer:
    """Raises MidfillError for an unknown name."""
    if name not in PROPOSERS:
        raise MidfillError("bad_request", f"there is no proposer {name!r}", f"known are {', '.join(PROPOSERS)}")
    proposer: Proposer = getattr(import_module(f"midfill_infill.proposals.{name}"), f"propose_{name}")
    return proposer


def propose(names: Sequence[str], around: Surroundings, index: int) -> list[Proposal]:
    """Texts for the hole `index`, each once, the surest first, 40 at most; none for one that keeps text of its own."""
    if around.holes[index].anchors or len(around.holes) > MAX_HOLES:
        return []
    best: dict[str, Proposal] = {}
    for each in (each for name in names for each in find_proposer(name)(around, index)):
        if (known := best.get(each.text)) is None or (-each.certainty, each.origin) < (-known.certainty, known.origin):
            best[each.text] = each
    return sorted(best.values(), key=lambda each: (-each.certainty, each.text))[:MAX_PROPOSALS]
