"""The interface of samplers: what they are shown of a step and what they decide. Knows no model and no text."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Proposals:
    """What a forward pass proposes for every position: B rows, T hole positions. Only masked positions carry meaning.

    `ids` [B, T] is the token chosen by score (and temperature), `confidence` [B, T] its probability. Samplers that
    need it also get `entropy` [B, T] of the whole distribution, in nats, which costs as much as all the rest.
    """

    ids: Tensor
    confidence: Tensor
    entropy: Tensor | None = None


@dataclass(frozen=True)
class StepState:
    """A step to decide on. `masked` [B, T] may be settled now; `step` counts from 1 to `num_steps`.

    `quality` is the wire's dial, `fast_threshold` the model's threshold where it stands at 0. `remaining` [B] counts
    all that is masked, later blocks included. `settled` [B, T] has the confidence with which tokens were settled,
    `ids` [B, T] what stands there, `fixed` [T] marks anchors. `places` [T] are absolute positions, counted in blocks
    of `block_size` where attention knows blocks, else 0.
    """

    proposals: Proposals
    masked: Tensor
    step: int
    num_steps: int
    quality: float
    remaining: Tensor | None = None
    settled: Tensor | None = None
    fixed: Tensor | None = None
    fast_threshold: float = 0.5
    ids: Tensor | None = None
    places: Tensor | None = None
    block_size: int = 0

    @property
    def threshold(self) -> float:
        """How sure a proposal must be to be settled. None is sure enough at quality 1, not even one with probability 1
        in fp32: there one position a step is settled.
        """
        if self.quality >= 1:
            return math.inf
        return self.fast_threshold + (1 - self.fast_threshold) * self.quality

    @property
    def steps_left(self) -> int:
        """This one included."""
        return max(1, self.num_steps - self.step + 1)

    @property
    def quota(self) -> Tensor:
        """[B]: how many positions each row must settle now, so that equal steps end in time."""
        total = self.masked.sum(dim=1) if self.remaining is None else self.remaining
        return -(-total // self.steps_left)

    def rank(self, by: Tensor | None = None) -> Tensor:
        """[B, T]: 0 for the row's best masked position by confidence (or `by`), 1 for the next; settled ones last."""
        scores = (self.proposals.confidence if by is None else by).masked_fill(~self.masked, -torch.inf)
        return scores.argsort(dim=1, descending=True, stable=True).argsort(dim=1)

    def best(self, count: Tensor, by: Tensor | None = None) -> Tensor:
        """[B, T]: the `count` [B] best masked positions of every row."""
        return self.masked & (self.rank(by) < count[:, None])

    def rank_from_below(self, among: Tensor) -> Tensor:
        """[B, T]: 0 for the least confident position of `among` [B, T], 1 for the next; all others last."""
        return self.proposals.confidence.masked_fill(~among, torch.inf).argsort(dim=1, stable=True).argsort(dim=1)

    @property
    def takeable(self) -> Tensor:
        """[B, T]: settled positions that may be masked again."""
        free = ~self.masked
        return free if self.fixed is None else free & ~self.fixed


@dataclass(frozen=True)
class Decision:
    """Which positions [B, T] to settle, and which settled ones to mask again, or to give the token proposed there.

    Anchors are safe whatever it says.
    """

    settle: Tensor
    remask: Tensor | None = None
    edit: Tensor | None = None


class Sampler:
    """Settles at least one position of every row that has masked ones, unless it takes back.

    The last step is the caller's: all settle.

    One instance serves one row of one fill, so it may remember what it saw. `is_scaled`: its confidence is taken after
    temperature and top-p.
    `revises`: there are proposals for settled positions of the current block too, by what stands there. `goes_on`: the
    current block may still change though nothing in it is masked, so the next one waits.
    `takes_back`: it masks settled positions again, so it may use more steps than there are positions.
    """

    needs_entropy = False
    is_scaled = False
    takes_back = False
    revises = False
    goes_on = False

    def count_steps(self, num_masked: int, quality: float) -> int:
        """The bound on steps for a request that names none."""
        return num_masked

    def reach(self, masked: Tensor) -> int:
        """How many of the `masked` [B, T] canvas' positions, from the left, have a part in the coming step; 0: few.

        Only models that work on several blocks at once ask. Where it ends within a block, that has a part too.
        """
        return 0

    def decide(self, state: StepState) -> Decision:
        raise NotImplementedError

    def move(self, order: list[int | None]) -> None:
        """The canvas changed: position i of now was `order[i]` before, or is new."""
