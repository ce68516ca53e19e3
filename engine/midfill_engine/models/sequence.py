"""Positions and attention mask of one row of a canvas. Knows ids, no text."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from midfill_engine.models.family import Family, Layout


@dataclass(frozen=True)
class Sequence:
    """T positions, first the context's. Hybrid models attend causally before the first block with a `mask_id`."""

    context_ids: Tensor
    hole_ids: Tensor
    layout: Layout
    family: Family
    block_size: int = 0
    mask_id: int = -1

    @cached_property
    def ids(self) -> Tensor:
        """[T]: the first `num_context` are visible text."""
        return torch.cat((self.context_ids, self.hole_ids))

    @cached_property
    def positions(self) -> Tensor:
        """[N, T], all that attention uses: N is 2 if half of the heads count from the right."""
        context = self.layout.context_positions.expand(len(self.layout.hole_positions), -1)
        return torch.cat((context, self.layout.hole_positions), dim=1)

    @property
    def num_context(self) -> int:
        return len(self.context_ids)

    @property
    def is_hole(self) -> Tensor:
        return torch.arange(len(self.ids)) >= self.num_context

    @property
    def blocks(self) -> Tensor:
        """[T]: the number of each position's block; all 0 where attention knows no blocks."""
        if self.family.pipelined:
            behind = (self.positions[0] - self.num_context) // self.block_size + 1
            return torch.where(self.is_hole, behind, 0)
        if self.family.aligned:
            return (self.positions[0] + -self.num_context % self.block_size) // self.block_size
        size = self.block_size or int(self.positions.max()) + 1
        return self.positions[0] // size

    def rows_of_scores(self, targets: Tensor) -> Tensor:
        """The positions [M] whose states score `targets` [M]: one earlier if scores are shifted."""
        if not self.family.logit_shift and not self.family.hybrid:
            return targets
        place = torch.empty(int(self.positions[0].max()) + 1, dtype=torch.int64)
        place[self.positions[0]] = torch.arange(len(self.ids))
        rows = self.positions[0, targets] - self.family.logit_shift
        if self.family.hybrid:
            rows = rows - ((self.positions[0, targets] - self.num_context) % self.block_size == 0).long()
        return place[rows.clamp(min=0)]

    def mask(self, queries: Tensor, keys: Tensor) -> Tensor | None:
        """[Q, S], true where attention is allowed; None if it is allowed everywhere."""
        if self.family.attention == "block_causal":
            blocks = self.blocks
            allowed = blocks[queries][:, None] >= blocks[keys]
            if not self.family.hybrid:
                return allowed
            is_masked = self.ids == self.mask_id
            first = int(blocks[is_masked].min()) if bool(is_masked.any()) else int(blocks.max()) + 1
            is_open = blocks[queries][:, None] >= first
            return allowed & (is_open | (self.positions[0, queries][:, None] >= self.positions[0, keys]))
        if self.family.attention == "context_frozen":
            is_hole = self.is_hole
            allowed = is_hole[queries][:, None] | ~is_hole[keys]
            return None if bool(allowed.all()) else allowed
        return None

    def for_heads(self, positions: Tensor, num_heads: int) -> Tensor:
        """`positions` [N, T] in the model's shape: [T], or [H, T] if heads count differently."""
        return positions[0] if len(positions) == 1 else positions.repeat_interleave(num_heads // len(positions), dim=0)
