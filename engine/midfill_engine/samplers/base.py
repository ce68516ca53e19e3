"""The interface of samplers: what they see of a step and what they decide. Knows no model and no text."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Proposals:
    """Proposals of a forward pass for B rows of T hole positions; meaningful at masked positions only.

    `ids` [B, T] are the chosen tokens, `confidence` [B, T] their probabilities. `entropy` [B, T] of the whole
    distribution, in nats, is expensive and only computed for samplers that need it.
    """

    ids: Tensor
    confidence: Tensor
    entropy: Tensor | None = None


@dataclass(frozen=True)
class StepState:
    """A step to decide on. `masked` [B, T] may be settled now; `step` counts from 1 to `num_steps`.

    `quality` is the request's dial, `fast_threshold` the model's threshold at dial 0. `remaining` [B] counts all masked
    positions, later blocks included. `ids` [B, T] are the current tokens, `fixed` [T] marks anchors. `places` [T] are
    absolute positions, in blocks of `block_size` (0 without blocks).
    """

    proposals: Proposals
    masked: Tensor
    step: int
    num_steps: int
    quality: float
    remaining: Tensor | None = None
    fixed: Tensor | None = None
    fast_threshold: float = 0.5
    ids: Tensor | None = None
    places: Tensor | None = None
    block_size: int = 0

    @property
    def threshold(self) -> float:
        """Confidence from which a proposal is settled; infinite at quality 1, because fp32 rounds high probabilities to
        1.
        """
        if self.quality >= 1:
            return math.inf
        return self.fast_threshold + (1 - self.fast_threshold) * self.quality

    @property
    def quota(self) -> Tensor:
        """[B]: positions that each row must settle now to finish in equal steps."""
        total = self.masked.sum(dim=1) if self.remaining is None else self.remaining
        return -(-total // max(1, self.num_steps - self.step + 1))  # the steps that are left, with this one

    def rank(self, by: Tensor | None = None) -> Tensor:
        """[B, T]: 0 for the row's best masked position by confidence (or `by`), 1 for the next; settled ones last."""
        scores = (self.proposals.confidence if by is None else by).masked_fill(~self.masked, -torch.inf)
        return scores.argsort(dim=1, descending=True, stable=True).argsort(dim=1)

    def best(self, count: Tensor, by: Tensor | None = None) -> Tensor:
        """[B, T]: the `count` [B] best masked positions of every row."""
        return self.masked & (self.rank(by) < count[:, None])

    def rank_from_below(self, among: Tensor) -> Tensor:
        """[B, T]: 0 for the least confident position of `among` [B, T], 1 for the next; others last."""
        return self.proposals.confidence.masked_fill(~among, torch.inf).argsort(dim=1, stable=True).argsort(dim=1)

    @property
    def takeable(self) -> Tensor:
        """[B, T]: settled positions that may be remasked."""
        free = ~self.masked
        return free if self.fixed is None else free & ~self.fixed


@dataclass(frozen=True)
class Decision:
    """Positions [B, T] to settle, settled ones to remask, settled ones to replace by their proposal; never anchors."""

    settle: Tensor
    remask: Tensor | None = None
    edit: Tensor | None = None


class Sampler:
    """Settles at least one position of every row that has masked ones, unless it remasks. The caller settles everything
    in the last step. One instance serves one row of one fill and may keep state.

    `is_scaled`: confidence is taken after temperature and top-p. `revises`: it also gets proposals for settled
    positions of the current block. `goes_on`: the current block may still change although nothing in it is masked.
    `takes_back`: it remasks, so it may need more steps than positions.
    """

    needs_entropy = False
    is_scaled = False
    takes_back = False
    revises = False
    goes_on = False

    def count_steps(self, num_masked: int, quality: float) -> int:
        """Upper bound of steps for a request that names none."""
        return num_masked

    def reach(self, masked: Tensor) -> int:
        """How many positions of the `masked` [B, T] canvas, from the left, take part in the next step, with the blocks
        that they reach; 0: one block. Only called for models that decode several blocks at once.
        """
        return 0

    def decide(self, state: StepState) -> Decision:
        raise NotImplementedError

    def move(self, order: list[int | None]) -> None:
        """The canvas changed: new position i was `order[i]` before, or is new (None)."""
