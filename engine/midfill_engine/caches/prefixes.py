"""KV caches of causally encoded texts, shared by all requests that begin with the same tokens. Knows ids, no text.

A token's keys depend only on the tokens before it, so the cache of a common prefix is exact for every request.
"""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from midfill_engine.models.transformer import KeyValues

MAX_STORE_BYTES: Final = 64 * 1024 * 1024
MAX_PREFIXES: Final = 16


@dataclass(frozen=True)
class Prefix:
    """Keys and values [1, K, P, E] per layer of the tokens `ids` [P], and the state [1, D] of the last one."""

    ids: tuple[int, ...]
    keys_values: KeyValues
    state: Tensor

    @property
    def num_bytes(self) -> int:
        return sum(key.nbytes + value.nbytes for key, value in self.keys_values)


class PrefixStore:
    """Drops the least recently used beyond its limits. Not thread-safe."""

    def __init__(self, max_bytes: int = MAX_STORE_BYTES, max_prefixes: int = MAX_PREFIXES) -> None:
        self._max_bytes, self._max_prefixes = max_bytes, max_prefixes
        self._entries: OrderedDict[tuple[int, ...], Prefix] = OrderedDict()

    def find(self, ids: tuple[int, ...]) -> tuple[int, Prefix | None]:
        """The longest cached prefix of `ids`: its length and its entry."""
        best, found = 0, None
        for entry in self._entries.values():
            length = count_common(ids, entry.ids)
            if length > best:
                best, found = length, entry
        if found is not None:
            self._entries.move_to_end(found.ids)
        return best, found

    def put(self, prefix: Prefix) -> None:
        """Replaces an entry that is a prefix of this one."""
        for ids in [ids for ids in self._entries if prefix.ids[: len(ids)] == ids]:
            del self._entries[ids]
        self._entries[prefix.ids] = prefix
        while len(self._entries) > self._max_prefixes or self.num_bytes > self._max_bytes:
            self._entries.popitem(last=False)

    @property
    def num_bytes(self) -> int:
        return sum(entry.num_bytes for entry in self._entries.values())

    def clear(self) -> None:
        self._entries.clear()


def count_common(first: tuple[int, ...], second: tuple[int, ...]) -> int:
    """Length of the common prefix."""
    size = min(len(first), len(second))
    differs = (torch.tensor(first[:size]) != torch.tensor(second[:size])).nonzero()
    return int(differs[0]) if len(differs) else size
