"""Positions, blocks and attention masks of one row of a canvas. Knows ids, no text.

All of it is small and on the host, where numpy takes a third of torch's time for an operation.
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
    """T positions, first the context's: all that does not change while the holes keep their lengths."""

    layout: Layout
    family: Family
    block_size: int = 0

    @cached_property
    def num_context(self) -> int:
        return len(self.layout.context_positions)

    @cached_property
    def positions(self) -> Array:
        """[N, T], all that attention uses: N is 2 if half of the heads count from the right."""
        holes = self.layout.hole_positions.numpy()
        context = self.layout.context_positions.numpy()
        context = np.broadcast_to(context, (len(holes), len(context)))
        return np.concatenate((context, holes), axis=1)

    @cached_property
    def is_hole(self) -> Array:
        """[T]"""
        return np.arange(self.positions.shape[1]) >= self.num_context

    @cached_property
    def is_before_holes(self) -> Array:
        """[T]"""
        places: Array = self.positions[0]
        is_before: Array = places < places[self.num_context :].min()
        return is_before

    @cached_property
    def blocks(self) -> Array:
        """[T]: the number of each position's block; all 0 where attention knows no blocks."""
        places: Array = self.positions[0]
        if self.family.pipelined:
            return np.where(self.is_hole, (places - self.num_context) // self.block_size + 1, 0)
        if self.family.aligned:
            places = places + -self.num_context % self.block_size
        blocks: Array = places // (self.block_size or int(self.positions.max()) + 1)
        return blocks

    @cached_property
    def hole_blocks(self) -> Array:
        """[Th]: the blocks of the holes' positions."""
        return self.blocks[self.num_context :]

    @cached_property
    def last_block(self) -> int:
        return int(self.blocks.max())

    @cached_property
    def _score_rows(self) -> Array:
        """[T]: the position whose state scores each position."""
        places = self.positions[0]
        rows = places - self.family.logit_shift
        if self.family.hybrid:
            rows = rows - ((places - self.num_context) % self.block_size == 0)
        index = np.zeros(int(places.max()) + 1, dtype=np.int64)
        index[places] = np.arange(len(places))
        score_rows: Array = index[np.maximum(rows, 0)]
        return score_rows

    def rows_of_scores(self, targets: Array) -> Array:
        """The positions [M] whose states score `targets` [M]: one earlier if scores are shifted."""
        if not self.family.logit_shift and not self.family.hybrid:
            return targets
        return self._score_rows[targets]

    def for_heads(self, where: Array | slice, num_heads: int) -> Tensor:
        """The positions of `where` [C] in the model's shape: [C], or [H, C] if heads count differently."""
        positions = torch.from_numpy(self.positions[:, where])
        if len(positions) == 1:
            return positions[0]
        return positions.repeat_interleave(num_heads // len(positions), dim=0)


@dataclass(frozen=True, eq=False)
class Sequence:
    """The `ids` [T] at the positions of `frame`. Hybrid models attend causally before the first block with a
    `mask_id`.
    """

    frame: Frame
    ids: Array
    mask_id: int = -1

    def mask(self, queries: Array, keys: Array) -> Tensor | None:
        """[Q, S], true where attention is allowed; None if it is allowed everywhere."""
        frame = self.frame
        if frame.family.attention == "block_causal":
            blocks = frame.blocks
            allowed = blocks[queries][:, None] >= blocks[keys]
            if frame.family.hybrid:
                places = frame.positions[0]
                is_open = blocks[queries][:, None] >= self._first_open_block
                allowed &= is_open | (places[queries][:, None] >= places[keys])
            return torch.from_numpy(allowed)
        if frame.family.attention == "context_frozen" and not frame.is_hole[queries].all():
            allowed = frame.is_hole[queries][:, None] | ~frame.is_hole[keys]
            return None if allowed.all() else torch.from_numpy(allowed)
        return None

    @property
    def _first_open_block(self) -> int:
        """The first block with a mask; the one behind the last block without any."""
        is_masked = self.ids == self.mask_id
        if not is_masked.any():
            return self.frame.last_block + 1
        return int(self.frame.blocks[is_masked].min())
