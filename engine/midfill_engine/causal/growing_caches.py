"""KV caches that grow as texts are read: in torch's layout, or in stacks of memory that kernels read."""

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from midfill_engine.caches.stores import Prefix
from midfill_engine.loading.runtime import Runtime
from midfill_engine.models.choice import Choice
from midfill_engine.models.packed import Pass, Stacks
from midfill_engine.models.transformer import KeyValues

LEAST_ROOM: Final = 256  # tokens behind a prefix for which a stack has room at first


@dataclass(frozen=True)
class LaidRows:
    """Rows to compute: `ids` and `positions` [T], and an `attention_mask` [T, kept + T] of the kept tokens and the rows
    that each row sees. Where a cache or a prefix has first tokens that all rows see, the mask leaves these out.
    """

    ids: Tensor
    positions: Tensor
    attention_mask: Tensor
    choice: Choice | None = None


class GrowingCache:
    """A KV cache of `length` tokens, a prefix included; its memory may have room for more."""

    length: int

    def grow(self, count: int) -> int:
        """Keeps `count` more tokens, which a pass wrote; returns the place of the first one."""
        self.length += count
        return self.length - count


class TorchCache(GrowingCache):
    """A KV cache that grows in place, because concatenating it in every step took half of the step's time."""

    num_shown = 0  # tokens that all rows see and that the masks given to `lay` leave out

    def __init__(self, keys_values: KeyValues) -> None:
        keys, _ = keys_values[0]
        self.length = keys.shape[2]
        self._memory = keys_values

    @classmethod
    def empty(cls, runtime: Runtime) -> "TorchCache":
        shape = runtime.loaded.config.transformer
        dtype = runtime.loaded.model.transformer.dtype
        sizes = (1, shape.num_kv_heads, 0, shape.head_dim)
        none = torch.empty(sizes, dtype=dtype, device=runtime.device)
        return cls([(none, none)] * shape.num_layers)

    @property
    def keys_values(self) -> KeyValues:
        return cut(self._memory, self.length)

    def with_room(self, count: int, spare: int = 0) -> KeyValues:
        """The KV cache, in memory with room for `count` more tokens; if it must be copied, for `spare` more."""
        length = self.length
        keys, _ = self._memory[0]
        capacity = keys.shape[2]
        if length + count > capacity:
            more = count + spare
            grown = []
            for keys, values in self._memory:
                grown_keys = _with_room(keys, length, more)
                grown_values = _with_room(values, length, more)
                grown.append((grown_keys, grown_values))
            self._memory = grown
        return self.keys_values

    def read(self, ids: tuple[int, ...], num_unread: int) -> Pass:
        """The pass that reads the next `ids` of a prompt and wants the last one; makes room for all unread tokens."""
        start, size = self.length, len(ids)
        every = torch.ones(size, start + size, dtype=torch.bool)
        past = self.with_room(num_unread)
        return Pass(*_lay_part(ids, start), past, every.tril(start), grows=True)

    def lay(self, rows: LaidRows, spare: int) -> Pass:
        """The pass over these rows, which wants all of them; memory that must grow gets room for `spare` more."""
        size = len(rows.ids)
        past = self.with_room(size, spare)
        all_rows = torch.arange(size)
        return Pass(rows.ids, rows.positions, all_rows, past, rows.attention_mask, grows=True, choice=rows.choice)

    def keep(self, ids: tuple[int, ...], next_logs: Tensor) -> Prefix:
        """What was read of a prompt: `ids`, and the log-probabilities `next_logs` [V] of the token after them."""
        return Prefix(ids, self.keys_values, next_logs)


class PromptStack(GrowingCache):
    """A prompt that is being read into a stack with room for all its `size` tokens; the first ones may be `cached`."""

    def __init__(self, runtime: Runtime, size: int, cached: Tensor | None) -> None:
        self._stack = make_stack(runtime, size)
        self.length = 0
        if cached is not None:
            self.length = cached.shape[3]
            copied = cut_stack(self._stack, 0, self.length)
            copied.copy_(cached)

    def read(self, ids: tuple[int, ...], num_unread: int) -> Pass:
        """The same as `TorchCache.read`, but there is room already."""
        start, size = self.length, len(ids)
        every = torch.ones(size, size, dtype=torch.bool)
        past = cut_stack(self._stack, 0, start)
        room = cut_stack(self._stack, start, start + size)
        return Pass(*_lay_part(ids, start), attention_mask=every.tril(), stacks=Stacks(past, room=room))

    def keep(self, ids: tuple[int, ...], next_logs: Tensor) -> Prefix:
        stack = cut_stack(self._stack, 0, self.length)
        keys_values = []
        for keys, values in stack:
            keys_values.append((keys[None], values[None]))
        return Prefix(ids, keys_values, next_logs, stack)


