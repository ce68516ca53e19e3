"""The keys and values of one row, kept between its steps. Knows positions and tensors; not what to compute."""

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

from midfill_engine.models.transformer import KeyValues, TransformerConfig, rotary_tables, rotate


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
            is_first = bool((where == torch.arange(len(where))).all())
            index = slice(len(where)) if is_first else where.to(self.layers[0][0].device)
            self._asked = (where, [(keys[:, :, index], values[:, :, index]) for keys, values in self.layers])
        return self._asked[1]

    def moved(self, by: Tensor, ids: Tensor, config: TransformerConfig, *, with_room: bool) -> "KeptKeys":
        """The cache of another canvas with tokens `ids` [T], the first C of which are this one's context, moved `by`
        [C] positions; `with_room` for the keys of all T.

        Keys are rotated to their new positions, which is exact; that they attended to a hole of another length is not
        undone.
        """
        num, room = len(by), (0, 0, 0, len(ids) - len(by))
        layers = [(keys[:, :, :num], values[:, :, :num]) for keys, values in self.layers]
        layers = _turned(layers, by, config) if bool(by.any()) else layers
        found = KeptKeys()
        found.reset(len(ids))
        found.layers = [(F.pad(key, room), F.pad(value, room)) for key, value in layers] if with_room else layers
        found.kept[:num] = True
        found.tokens[:num] = ids[:num]
        return found


def _turned(layers: KeyValues, by: Tensor, config: TransformerConfig) -> KeyValues:
    """Copies only the keys that moved."""
    first = int(by.nonzero()[0])
    tables = rotary_tables(by[None, first:].to(layers[0][0].device), config, torch.float32)
    return [
        (torch.cat((key[:, :, :first], rotate(key[:, :, first:].float(), *tables).to(key.dtype)), dim=2), value)
        for key, value in layers
    ]
