"""The interface of experts: what they are shown of a request and what they say. Knows ids and texts; no model.

An expert reads a request once and then gives second opinions on it: on single masked positions, as a distribution to
mix into the model's own, and on whole holes, as drafts that bring their own length.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import torch

from midfill_engine.models.choice import Echo

NEIGHBOURS: Final = 4  # how many known ids an expert is told of, on either side of a position

Ids = tuple[int, ...]
Sides = list[tuple[Ids, Ids]]  # of every row the known neighbours before and behind, nearest first


@dataclass(frozen=True)
class Remote:
    """A text that the model does not see; `distance` counts among those of its kind. The document's stands before the
    holes or `is_behind` them.
    """

    kind: Literal["document", "open", "recent", "imported", "neighbour"]
    text: str
    distance: int = 0
    is_behind: bool = False


@dataclass(frozen=True)
class Gap:
    """What stands around a hole that has no text of its own: its fill begins with `lead` and goes on as `after`.

    `before` and `after` are whole, however little of them the model sees. The user's text is the fill without `lead`
    and with `tail` behind.
    """

    before: str
    after: str
    lead: str = ""
    tail: str = ""


@dataclass(frozen=True)
class Sources:
    """A request as experts see it: the visible ids in document order, the texts around its G holes, remote texts.

    `texts` has one entry more than `gaps`; a hole that has text of its own is None in `gaps`.
    """

    pieces: list[list[int]]
    texts: Sequence[str] = ()
    gaps: Sequence[Gap | None] = ()
    remotes: Sequence[Remote] = ()


@dataclass(frozen=True)
class Proposal:
    """A draft: the user's text of a hole and the probability in [0, 1] that it is the right one."""

    text: str
    certainty: float


class Opinion:
    """What one expert says of one request. `num_bytes` is what it holds until the request ends."""

    num_bytes = 0
    mixes = False  # whether it ever has an echo

    def echo(self, sides: Sides) -> Echo | None:
        """The distribution to mix in for M rows with these neighbours; None where it has nothing to say."""
        return None

    def propose(self, hole: int) -> list[Proposal]:
        """Drafts for a hole, the surest first."""
        return []


class Expert:
    """Reads requests. One instance serves all requests of an engine, one after the other, and may remember texts."""

    def read(self, sources: Sources) -> Opinion:
        raise NotImplementedError


class Panel:
    """The opinions of all experts that a request listens to, as one."""

    def __init__(self, opinions: Sequence[Opinion]) -> None:
        self._opinions = opinions

    @property
    def num_bytes(self) -> int:
        return sum(opinion.num_bytes for opinion in self._opinions)

    @property
    def mixes(self) -> bool:
        return any(opinion.mixes for opinion in self._opinions)

    def echo(self, sides: Sides) -> Echo | None:
        found = [echo for echo in (opinion.echo(sides) for opinion in self._opinions) if echo is not None]
        whole = found[0] if found else None
        for echo in found[1:]:
            assert whole is not None
            whole = mix(whole, echo)
        return whole

    def propose(self, hole: int) -> list[Proposal]:
        """Every text once, the surest first."""
        best: dict[str, Proposal] = {}
        for proposal in (each for opinion in self._opinions for each in opinion.propose(hole)):
            if proposal.certainty > getattr(best.get(proposal.text), "certainty", -1.0):
                best[proposal.text] = proposal
        return sorted(best.values(), key=lambda proposal: -proposal.certainty)


def mix(first: Echo, second: Echo) -> Echo:
    """`second` over a model that has heard `first`."""
    rows, tokens = torch.cat((first.rows, second.rows)), torch.cat((first.tokens, second.tokens))
    amounts = torch.cat((first.amounts * second.kept[first.rows], second.amounts))
    places, index = torch.unique(torch.stack((rows, tokens)), dim=1, return_inverse=True)
    return Echo(
        places[0], places[1], torch.zeros(places.shape[1]).index_add(0, index, amounts), first.kept * second.kept
    )


def neighbours_of(line: list[int | None], place: int, step: int) -> Ids:
    """Up to NEIGHBOURS known ids beside `place` in the direction of `step`, nearest first; None in `line` ends them."""
    found: list[int] = []
    for other in range(1, NEIGHBOURS + 1):
        index = place + step * other
        token = line[index] if 0 <= index < len(line) else None
        if token is None:
            break
        found.append(token)
    return tuple(found)
