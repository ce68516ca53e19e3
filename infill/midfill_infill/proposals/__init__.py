"""Proposers of texts for holes: one module each, found by name and imported at first use."""

from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import Final

from midfill_infill.answers.draft import is_dangerous
from midfill_infill.proposals.base import Proposal, Proposer, Surroundings

__all__ = ["PROPOSERS", "Proposal", "Surroundings", "propose"]

MAX_PROPOSALS: Final = 40
MAX_HOLES: Final = 16  # a document with more gets no proposals: a proposer takes up to 20 ms per hole
PROPOSERS: Final = ("lines", "siblings")


@cache
def find_proposer(name: str) -> Proposer:
    proposer: Proposer = getattr(import_module(f"midfill_infill.proposals.{name}"), f"propose_{name}")
    return proposer


def propose(names: Sequence[str], around: Surroundings, index: int) -> list[Proposal]:
    """At most 40 different texts for the hole `index`, most certain first; none for a hole with anchors. A text with
    undecodable bytes or other characters that no fill may hold is left out.
    """
    if around.holes[index].anchors or len(around.holes) > MAX_HOLES:
        return []
    best: dict[str, Proposal] = {}
    for name in names:
        for proposal in find_proposer(name)(around, index):
            if not is_safe(proposal.text):
                continue
            known = best.setdefault(proposal.text, proposal)
            if _rank(proposal) < _rank(known):
                best[proposal.text] = proposal
    return sorted(best.values(), key=lambda proposal: (-proposal.certainty, proposal.text))[:MAX_PROPOSALS]


def _rank(proposal: Proposal) -> tuple[float, str]:
    """The more certain first, then by origin."""
    return -proposal.certainty, proposal.origin


def is_safe(text: str) -> bool:
    """False for a text with hidden effects."""
    return text.replace("\n", "").isprintable() or not any(map(is_dangerous, text))
