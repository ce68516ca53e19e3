"""Keeps the keys and values of one canvas between steps; builds the passes that compute others. Knows no sampler."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from midfill_engine.caches import Cache, StepView
from midfill_engine.models.choice import Choice
from midfill_engine.models.packed import Pass, Result
from midfill_engine.models.sequence import Array, Frame, TokenSequence
from midfill_engine.models.transformer import KeyValues, StackedKeys, TransformerConfig, rotary_tables, rotate


@dataclass(frozen=True, eq=False)
class Selection:
    """The positions `computed` [C] of a pass over T, and the `index` [T] of each position among them, -1 for others.
    The positions `reused` [P] are those whose keys and values are the `past`. It serves several steps, because most
    compute the same positions as the step before.
    """

    frame: Frame
    computed_bytes: bytes  # which of the T positions are computed, to compare with
    computed: Array
    index: Array
    reused: Array
    past: KeyValues | None
    positions: Tensor
    attention_mask: Tensor | None


@dataclass
class CanvasCache:
    """`layers` are the keys and values of T positions, computed from `tokens` [T], which are -1 where there are none.

    `context_keys` is the context's KV cache, if it was computed once; `age` counts steps since everything was computed.
    """

    cache: Cache
    context_keys: KeyValues | None
    config: TransformerConfig
    layers: StackedKeys | None = None
    tokens: Array = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    age: int = 0
    _taken: tuple[Array, KeyValues] | None = None  # the last positions and result of `_take`, while they are valid
    _fresh: tuple[Array, KeyValues] | None = None  # positions and keys of the last pass, not in `layers` yet
    _selection: Selection | None = None  # of the last pass
    _sequence: TokenSequence = field(init=False)  # of the last pass

    def reset(self, length: int) -> None:
        """Forgets everything, for a canvas of `length` positions, context included."""
        self.layers, self._taken, self._fresh, self._selection, self.age = None, None, None, None, 0
        self.tokens = np.full(length, -1)

    def build_pass(
        self,
        sequence: TokenSequence,
        masked: Array,
        active_block: int,
        rows: Array,
        choice: Choice,
        shows_states: bool,
    ) -> Pass:
        """The forward pass that scores the states of the positions `rows` [M]. `masked` [Th] are the holes' positions
        that are to be settled, `active_block` is the last block to compute.
        """
        if len(self.tokens) != len(sequence.ids):
            self.reset(len(sequence.ids))
        compute = self.cache.compute(StepView(sequence, masked, self.tokens, active_block, self.age))
        compute[rows] = True
        self._sequence, computed_bytes = sequence, compute.tobytes()
        selection = self._selection
        if selection is None or selection.frame is not sequence.frame or selection.computed_bytes != computed_bytes:
            selection = self._selection = self._select(sequence, compute, computed_bytes)
        attention_mask = selection.attention_mask
        if sequence.frame.family.hybrid:  # its attention mask depends on the tokens
            attention_mask = sequence.attention_mask(
                selection.computed, np.concatenate((selection.reused, selection.computed))
            )
        return Pass(
            ids=torch.from_numpy(sequence.ids[selection.computed]),
            positions=selection.positions,
            wanted=torch.from_numpy(selection.index[rows]),
            past=selection.past,
            attention_mask=attention_mask,
            keeps=self.cache.keeps_own_keys,
            choice=choice,
            shows_states=shows_states,
        )

    def _select(self, sequence: TokenSequence, compute: Array, computed_bytes: bytes) -> Selection:
        frame, computed = sequence.frame, compute.nonzero()[0]
        if self._fresh is not None:
            is_reused = ~compute[self._fresh[0]]  # the others are computed now, so nobody will read them
            if is_reused.any():
                self._store(*self._fresh, is_reused)
        reused, past = np.arange(frame.num_context), self.context_keys
        if past is None or compute[: frame.num_context].any():
            reused = np.flatnonzero((self.tokens >= 0) & ~compute)
            past = self._take(reused)
        index = np.full(len(compute), -1)
        index[computed] = np.arange(len(computed))
        positions = frame.for_heads(computed, self.config.num_heads)
        attention_mask = sequence.attention_mask(computed, np.concatenate((reused, computed)))
        return Selection(frame, computed_bytes, computed, index, reused, past, positions, attention_mask)

    def _take(self, where: Array) -> KeyValues | None:
        """The stored keys and values of `where` [P], a view for a range; the same object until new ones are stored."""
        if not len(where):
            return None
        if self._taken is None or not np.array_equal(self._taken[0], where):
            assert self.layers is not None
            self._taken = (where, self.layers.take(_index(where, self.layers.keys.device)))
        return self._taken[1]

    def keep(self, result: Result) -> None:
        """Keeps the keys and values that the last pass returned. They are stored only when a later pass reads them,
        because most are computed anew before.
        """
        if result.own is None:
            return
        assert self._selection is not None
        where = self._selection.computed
        self._fresh = (where, result.own)
        self.tokens[where] = self._sequence.ids[where]
        self.age = 1 if len(where) == len(self.tokens) else self.age + 1

    @torch.inference_mode()
    def _store(self, where: Array, own: KeyValues, is_read: Array) -> None:
        """Writes the keys and values `own` of the positions `where` [C] into `layers`, at least those that are read."""
        self._fresh = None
        fresh = StackedKeys.of(own)
        if len(where) == len(self.tokens):
            self.layers, self._taken = fresh, None
            return
        if self.layers is None:
            shape = (*fresh.keys.shape[:3], len(self.tokens), fresh.keys.shape[4])
            self.layers = StackedKeys(fresh.keys.new_zeros(shape), fresh.values.new_zeros(shape))
        if not is_read.all():
            fresh, where = fresh.take(_index(is_read.nonzero()[0], fresh.keys.device)), where[is_read]
        is_stored = np.zeros(len(self.tokens), dtype=bool)
        is_stored[where] = True
        if self._taken is not None and is_stored[self._taken[0]].any():
            self._taken = None
        index = _index(where, fresh.keys.device)
        self.layers.keys[:, :, :, index], self.layers.values[:, :, :, index] = fresh.keys, fresh.values

    def begin_with(self, other: "CanvasCache", sequence: TokenSequence, *, with_room: bool) -> None:
        """Reuses the context's keys of another canvas's last pass; `with_room` for the holes' keys in the same memory.

        Rotating keys to their new positions is exact. But the context had attended to holes of other lengths.
        """
        if other._fresh is not None:
            other._store(*other._fresh, np.ones(len(other._fresh[0]), dtype=bool))
        frame, other_frame = sequence.frame, other._sequence.frame
        num_context, num_positions = frame.num_context, len(sequence.ids)
        shifts = frame.positions[0, :num_context] - other_frame.positions[0, :num_context]
        assert other.layers is not None
        layers = other.layers.take(slice(num_context))
        if shifts.any():
            layers = _rotate_keys(layers, torch.from_numpy(shifts), self.config)
        self.reset(num_positions)
        if with_room:
            padding = (0, 0, 0, num_positions - num_context)
            layers = StackedKeys(F.pad(layers.keys, padding), F.pad(layers.values, padding))
        self.layers = layers
        self.tokens[:num_context] = sequence.ids[:num_context]


def _index(where: Array, device: torch.device) -> Any:
    """The ascending positions `where` [P] as an index of keys on `device`: a range as a slice, because it is faster."""
    first, last = int(where[0]), int(where[-1])
    return slice(first, last + 1) if last - first + 1 == len(where) else torch.from_numpy(where).to(device)


def _rotate_keys(layers: StackedKeys, shifts: Tensor, config: TransformerConfig) -> StackedKeys:
    """Moves C tokens by `shifts` [C] positions, not all of them 0: a rotated copy of the keys, and the same values."""
    first, keys = int(shifts.nonzero()[0]), layers.keys.clone()
    tables = rotary_tables(shifts[None, first:].to(keys.device), config, torch.float32)
    for shifted in keys[:, :, :, first:]:  # layer by layer, because all in fp32 would take as much memory again
        shifted.copy_(rotate(shifted.float(), *tables))
    return StackedKeys(keys, layers.values)
