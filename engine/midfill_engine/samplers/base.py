"""The interface of samplers: what they are shown of a step and what they decide. Knows no model and no text."""

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor


@dataclass(frozen=True)
class Proposals:
    """What a forward pass proposes for every position: B rows, T hole positions. Only masked positions carry meaning.

    `ids` [B, T] is the token chosen by score (and temperature), `confidence` [B, T] its probability. For samplers that
    ask for them: `entropy` [B, T] of the whole distribution in nats, and `margin` [B, T], the probability by which the
    first token leads the second. Together they cost as much as all the rest, so nobody gets them unasked.
    """

    ids: Tensor
    confidence: Tensor
    entropy: Tensor | None = None
    margin: Tensor | None = None


@dataclass(frozen=True)
class StepState:
    """A step to decide on. `masked` [B, T]; `step` counts from 1 to `num_steps`; `quality` is the wire's."""

    proposals: Proposals
    masked: Tensor
    step: int
    num_steps: int
    quality: float

    @property
    def quota(self) -> Tensor:
        """[B]: how many positions each row must settle now, so that equal steps end in time."""
        steps_left = max(1, self.num_steps - self.step + 1)
        return -(-self.masked.sum(dim=1) // steps_left)

    def rank(self) -> Tensor:
        """[B, T]: 0 for the row's most confident masked position, 1 for the next; settled positions come last."""
        confidence = self.proposals.confidence.masked_fill(~self.masked, -1.0)
        return confidence.argsort(dim=1, descending=True, stable=True).argsort(dim=1)


@dataclass(frozen=True)
class Decision:
    """Which positions [B, T] to settle, and which settled ones to mask again (anchors are safe whatever it says)."""

    settle: Tensor
    remask: Tensor | None = None


class Sampler(Protocol):
    """Settles at least one position of every row that has masked ones. The last step is the caller's: all settle."""

    needs_entropy: bool
    needs_margin: bool

    def count_steps(self, num_masked: int, quality: float) -> int:
        """The bound on steps for a request that names none."""
        ...

    def decide(self, state: StepState) -> Decision: ...
