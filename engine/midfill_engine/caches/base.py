"""The interface of KV caches: which positions a step computes, while all others reuse earlier keys and values. A cache
is exact if the positions that it skips could not have changed.
"""

from dataclasses import dataclass, field
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from midfill_engine.models.family import Attention
from midfill_engine.models.transformer import KeyValues, TransformerConfig, rotary_tables, rotate


@dataclass(frozen=True)
class StepView:
    """A step over T positions of context and holes; tensors are [T]. `masked` positions are to be settled, `kept` ones
    have cached keys and values, `changed` ones are kept but hold another token now. Block-causal attention computes
    `blocks` up to `active_block`. `age` counts steps since everything was computed.
    """

    is_hole: Tensor
    is_before_holes: Tensor
    masked: Tensor
    kept: Tensor
    changed: Tensor
    blocks: Tensor
    active_block: int
    age: int


class Cache(Protocol):
    """`attentions` are the attention patterns it supports."""

    attentions: frozenset[Attention]
    keeps_rows: bool

    def compute(self, view: StepView) -> Tensor:
        """[T], true for positions to compute in this step. Masked positions of active blocks must be true."""
        ...


@dataclass
class KeptKeys:
    """One row's keys and values, [1, K, T, E] per layer. `tokens` [T] are the tokens they were computed from."""

    layers: KeyValues = field(default_factory=list)
    kept: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.bool))
    tokens: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))
    _asked: tuple[Tensor, KeyValues] | None = None  # the last result, while it is valid

    def reset(self, length: int) -> None:
        self.layers, self._asked = [], None
        self.kept = torch.zeros(length, dtype=torch.bool)
        self.tokens = torch.full((length,), -1)

    def put(self, where: Tensor, ids: Tensor, own: KeyValues) -> None:
        """Stores the keys and values `own` of the positions `where` [C] that hold `ids` [C]."""
        if not self.layers:
            shape = (1, own[0][0].shape[1], len(self.kept), own[0][0].shape[3])
            self.layers = [(key.new_zeros(shape), value.new_zeros(shape)) for key, value in own]
        if self._asked is not None and bool(torch.isin(where, self._asked[0]).any()):
            self._asked = None
        index = where.to(own[0][0].device)
        for (keys, values), (key, value) in zip(self.layers, own, strict=True):
            keys[:, :, index] = key
            values[:, :, index] = value
        self.kept[where] = True
        self.tokens[where] = ids

    def past(self, where: Tensor) -> KeyValues | None:
        """Keys and values of the positions `where` [P]; a view for the first P. The same object until something new is
        stored.
        """
        if not len(where):
            return None
        if self._asked is None or not torch.equal(self._asked[0], where):
            self._asked = (where, self._find(where))
        return self._asked[1]

    def _find(self, where: Tensor) -> KeyValues:
        if bool((where == torch.arange(len(where))).all()):
            return [(keys[:, :, : len(where)], values[:, :, : len(where)]) for keys, values in self.layers]
        index = where.to(self.layers[0][0].device)
        return [(keys[:, :, index], values[:, :, index]) for keys, values in self.layers]


@dataclass(frozen=True)
class ContextKeys:
    """Keys and values [1, K, C, E] per layer of C context tokens, computed at `positions` [C]."""

    layers: KeyValues
    positions: Tensor

    def at(self, positions: Tensor, ids: Tensor, config: TransformerConfig, *, with_room: bool = False) -> KeptKeys:
        """The cache for tokens `ids` [T], the first C of them at `positions` [C]; `with_room` for the keys of all T.
        Keys are rotated to their new positions, which is exact; that they attended to a hole of another length is not
        undone.
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
