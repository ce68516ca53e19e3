"""Positions, blocks and attention masks of a context with one canvas. Knows ids, no text.

The arrays are small and on the host, where an operation of numpy takes a third of the time of torch's.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from midfill_engine.models.family import Family, Layout

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Frame:
    """The T positions of a context and a canvas, the context's first. Stays the same while holes keep their lengths."""

    layout: Layout
    family: Family
    block_size: int = 0

    @cached_property
    def num_context(self) -> int:
        return len(self.layout.context_positions)

    @cached_property
    def positions(self) -> Array:
        """[N, T]: the numbers by which attention counts. N is 2 if half of the heads count from the right, else 1."""
        holes = self.layout.hole_positions.numpy()
        context = self.layout.context_positions.numpy()
        context = np.broadcast_to(context, (len(holes), len(context)))
        return np.concatenate((context, holes), axis=1)

    @cached_property
    def is_hole(self) -> Array:
        """[T]: whether a position belongs to a hole."""
        return np.arange(self.positions.shape[1]) >= self.num_context

    @cached_property
    def is_before_holes(self) -> Array:
        """[T]: whether a position is before all holes."""
        from_left: Array = self.positions[0]
        is_before: Array = from_left < from_left[self.num_context :].min()
        return is_before

    @cached_property
    def blocks(self) -> Array:
        """[T]: the index of each position's block; 0 for all if attention knows no blocks."""
        from_left: Array = self.positions[0]
        if self.family.pipelined:
            return np.where(self.is_hole, (from_left - self.num_context) // self.block_size + 1, 0)
        if self.family.aligned:
            from_left = from_left + -self.num_context % self.block_size
        blocks: Array = from_left // (self.block_size or int(self.positions.max()) + 1)
        return blocks

    @cached_property
    def hole_blocks(self) -> Array:
        """[Th]: the block of each position of the holes."""
        return self.blocks[self.num_context :]

    @cached_property
    def last_block(self) -> int:
        return int(self.blocks.max())

    @cached_property
    def score_rows(self) -> Array:
        """[T]: the index of the position whose state scores each position. It is the position before if scores are
        shifted, and for the first position of a block in a hybrid model.
        """
        from_left = self.positions[0]
        if not self.family.logit_shift and not self.family.hybrid:
            return np.arange(len(from_left))
        scoring = from_left - self.family.logit_shift
        if self.family.hybrid:
            scoring = scoring - ((from_left - self.num_context) % self.block_size == 0)
        index_at = np.zeros(int(from_left.max()) + 1, dtype=np.int64)
        index_at[from_left] = np.arange(len(from_left))
        score_rows: Array = index_at[np.maximum(scoring, 0)]
        return score_rows

    @cached_property
    def hole_score_rows(self) -> Array:
        """[Th]: `score_rows` of the positions of the holes."""
        return self.score_rows[self.num_context :]

    def for_heads(self, where: Array | slice, num_heads: int) -> Tensor:
        """The positions at `where` [C] as a `Pass` takes them: [C], or [H, C] if heads count differently."""
        positions = torch.from_numpy(self.positions[:, where])
        if len(positions) == 1:
            return positions[0]
        return positions.repeat_interleave(num_heads // len(positions), dim=0)


@dataclass(eq=False)
class TokenSequence:
    """The `ids` [T] at the positions of `frame`. In a hybrid model the positions before the first block with a
    `mask_id` attend causally.
    """

    frame: Frame
    ids: Array
    mask_id: int = -1

    def attention_mask(self, queries: Array, keys: Array) -> Tensor | None:
        """[Q, S]: true where `queries` [Q] may attend to `keys` [S]; None if all is allowed."""
        frame = self.frame
        if frame.family.attention == "block_causal":
            blocks = frame.blocks
            allowed = blocks[queries][:, None] >= blocks[keys]
            if frame.family.hybrid:
                from_left = frame.positions[0]
                is_open = blocks[queries][:, None] >= self._first_open_block
                allowed &= is_open | (from_left[queries][:, None] >= from_left[keys])
        elif frame.family.attention == "context_frozen" and not frame.is_hole[queries].all():
            allowed = frame.is_hole[queries][:, None] | ~frame.is_hole[keys]
        else:
            return None
        return None if allowed.all() else torch.from_numpy(allowed)

    @property
    def _first_open_block(self) -> int:
        """The first block with a mask; without any mask the one behind the last block."""
        is_masked = self.ids == self.mask_id
        if not is_masked.any():
            return self.frame.last_block + 1
        return int(self.frame.blocks[is_masked].min())
