"""The context's KV cache for sequences with holes of other lengths, as a length search tries them."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from midfill_engine.caches.base import KeptKeys
from midfill_engine.models.transformer import KeyValues, TransformerConfig, rotary_tables, rotate


@dataclass(frozen=True)
class ContextKeys:
    """Keys and values [1, K, C, E] per layer of C context tokens, computed at `positions` [C]."""

    layers: KeyValues
    positions: Tensor

    def at(self, positions: Tensor, ids: Tensor, config: TransformerConfig, *, with_room: bool = False) -> KeptKeys:
        """The cache for a sequence with tokens `ids` [T], the first C of them at `positions` [C].

        Rotary keys are rotated to their new positions, which is exact. That they attended to a hole of another length
        is not undone. `with_room` allocates room for all T positions.
        """
        moved, num = positions - self.positions, len(positions)
        layers = _turned(self.layers, moved, config) if bool(moved.any()) else self.layers
        kept = KeptKeys()
        kept.reset(len(ids))
        if with_room:
            room = (0, 0, 0, len(ids) - num)
            layers = [(F.pad(key, room), F.pad(value, room)) for key, value in layers]
        kept.layers = layers
        kept.kept[:num] = True
        kept.tokens[:num] = ids[:num]
        return kept


def _turned(layers: KeyValues, moved: Tensor, config: TransformerConfig) -> KeyValues:
    """Copies only the keys that moved."""
    first = int(moved.nonzero()[0])
    device = layers[0][0].device
    tables = rotary_tables(moved[None, first:].to(device), config, torch.float32)
    return [
        (torch.cat((key[:, :, :first], rotate(key[:, :, first:].float(), *tables).to(key.dtype)), dim=2), value)
        for key, value in layers
    ]
