"""Memory of keys and values that grows as texts are read: in torch's layout, or in stacks that kernels read."""

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from midfill_engine.caches.stores import Prefix
from midfill_engine.loading.runtime import Runtime
from midfill_engine.models.choice import Choice
from midfill_engine.models.packed import Pass, Stacks
from midfill_engine.models.transformer import KeyValues

LEAST_ROOM: Final = 256  # tokens behind a prefix that a stack begins with


@dataclass(frozen=True)
class Laid:
    """Rows to compute: `ids` and `positions` [T], and a `mask` [T, kept + T] from the first token on that is not shown
    to all rows.
    """

    ids: Tensor
    positions: Tensor
    mask: Tensor
    choice: Choice | None = None


class Growing:
    """Memory of keys and values, of which `length` tokens are in use, a prefix included."""

    length: int

    def grow(self, count: int) -> int:
        """Keeps `count` more tokens, which a pass wrote; returns the position of the first one."""
        self.length += count
        return self.length - count


class Held(Growing):
    """A KV cache that grows in place, because concatenating it in every step took half of the step's time."""

    num_shown = 0  # tokens before the mask of `lay`

    def __init__(self, keys_values: KeyValues) -> None:
        keys, _ = keys_values[0]
        self.length = keys.shape[2]
        self._room = keys_values

    @classmethod
    def empty(cls, runtime: Runtime) -> "Held":
        shape = runtime.loaded.config.transformer
        dtype = runtime.loaded.model.transformer.dtype
        sizes = (1, shape.num_kv_heads, 0, shape.head_dim)
        none = torch.empty(sizes, dtype=dtype, device=runtime.device)
        return cls([(none, none)] * shape.num_layers)

    @property
    def keys_values(self) -> KeyValues:
        return cut(self._room, self.length)

    def with_room(self, count: int, spare: int = 0) -> KeyValues:
        """The KV cache, in memory with room for `count` more tokens; if the memory must grow, also for `spare` more."""
        length = self.length
        keys, _ = self._room[0]
        room = keys.shape[2]
        if length + count > room:
            more = count + spare
            grown = []
            for keys, values in self._room:
                grown_keys = _with_room(keys, length, more)
                grown_values = _with_room(values, length, more)
                grown.append((grown_keys, grown_values))
            self._room = grown
        return self.keys_values

    def read(self, ids: tuple[int, ...], left: int) -> Pass:
        """The pass that reads the next `ids` of a prompt, of which so many are `left`. The last one is wanted."""
        start, size = self.length, len(ids)
        every = torch.ones(size, start + size, dtype=torch.bool)
        past = self.with_room(left)
        return Pass(*_lay_part(ids, start), past, every.tril(start), grows=True)

    def lay(self, rows: Laid, spare: int) -> Pass:
        """The pass over these rows, which all are wanted; where memory must grow, there will be room for more."""
        size = len(rows.ids)
        past = self.with_room(size, spare)
        all_rows = torch.arange(size)
        return Pass(rows.ids, rows.positions, all_rows, past, rows.mask, grows=True, choice=rows.choice)

    def keep(self, ids: tuple[int, ...], state: Tensor) -> Prefix:
        """What was read of a prompt: `ids`, and the `state` of the last one."""
        return Prefix(ids, self.keys_values, state)


class PromptStack(Growing):
    """A prompt that is being read into a stack with room for all of it."""

    def __init__(self, runtime: Runtime, size: int, known: Tensor | None) -> None:
        self._block = make_stack(runtime, size)
        self.length = 0
        if known is not None:
            self.length = known.shape[3]
            kept = cut_stack(self._block, 0, self.length)
            kept.copy_(known)

    def read(self, ids: tuple[int, ...], left: int) -> Pass:
        start, size = self.length, len(ids)
        every = torch.ones(size, size, dtype=torch.bool)
        past = cut_stack(self._block, 0, start)
        room = cut_stack(self._block, start, start + size)
        return Pass(*_lay_part(ids, start), mask=every.tril(), stacks=Stacks(past, room=room))

    def keep(self, ids: tuple[int, ...], state: Tensor) -> Prefix:
        stack = cut_stack(self._block, 0, self.length)
        keys_values = []
        for keys, values in stack:
            keys_values.append((keys[None], values[None]))
        return Prefix(ids, keys_values, state, stack)


