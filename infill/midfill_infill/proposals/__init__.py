"""Proposers of texts for holes: one module each, found by name and imported at first use."""

from collections.abc import Sequence
from functools import cache
from importlib import import_module
from itertools import chain
from typing import Final

from midfill_infill.answers.draft import is_dangerous
from midfill_infill.proposals.base import Proposal, Proposer, Surroundings

__all__ = ["PROPOSERS", "Proposal", "Surroundings", "propose"]

MAX_PROPOSALS: Final = 40
MAX_HOLES: Final = 16  # a request with more holes gets no proposals, because a proposer takes up to 20 ms per hole
PROPOSERS: Final = ("lines", "siblings")


@cache
def find_proposer(name: str) -> Proposer:
    """The function `propose_NAME` of the module of that name."""
    proposer: Proposer = getattr(import_module(f"midfill_infill.proposals.{name}"), f"propose_{name}")
    return proposer


def propose(names: Sequence[str], around: Surroundings, index: int) -> list[Proposal]:
    """At most MAX_PROPOSALS different texts for the hole `index`, the most certain first; none for a hole with anchors.
    Texts with undecodable bytes or other characters that no fill may hold are left out.
    """
    if around.holes[index].anchors or len(around.holes) > MAX_HOLES:
        return []
    proposals = chain.from_iterable(find_proposer(name)(around, index) for name in names)
    best: dict[str, Proposal] = {}
    for proposal in sorted(proposals, key=lambda proposal: (-proposal.certainty, proposal.origin)):
        if is_safe(proposal.text):
            best.setdefault(proposal.text, proposal)
    return sorted(best.values(), key=lambda proposal: (-proposal.certainty, proposal.text))[:MAX_PROPOSALS]


def is_safe(text: str) -> bool:
    """True unless a character of the text has hidden effects, see `is_dangerous`."""
    return text.replace("\n", "").isprintable() or not any(map(is_dangerous, text))
