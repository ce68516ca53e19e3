"""Proposers of texts for holes, one file each, found by name. A proposer is loaded when it is first asked."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Final

from midfill_infill.errors import MidfillError
from midfill_infill.proposals.base import Proposal, Proposer, Surroundings

__all__ = ["PROPOSERS", "Proposal", "Surroundings", "propose"]

MAX_PROPOSALS: Final = 40
MAX_HOLES: Final = 16  # of a document with more nothing is proposed: a proposer takes up to 20 ms a hole


def _lines() -> Proposer:
    from midfill_infill.proposals.lines import Lines

    return Lines()


def _siblings() -> Proposer:
    from midfill_infill.proposals.siblings import propose_bodies

    return propose_bodies


_MAKERS: Final[dict[str, Callable[[], Proposer]]] = {"lines": _lines, "siblings": _siblings}
PROPOSERS: Final = tuple(_MAKERS)


@cache
def find_proposer(name: str) -> Proposer:
    """One instance serves the whole process and may remember texts. Raises MidfillError for an unknown name."""
    if name not in _MAKERS:
        raise MidfillError(
            "bad_request", f"there is no proposer {name!r}", next_step=f"known are {', '.join(PROPOSERS)}"
        )
    return _MAKERS[name]()


def propose(names: Sequence[str], around: Surroundings, index: int) -> list[Proposal]:
    """What these proposers say of the hole `index`: every text once, the surest first, 40 at most.

    Nothing is proposed for a hole that keeps text of its own.
    """
    if around.holes[index].anchors or len(around.holes) > MAX_HOLES:
        return []
    best: dict[str, Proposal] = {}
    for each in (each for name in names for each in find_proposer(name)(around, index)):
        if each.certainty > getattr(best.get(each.text), "certainty", -1.0):
            best[each.text] = each
    return sorted(best.values(), key=lambda each: (-each.certainty, each.text))[:MAX_PROPOSALS]
