"""The keys and values of one row, kept between its steps, and the passes that compute the others. Knows no sampler."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from midfill_engine.caches import Cache, StepView
from midfill_engine.models.choice import Choice
from midfill_engine.models.packed import Pass, Result
from midfill_engine.models.sequence import Array, Frame, Sequence
from midfill_engine.models.transformer import KeyValues, StackedKeys, TransformerConfig, rotary_tables, rotate


@dataclass(frozen=True, eq=False)
class Selection:
    """The positions `computed` [C] of a pass over T, and `index` [T], a position's number among them. `rest` [P] are
    those whose keys are the `past`. Steps mostly compute the same as the step before, so it is made once for all.
    """

    frame: Frame
    bits: bytes  # which positions are computed
    computed: Array
    index: Array
    rest: Array
    past: KeyValues | None
    positions: Tensor
    mask: Tensor | None

    def serves(self, frame: Frame, bits: bytes) -> bool:
        """True if it is that of a pass over `frame` that computes the positions of `bits`."""
        return self.frame is frame and self.bits == bits


@dataclass
class RowCache:
    """`layers` are keys and values of T positions, computed from `tokens` [T], -1 where there are none yet.

    `context_keys` is the context's KV cache, if it was computed once; `age` counts steps since everything was computed.
    """

    cache: Cache
    context_keys: KeyValues | None
    config: TransformerConfig
    layers: StackedKeys | None = None
    tokens: Array = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    age: int = 0
    _asked: tuple[Array, KeyValues] | None = None  # the last result of `_past`, while it is valid
    _fresh: tuple[Array, KeyValues] | None = None  # positions and keys of the last pass, not in `layers` yet
    _selection: Selection | None = None  # of the last pass
    _sequence: Sequence = field(init=False)  # of the last pass

    def reset(self, length: int) -> None:
        self.layers, self._asked, self._fresh, self._selection, self.age = None, None, None, None, 0
        self.tokens = np.full(length, -1)

    def build_pass(
        self, sequence: Sequence, masked: Array, active: int, targets: Array, choice: Choice, shows_states: bool
    ) -> Pass:
        """The forward pass that scores the positions `targets` [M]; `masked` [Th] are those of the holes that are to be
        settled, `active` is the last block to compute.
        """
        if len(self.tokens) != len(sequence.ids):
            self.reset(len(sequence.ids))
        kept = self.tokens >= 0
        compute = self.cache.compute(StepView(sequence, masked, kept, self.tokens, active, self.age))
        rows = sequence.frame.rows_of_scores(targets)
        compute[rows] = True
        self._sequence, bits = sequence, compute.tobytes()
        if self._selection is None or not self._selection.serves(sequence.frame, bits):
            self._selection = self._select(sequence, compute, kept, bits)
        chosen = self._selection
        is_hybrid = sequence.frame.family.hybrid  # whose mask depends on the tokens
        mask = (
            sequence.mask(chosen.computed, np.concatenate((chosen.rest, chosen.computed))) if is_hybrid else chosen.mask
        )
        return Pass(
            ids=torch.from_numpy(sequence.ids[chosen.computed]),
            positions=chosen.positions,
            wanted=torch.from_numpy(chosen.index[rows]),
            past=chosen.past,
            mask=mask,
            keeps=self.cache.keeps_rows,
            choice=choice,
            shows_states=shows_states,
        )

    def _select(self, sequence: Sequence, compute: Array, kept: Array, bits: bytes) -> Selection:
        frame, computed = sequence.frame, compute.nonzero()[0]
        if self._fresh is not None and not compute[self._fresh[0]].all():
            self._store(*self._fresh)
        rest, past = np.arange(frame.num_context), self.context_keys
        if past is None or compute[: frame.num_context].any():
            rest = np.flatnonzero(kept & ~compute)
            past = self._past(rest)
        index = np.full(len(compute), -1)
        index[computed] = np.arange(len(computed))
        positions = frame.for_heads(computed, self.config.num_heads)
        mask = sequence.mask(computed, np.concatenate((rest, computed)))
        return Selection(frame, bits, computed, index, rest, past, positions, mask)

    def _past(self, where: Array) -> KeyValues | None:
        """Keys and values of `where` [P], as a view of a range; the same object until new ones are stored."""
        if not len(where):
            return None
        if self._asked is None or not np.array_equal(self._asked[0], where):
            assert self.layers is not None
            self._asked = (where, self.layers.take(_index(where, self.layers.keys.device)))
        return self._asked[1]

    def keep(self, result: Result) -> None:
        """Takes the keys and values that the last pass returned. They are stored when a pass reads them: most are
        computed anew before.
        """
        if result.own is None:
            return
        assert self._selection is not None
        where = self._selection.computed
        self._fresh = (where, result.own)
        self.tokens[where] = self._sequence.ids[where]
        self.age = 1 if len(where) == len(self.tokens) else self.age + 1

    @torch.inference_mode()
    def _store(self, where: Array, own: KeyValues) -> None:
        """Writes the keys and values `own` of the positions `where` [C] into `layers`."""
        self._fresh = None
        if self._asked is not None and np.isin(where, self._asked[0]).any():
            self._asked = None
        fresh = StackedKeys.of(own)
        if self.layers is None and len(where) == len(self.tokens):
            self.layers = fresh
            return
        if self.layers is None:
            shape = (*fresh.keys.shape[:3], len(self.tokens), fresh.keys.shape[4])
            self.layers = StackedKeys(fresh.keys.new_zeros(shape), fresh.values.new_zeros(shape))
        index = _index(where, fresh.keys.device)
        self.layers.keys[:, :, :, index], self.layers.values[:, :, :, index] = fresh.keys, fresh.values

    def begin_with(self, other: "RowCache", sequence: Sequence, *, with_room: bool) -> None:
        """Reuses the context's keys of another canvas's last pass; `with_room` to keep the holes' keys too.

        Rotating keys to their new positions is exact; the effect of attention to a hole of another length remains.
        """
        if other._fresh is not None:
            other._store(*other._fresh)
        frame, there = sequence.frame, other._sequence.frame
        num, room = frame.num_context, (0, 0, 0, len(sequence.ids) - frame.num_context)
        by = frame.positions[0, :num] - there.positions[0, :num]
        assert other.layers is not None
        layers = other.layers.take(slice(num))
        layers = _turned(layers, torch.from_numpy(by), self.config) if by.any() else layers
        self.reset(len(sequence.ids))
        self.layers = StackedKeys(F.pad(layers.keys, room), F.pad(layers.values, room)) if with_room else layers
        self.tokens[:num] = sequence.ids[:num]


def _index(where: Array, device: torch.device) -> Any:
    """The ascending positions `where` [P] as an index of keys on `device`: a range as a slice, which is faster."""
    first, last = int(where[0]), int(where[-1])
    return slice(first, last + 1) if last - first + 1 == len(where) else torch.from_numpy(where).to(device)


def _turned(layers: StackedKeys, by: Tensor, config: TransformerConfig) -> StackedKeys:
    """Rotates keys `by` [C] positions: a copy of them, and the same values."""
    first, keys = int(by.nonzero()[0]), layers.keys.clone()
    tables = rotary_tables(by[None, first:].to(keys.device), config, torch.float32)
    for moved in keys[:, :, :, first:]:  # one after the other: all in fp32 would take as much again
        moved.copy_(rotate(moved.float(), *tables))
    return StackedKeys(keys, layers.values)
