"""Proposes texts that the user accepted earlier in this session, unchanged. Knows texts, no model."""

from typing import Final

from midfill_infill.proposals.base import Proposal, Surroundings, indent_body
from midfill_infill.proposals.weights import shipped_weights

ORIGIN: Final = "as you took before"
MAX_TAKEN: Final = 8  # the newest


def propose_taken(around: Surroundings, index: int) -> list[Proposal]:
    """Proposes the newest texts first: any text for a body, single lines for other holes."""
    hole, found = around.holes[index], list[Proposal]()
    for place, text in enumerate(dict.fromkeys(around.taken[:MAX_TAKEN]), 1):
        if hole.is_body:
            found.append(Proposal(indent_body(text, hole.indent), shipped_weights().taken / place, ORIGIN))
        elif "\n" not in text:
            lead = hole.indent if hole.kind == "line" else ""
            found.append(Proposal(lead + text, shipped_weights().taken / place, ORIGIN))
    return found
