"""Stores KV caches of earlier requests: encoded contexts, and prefixes that were read causally. Knows ids, no text."""

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from os.path import commonprefix
from typing import Final, Generic, TypeVar

from torch import Tensor

from midfill_engine.models.transformer import KeyValues, StackedKeys

PREFIX_BYTES: Final = 64 * 1024 * 1024  # two prompts of the default model


@dataclass(frozen=True)
class EncodedContext:
    """A context's keys and values, and the states [2 G, D] of the tokens at the edges of its G holes."""

    edges: Tensor
    keys_values: KeyValues


@dataclass(frozen=True)
class Prefix:
    """Keys and values [1, K, P, E] per layer of the tokens `ids` [P], and on the CPU the log-probabilities `next_logs`
    [V] of the token after them, because every search and every likelihood begins with these.

    A token's keys depend only on the tokens before it, so they are exact for every text that begins with `ids`. If
    kernels read them, they are views of one `stack` [L, 2, K, P, E].
    """

    ids: tuple[int, ...]
    keys_values: KeyValues
    next_logs: Tensor
    stack: Tensor | None = None


def count_bytes(layers: KeyValues) -> int:
    """Memory of keys and values. Those in two tensors are not taken layer by layer: 32 contexts took 5 ms."""
    pairs = [(layers.keys, layers.values)] if isinstance(layers, StackedKeys) else layers
    return sum(key.nbytes + value.nbytes for key, value in pairs)


Entry = TypeVar("Entry", EncodedContext, Prefix)


@dataclass
class LruStore(Generic[Entry]):
    """Entries by key. It drops the least recently used ones beyond its limits, but never the newest, which alone may be
    larger. Only `num_bytes` is thread-safe.
    """

    max_bytes: int
    max_entries: int
    _entries: OrderedDict[Hashable, Entry] = field(default_factory=OrderedDict)

    @property
    def num_bytes(self) -> int:
        """Memory of all keys and values."""
        return sum(count_bytes(entry.keys_values) for entry in list(self._entries.values()))

    def put(self, key: Hashable, entry: Entry) -> None:
        self._entries[key] = entry
        self._entries.move_to_end(key)
        while len(self._entries) > self.max_entries or (len(self._entries) > 1 and self.num_bytes > self.max_bytes):
            self._entries.popitem(last=False)

    def clear(self) -> None:
        self._entries.clear()


@dataclass
class ContextStore(LruStore[EncodedContext]):
    """Contexts by their ids and positions. `hits` and `misses` count the lookups, for the metrics."""

    max_bytes: int = 256 * 1024 * 1024
    max_entries: int = 32
    hits: int = 0
    misses: int = 0

    def get(self, key: Hashable) -> EncodedContext | None:
        entry = self._entries.get(key)
        self.hits += entry is not None
        self.misses += entry is None
        if entry is not None:
            self._entries.move_to_end(key)
        return entry


@dataclass
class PrefixStore(LruStore[Prefix]):
    max_bytes: int = PREFIX_BYTES
    max_entries: int = 64

    def find(self, ids: tuple[int, ...]) -> tuple[int, Prefix | None]:
        """Returns how many of `ids` are cached, counted from the first, and the entry that begins with most of them; of
        those that begin with all of them the one that has no more.
        """
        max_shared, best_entry = 0, None
        for entry in self._entries.values():
            if entry.ids[: max_shared + 1] == ids[: max_shared + 1]:
                max_shared, best_entry = len(commonprefix([ids, entry.ids])), entry
        if best_entry is not None:
            self._entries.move_to_end(best_entry.ids)
        return max_shared, best_entry

    def add(self, prefix: Prefix) -> None:
        """Stores a prefix in place of those that it begins with."""
        for entry in list(self._entries.values()):
            if prefix.ids[: len(entry.ids)] == entry.ids:
                del self._entries[entry.ids]
        self.put(prefix.ids, prefix)
