"""The interface of samplers: what they see of a step and what they decide. Knows no model and no text."""

import math
from dataclasses import dataclass

import numpy as np

from midfill_engine.models.choice import Chosen
from midfill_engine.models.sequence import Array


@dataclass(eq=False)
class Predictions:
    """Tokens that were chosen for T positions, as numpy's arrays [T]: `ids`, their probabilities `confidence`, and if
    the sampler needs it the `entropy` (nats) of the distributions that they are from.
    """

    ids: Array
    confidence: Array
    entropy: Array | None = None

    @classmethod
    def of(cls, chosen: Chosen) -> "Predictions":
        entropy = None if chosen.entropy is None else chosen.entropy.numpy()
        return cls(chosen.ids.numpy(), chosen.confidence.numpy(), entropy)

    @classmethod
    def spread(cls, chosen: Chosen, positions: Array, size: int) -> "Predictions":
        """What was chosen at the `positions` [M] of `size` positions; elsewhere ids are -1, and all else is 0."""
        ids, confidence, entropy = np.empty(size, np.int64), np.zeros(size, np.float32), None
        ids.fill(-1)
        ids[positions], confidence[positions] = chosen.ids.numpy(), chosen.confidence.numpy()
        if chosen.entropy is not None:
            entropy = np.zeros(size, np.float32)
            entropy[positions] = chosen.entropy.numpy()
        return cls(ids, confidence, entropy)


@dataclass(eq=False)
class StepState:
    """A step to decide on, over T hole positions. `step` counts from 1 to `num_steps`.

    `predictions` [T] are the choices of its forward pass, with `ids` of -1 where none was requested; they have
    `entropy`, which is expensive, only for samplers that need it.
    `ids` [T] are the current tokens. `masked` [T] marks the positions that may be settled now; `remaining` counts all
    masked ones, of later blocks too. `fixed` [T] marks anchors. `quality` is the request's dial, `fast_threshold` the
    model's threshold at dial 0. `sequence_positions` [T] are the positions in the whole sequence, which has blocks of
    `block_size`; None without blocks.
    """

    predictions: Predictions
    ids: Array
    masked: Array
    fixed: Array
    remaining: int
    step: int
    num_steps: int
    quality: float
    fast_threshold: float = 0.5
    sequence_positions: Array | None = None
    block_size: int = 0

    @property
    def threshold(self) -> float:
        """The confidence from which a prediction is settled. Infinite at quality 1, because fp32 rounds some to 1."""
        if self.quality >= 1:
            return math.inf
        return self.fast_threshold + (1 - self.fast_threshold) * self.quality

    @property
    def quota(self) -> int:
        """The number of positions to settle now in order to finish in equal steps."""
        return -(-self.remaining // max(1, self.num_steps - self.step + 1))  # the remaining steps include this one

    def best(self, count: int, by: Array | None = None) -> Array:
        """[T]: true at the `count` masked positions with the highest confidence, or the highest scores `by` [T]."""
        positions, is_best = self.masked.nonzero()[0], np.zeros(len(self.masked), dtype=bool)
        scores = (self.predictions.confidence if by is None else by)[positions]
        best_first = (-scores).argsort(kind="stable")
        is_best[positions[best_first[: max(count, 0)]]] = True
        return is_best

    @property
    def takeable(self) -> Array:
        """[T]: true at settled positions that may be remasked or replaced."""
        return ~self.masked & ~self.fixed


def rank(values: Array, among: Array) -> Array:
    """[T]: the ranks of `values` [T], 0 for the smallest one. All positions that are not `among` [T] come last."""
    ranks = np.empty(len(values), dtype=np.int64)
    ranks[np.where(among, values, np.inf).argsort(kind="stable")] = np.arange(len(values))
    return ranks


@dataclass(eq=False)
class Decision:
    """Positions [T] to `settle`; settled ones to `remask`, or to replace by their predictions (`edit`); no anchors."""

    settle: Array
    remask: Array | None = None
    edit: Array | None = None


class Sampler:
    """Decides what each step settles: at least one position of a canvas that has masked ones, unless it remasks some.
    The caller settles everything in the last step. One instance serves one canvas of one fill and may keep state.

    `is_scaled`: confidence is taken after temperature and top-p. `revises`: it also gets predictions for settled
    positions of the current block. `block_may_change`: that block may still change although nothing in it is masked.
    `takes_back`: it remasks or replaces settled tokens, so it may need more steps than positions.
    """

    needs_entropy = False
    is_scaled = False
    takes_back = False
    revises = False
    block_may_change = False

    def count_steps(self, num_masked: int, quality: float) -> int:
        """Upper bound of steps for a request that names none."""
        return num_masked

    def reach(self, masked: Array) -> int:
        """The number of positions from the left, of the canvas `masked` [T], whose blocks take part in the next step; 0
        if only one block does. Called only for models that decode several blocks at once.
        """
        return 0

    def decide(self, state: StepState) -> Decision:
        raise NotImplementedError
