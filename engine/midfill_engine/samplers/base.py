"""The interface of samplers: what they see of a step and what they decide. Knows no model and no text."""

import math
from dataclasses import dataclass

import numpy as np

from midfill_engine.models.choice import Chosen
from midfill_engine.models.sequence import Array


@dataclass(frozen=True, eq=False)
class Proposals:
    """Tokens chosen for T positions, as numpy's arrays: `ids`, their probabilities `confidence`, and if a sampler needs
    it the distributions' `entropy` (nats); each [T].
    """

    ids: Array
    confidence: Array
    entropy: Array | None = None

    @classmethod
    def of(cls, chosen: Chosen) -> "Proposals":
        entropy = None if chosen.entropy is None else chosen.entropy.numpy()
        return cls(chosen.ids.numpy(), chosen.confidence.numpy(), entropy)

    def spread(self, places: Array, size: int) -> "Proposals":
        """These for `size` positions, of which they stand at `places` [M]; elsewhere ids are -1 and numbers 0."""
        ids, confidence, entropy = np.empty(size, np.int64), np.zeros(size, np.float32), self.entropy
        ids.fill(-1)
        ids[places], confidence[places] = self.ids, self.confidence
        if entropy is not None:
            entropy = np.zeros(size, np.float32)
            entropy[places] = self.entropy
        return Proposals(ids, confidence, entropy)


@dataclass(frozen=True, eq=False)
class StepState:
    """A step to decide on, over T hole positions. `step` counts from 1 to `num_steps`.

    `proposals` [T] are the choices of its forward pass, with `ids` of -1 where none was requested; they have `entropy`,
    which is expensive, only for samplers that need it.
    `ids` [T] are the current tokens. `masked` [T] may be settled now; `remaining` counts all masked positions, later
    blocks included. `fixed` [T] marks anchors. `quality` is the request's dial, `fast_threshold` the model's threshold
    at dial 0. `places` [T] are absolute positions in blocks of `block_size`, None without blocks.
    """

    proposals: Proposals
    ids: Array
    masked: Array
    fixed: Array
    remaining: int
    step: int
    num_steps: int
    quality: float
    fast_threshold: float = 0.5
    places: Array | None = None
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

    def best(self, count: int, by: Array | None = None) -> Array:
        """[T]: the `count` masked positions with the highest confidence, or the highest `by` [T]."""
        places, best = self.masked.nonzero()[0], np.zeros(len(self.masked), dtype=bool)
        scores = (self.proposals.confidence if by is None else by)[places]
        best[places[(-scores).argsort(kind="stable")[: max(count, 0)]]] = True
        return best

    @property
    def takeable(self) -> Array:
        """[T]: settled positions that may be remasked."""
        return ~self.masked & ~self.fixed


def rank(values: Array, among: Array) -> Array:
    """[T]: 0 for the smallest of `values` [T] at the positions `among` [T], 1 for the next; all others come last."""
    ranks = np.empty(len(values), dtype=np.int64)
    ranks[np.where(among, values, np.inf).argsort(kind="stable")] = np.arange(len(values))
    return ranks


@dataclass(frozen=True, eq=False)
class Decision:
    """Positions [T] to settle, settled ones to remask, settled ones to replace by their proposal; never anchors."""

    settle: Array
    remask: Array | None = None
    edit: Array | None = None


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

    def reach(self, masked: Array) -> int:
        """The number of positions of the `masked` [T] canvas, from the left, whose blocks take part in the next step;
        0: one block. Only called for models that decode several blocks at once.
        """
        return 0

    def decide(self, state: StepState) -> Decision:
        raise NotImplementedError