class TailStack(Growing):
    """Tokens behind a prefix, in a stack of their own; many beams share the prefix's."""

    def __init__(self, runtime: Runtime, prefix: Tensor) -> None:
        self._runtime = runtime
        self._prefix = prefix
        self._block = cut_stack(prefix, 0, 0)
        self.length = self.num_shown = prefix.shape[3]

    def lay(self, rows: Laid, spare: int) -> Pass:
        size = len(rows.ids)
        num_kept = self.length - self.num_shown
        end = num_kept + size
        tail = cut_stack(self._block, 0, num_kept)
        if end > self._block.shape[3]:
            most = max(LEAST_ROOM, 2 * end)
            self._block = make_stack(self._runtime, most)
            grown_tail = cut_stack(self._block, 0, num_kept)
            tail = grown_tail.copy_(tail)
        room = cut_stack(self._block, num_kept, end)
        stacks = Stacks(self._prefix, tail, room)
        all_rows = torch.arange(size)
        return Pass(rows.ids, rows.positions, all_rows, mask=rows.mask, choice=rows.choice, stacks=stacks)


def open_prompt(runtime: Runtime, entry: Prefix | None, known: int, size: int) -> Held | PromptStack:
    """Memory for a prompt of `size` tokens of which `known` ones were read into `entry`."""
    if runtime.reads_stacks and entry is not None:
        known_stack = cut_stack(_stack_of(entry), 0, known)
        return PromptStack(runtime, size, known_stack)
    if runtime.reads_stacks:
        return PromptStack(runtime, size, None)
    if entry is not None:
        return Held(cut(entry.keys_values, known))
    return Held.empty(runtime)


def open_tail(runtime: Runtime, prefix: Prefix) -> Held | TailStack:
    if runtime.reads_stacks:
        return TailStack(runtime, _stack_of(prefix))
    return Held(prefix.keys_values)


def lay_behind(runtime: Runtime, prefix: Prefix, rows: Laid, wanted: Tensor) -> Pass:
    """The pass over rows behind a prefix that are not kept. All see the prefix, and each other by their mask [T, T]."""
    ids = rows.ids
    if runtime.reads_stacks:
        stacks = Stacks(_stack_of(prefix))
        return Pass(ids, rows.positions, wanted, mask=rows.mask, choice=rows.choice, stacks=stacks)
    num_past = len(prefix.ids)
    sees_prefix = torch.ones(len(ids), num_past, dtype=torch.bool)
    mask = torch.cat((sees_prefix, rows.mask), dim=1)
    return Pass(ids, rows.positions, wanted, prefix.keys_values, mask, choice=rows.choice)


def make_stack(runtime: Runtime, size: int) -> Tensor:
    """Memory for `size` tokens, [L, 2, K, size, E]."""
    shape = runtime.loaded.config.transformer
    dtype = runtime.loaded.model.transformer.dtype
    sizes = (shape.num_layers, 2, shape.num_kv_heads, size, shape.head_dim)
    return torch.empty(sizes, dtype=dtype, device=runtime.device)


def cut_stack(stack: Tensor, start: int, end: int) -> Tensor:
    """The tokens from `start` up to `end`, where they lie."""
    return stack[:, :, :, start:end]


def cut(keys_values: KeyValues, length: int) -> KeyValues:
    """The keys and values of the first `length` tokens."""
    first_tokens = []
    for keys, values in keys_values:
        first_keys = keys[:, :, :length]
        first_values = values[:, :, :length]
        first_tokens.append((first_keys, first_values))
    return first_tokens


def _stack_of(prefix: Prefix) -> Tensor:
    assert prefix.stack is not None, "read into a stack"
    return prefix.stack


def _lay_part(ids: tuple[int, ...], start: int) -> tuple[Tensor, Tensor, Tensor]:
    """The `ids` of a part of a prompt, their positions from `start` on, and the wanted row, its last one."""
    size = len(ids)
    return torch.tensor(ids), torch.arange(start, start + size), torch.tensor([size - 1])


def _with_room(part: Tensor, length: int, more: int) -> Tensor:
    """A copy of the first `length` tokens of `part` [1, K, L, E], with room for `more`."""
    size, heads, _, depth = part.shape
    room = length + more
    grown = part.new_empty((size, heads, room, depth))
    grown[:, :, :length] = part[:, :, :length]
    return grown