class TailStack(GrowingCache):
    """Tokens behind a prefix, in a stack of their own, because many beams share the prefix's stack."""

    def __init__(self, runtime: Runtime, prefix: Tensor) -> None:
        self._runtime = runtime
        self._prefix = prefix
        self._stack = cut_stack(prefix, 0, 0)
        self.length = self.num_shown = prefix.shape[3]

    def lay(self, rows: LaidRows, spare: int) -> Pass:
        """The same as `TorchCache.lay`, but memory that must grow doubles, whatever is `spare`."""
        size = len(rows.ids)
        num_kept = self.length - self.num_shown
        end = num_kept + size
        tail = cut_stack(self._stack, 0, num_kept)
        if end > self._stack.shape[3]:
            capacity = max(LEAST_ROOM, 2 * end)
            self._stack = make_stack(self._runtime, capacity)
            grown_tail = cut_stack(self._stack, 0, num_kept)
            tail = grown_tail.copy_(tail)
        room = cut_stack(self._stack, num_kept, end)
        stacks = Stacks(self._prefix, tail, room)
        all_rows = torch.arange(size)
        return Pass(
            rows.ids, rows.positions, all_rows, attention_mask=rows.attention_mask, choice=rows.choice, stacks=stacks
        )


def open_prompt(runtime: Runtime, entry: Prefix | None, num_cached: int, size: int) -> TorchCache | PromptStack:
    """The KV cache for a prompt of `size` tokens, whose first `num_cached` ones are in `entry`."""
    if runtime.reads_stacks and entry is not None:
        cached = cut_stack(_stack_of(entry), 0, num_cached)
        return PromptStack(runtime, size, cached)
    if runtime.reads_stacks:
        return PromptStack(runtime, size, None)
    if entry is not None:
        return TorchCache(cut(entry.keys_values, num_cached))
    return TorchCache.empty(runtime)


def open_tail(runtime: Runtime, prefix: Prefix) -> TorchCache | TailStack:
    """The KV cache for tokens behind a prefix, which it includes."""
    if runtime.reads_stacks:
        return TailStack(runtime, _stack_of(prefix))
    return TorchCache(prefix.keys_values)


def lay_behind(runtime: Runtime, prefix: Prefix, rows: LaidRows, wanted: Tensor) -> Pass:
    """The pass over rows behind a prefix that are not kept. All rows see the prefix; their attention mask [T, T] says
    which of the rows each one sees. `wanted` [M] are the indices of the rows whose states it returns.
    """
    ids = rows.ids
    if runtime.reads_stacks:
        stacks = Stacks(_stack_of(prefix))
        return Pass(ids, rows.positions, wanted, attention_mask=rows.attention_mask, choice=rows.choice, stacks=stacks)
    num_past = len(prefix.ids)
    sees_prefix = torch.ones(len(ids), num_past, dtype=torch.bool)
    attention_mask = torch.cat((sees_prefix, rows.attention_mask), dim=1)
    return Pass(ids, rows.positions, wanted, prefix.keys_values, attention_mask, choice=rows.choice)


def make_stack(runtime: Runtime, size: int) -> Tensor:
    """Memory for `size` tokens, [L, 2, K, size, E]."""
    shape = runtime.loaded.config.transformer
    dtype = runtime.loaded.model.transformer.dtype
    sizes = (shape.num_layers, 2, shape.num_kv_heads, size, shape.head_dim)
    return torch.empty(sizes, dtype=dtype, device=runtime.device)


def cut_stack(stack: Tensor, start: int, end: int) -> Tensor:
    """The tokens of a stack from `start` up to `end`, as a view of its memory."""
    return stack[:, :, :, start:end]


def cut(keys_values: KeyValues, length: int) -> KeyValues:
    """The keys and values of the first `length` tokens, as views."""
    return [(keys.narrow(2, 0, length), values.narrow(2, 0, length)) for keys, values in keys_values]


def _stack_of(prefix: Prefix) -> Tensor:
    assert prefix.stack is not None, "read into a stack"
    return prefix.stack


def _lay_part(ids: tuple[int, ...], start: int) -> tuple[Tensor, Tensor, Tensor]:
    """The `ids` of a part of a prompt, their positions from `start` on, and the wanted row: the last one."""
    size = len(ids)
    return torch.tensor(ids), torch.arange(start, start + size), torch.tensor([size - 1])


def _with_room(part: Tensor, length: int, more: int) -> Tensor:
    """A copy of the first `length` tokens of `part` [1, K, L, E], with room for `more`."""
    size, heads, _, depth = part.shape
    room = length + more
    grown = part.new_empty((size, heads, room, depth))
    grown[:, :, :length] = part[:, :, :length]
    return grown
