"""The interface of samplers: what they see of a step and what they decide. Knows no model and no text."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from midfill_engine.models.choice import Chosen


@dataclass(frozen=True)
class StepState:
    """A step to decide on, over T hole positions. `step` counts from 1 to `num_steps`.

    `proposals` [T] are the choices of its forward pass, with `ids` of -1 where none was requested; they have `entropy`,
    which is expensive, only for samplers that need it.
    `ids` [T] are the current tokens. `masked` [T] may be settled now; `remaining` counts all masked positions, later
    blocks included. `fixed` [T] marks anchors. `quality` is the request's dial, `fast_threshold` the model's threshold
    at dial 0. `places` [T] are absolute positions in blocks of `block_size`, None without blocks.
    """

    proposals: Chosen
    ids: Tensor
    masked: Tensor
    fixed: Tensor
    remaining: int
    step: int
    num_steps: int
    quality: float
    fast_threshold: float = 0.5
    places: Tensor | None = None
    block_size: int = 0

    @property
    def threshold(self) -> float:
        """Confidence that settles a proposal; infinite at quality 1, because fp32 rounds probabilities to 1."""
        if self.quality >= 1:
            return math.inf
        return self.fast_threshold + (1 - self.fast_threshold) * self.quality

    @property
    def quota(self) -> int:
        """The number of positions to settle now in order to finish in equal steps."""
        return -(-self.remaining // max(1, self.num_steps - self.step + 1))  # the remaining steps include this one

    def best(self, count: int, by: Tensor | None = None) -> Tensor:
        """[T]: the `count` masked positions with the highest confidence, or the highest `by` [T]."""
        masked, scores = self.masked.numpy(), (self.proposals.confidence if by is None else by).numpy()
        order = np.where(masked, -scores, np.inf).argsort(kind="stable")
        best = np.zeros_like(masked)
        best[order[: max(count, 0)]] = True
        return torch.from_numpy(best & masked)

    @property
    def takeable(self) -> Tensor:
        """[T]: settled positions that may be remasked."""
        return ~self.masked & ~self.fixed


def rank(values: Tensor, among: Tensor) -> Tensor:
    """[T]: 0 for the smallest of `values` [T] at the positions `among` [T], 1 for the next; all others come last."""
    return values.masked_fill(~among, math.inf).argsort(stable=True).argsort()


@dataclass(frozen=True)
class Decision:
    """Positions [T] to settle, settled ones to remask, settled ones to replace by their proposal; never anchors."""

    settle: Tensor
    remask: Tensor | None = None
    edit: Tensor | None = None


class Sampler:
    """Settles at least one position of a row that has masked ones, unless it remasks. The caller settles everything in
    the last step. One instance serves one row of one fill and may keep state.

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
        """The number of positions of the `masked` [T] canvas, from the left, whose blocks take part in the next step;
        0: one block. Only called for models that decode several blocks at once.
        """
        return 0

    def decide(self, state: StepState) -> Decision:
        raise NotImplementedError
