"""The keys and values of one row, kept between its steps, and the passes that compute the others. Knows no sampler."""

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

from midfill_engine.caches import Cache, StepView
from midfill_engine.models.choice import Choice
from midfill_engine.models.packed import Pass, Result
from midfill_engine.models.sequence import Sequence
from midfill_engine.models.transformer import KeyValues, TransformerConfig, rotary_tables, rotate


@dataclass
class RowCache:
    """`layers` are keys and values [1, K, T, E] per layer, computed from `tokens` [T], -1 where there are none yet.

    `context_keys` is the context's KV cache, if it was computed once; `age` counts steps since everything was computed.
    """

    cache: Cache
    context_keys: KeyValues | None
    config: TransformerConfig
    layers: KeyValues = field(default_factory=list)
    tokens: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))
    age: int = 0
    _asked: tuple[Tensor, KeyValues] | None = None  # the last result of `_past`, while it is valid
    _sequence: Sequence = field(init=False)  # of the last pass
    _computed: Tensor = field(init=False)  # [C]: positions of the last pass

    def reset(self, length: int) -> None:
        self.layers, self._asked, self.age = [], None, 0
        self.tokens = torch.full((length,), -1)

    def build_pass(self, sequence: Sequence, masked: Tensor, active: int, targets: Tensor, choice: Choice) -> Pass:
        """The forward pass that scores the positions `targets`; `masked` is [T], `active` the last block to compute."""
        if len(self.tokens) != len(sequence.ids):
            self.reset(len(sequence.ids))
        kept = self.tokens >= 0
        view = StepView(
            is_hole=sequence.is_hole,
            is_before_holes=sequence.positions[0] < sequence.positions[0, sequence.num_context :].min(),
            masked=masked,
            kept=kept,
            changed=kept & (self.tokens != sequence.ids),
            blocks=sequence.blocks,
            active_block=active,
            age=self.age,
        )
        rows = sequence.rows_of_scores(targets)
        compute = self.cache.compute(view)
        compute[rows] = True
        self._sequence, self._computed = sequence, compute.nonzero().flatten()
        computed, rest, past = self._computed, torch.arange(sequence.num_context), self.context_keys
        if past is None or bool((computed < sequence.num_context).any()):
            rest = (kept & ~compute).nonzero().flatten()
            past = self._past(rest)
        place = torch.full((len(sequence.ids),), -1)
        place[computed] = torch.arange(len(computed))
        return Pass(
            ids=sequence.ids[computed],
            positions=sequence.for_heads(sequence.positions[:, computed], self.config.num_heads),
            wanted=place[rows],
            past=past,
            mask=sequence.mask(computed, torch.cat((rest, computed))),
            keeps=self.cache.keeps_rows,
            choice=choice,
        )

    def _past(self, where: Tensor) -> KeyValues | None:
        """Keys and values of `where` [P], as a view of a range; the same object until new ones are stored."""
        if not len(where):
            return None
        if self._asked is None or not torch.equal(self._asked[0], where):
            index = _index(where, self.layers[0][0].device)
            self._asked = (where, [(keys[:, :, index], values[:, :, index]) for keys, values in self.layers])
        return self._asked[1]

    def keep(self, result: Result) -> None:
        """Stores the keys and values that the last pass returned."""
        own, where = result.own, self._computed
        if own is None:
            return
        if not self.layers:
            shape = (1, own[0][0].shape[1], len(self.tokens), own[0][0].shape[3])
            self.layers = [(key.new_zeros(shape), value.new_zeros(shape)) for key, value in own]
        if self._asked is not None and bool(torch.isin(where, self._asked[0]).any()):
            self._asked = None
        index = _index(where, own[0][0].device)
        for (keys, values), (key, value) in zip(self.layers, own, strict=True):
            keys[:, :, index] = key
            values[:, :, index] = value
        self.tokens[where] = self._sequence.ids[where]
        self.age = 1 if len(where) == len(self.tokens) else self.age + 1

    def begin_with(self, other: "RowCache", sequence: Sequence, *, with_room: bool) -> None:
        """Reuses the context's keys of another canvas's last pass; `with_room` to keep the holes' keys too.

        Rotating keys to their new positions is exact; the effect of attention to a hole of another length remains.
        """
        num, room = sequence.num_context, (0, 0, 0, len(sequence.ids) - sequence.num_context)
        here, there = (each.positions[0, :num] for each in (sequence, other._sequence))
        layers = [(keys[:, :, :num], values[:, :, :num]) for keys, values in other.layers]
        layers = _turned(layers, here - there, self.config) if bool((here != there).any()) else layers
        self.reset(len(sequence.ids))
        self.layers = [(F.pad(key, room), F.pad(value, room)) for key, value in layers] if with_room else layers
        self.tokens[:num] = sequence.ids[:num]


def _index(where: Tensor, device: torch.device) -> slice | Tensor:
    """The ascending positions `where` [P] as an index of keys on `device`: a range as a slice, which is faster."""
    first, last = int(where[0]), int(where[-1])
    return slice(first, last + 1) if last - first + 1 == len(where) else where.to(device)


def _turned(layers: KeyValues, by: Tensor, config: TransformerConfig) -> KeyValues:
    """Rotates keys `by` [C] positions; copies only those that move."""
    first = int(by.nonzero()[0])
    tables = rotary_tables(by[None, first:].to(layers[0][0].device), config, torch.float32)
    return [
        (torch.cat((key[:, :, :first], rotate(key[:, :, first:].float(), *tables).to(key.dtype)), dim=2), value)
        for key, value in layers
    ]
