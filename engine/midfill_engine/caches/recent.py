"""Contexts of the last requests, found again where most of the text is the same. Knows tokens and keys, no model."""

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from midfill_engine.caches.base import MAX_STORE_BYTES
from midfill_engine.caches.held import ContextKeys

MAX_DOCUMENTS: Final = 8
LEAST_SHARE: Final = 0.5
MAX_USES: Final = 16  # then it is computed anew, however little has changed each time
NEAR: Final = 8  # so many tokens on each side of what changed are computed anew too


@dataclass(eq=False)
class _Document:
    ids: Tensor
    keys: ContextKeys
    uses: int = 0

    @property
    def num_bytes(self) -> int:
        return sum(key.nbytes + value.nbytes for key, value in self.keys.layers)


class RecentContexts:
    """The least recently used go beyond the bounds. One thread's."""

    def __init__(self, max_bytes: int = MAX_STORE_BYTES) -> None:
        self._max_bytes = max_bytes
        self._documents: list[_Document] = []

    def find(self, ids: Tensor) -> ContextKeys | None:
        """Keys for `ids` [C], as far as they are an earlier context's at its beginning and its end."""
        matches = [(document, *common_ends(document.ids, ids)) for document in self._documents]
        best = max(matches, key=lambda match: match[1] + match[2], default=None)
        if best is None or best[1] + best[2] < LEAST_SHARE * len(ids):
            return None
        document, head, tail = best
        self._documents.remove(document)
        if document.uses >= MAX_USES:
            return None
        document.uses += 1
        self._documents.append(document)
        return pick(document.keys, len(ids), head, tail)

    def put(self, ids: Tensor, keys: ContextKeys) -> None:
        """In place of what it came from: the same document, as it was found for this request or nearly so."""
        same = [each for each in self._documents if sum(common_ends(each.ids, ids)) >= LEAST_SHARE * len(ids)]
        uses = max((each.uses for each in same), default=0)
        self._documents = [each for each in self._documents if each not in same]
        self._documents.append(_Document(ids, keys, uses))
        while len(self._documents) > MAX_DOCUMENTS or sum(each.num_bytes for each in self._documents) > self._max_bytes:
            self._documents.pop(0)

    def clear(self) -> None:
        self._documents.clear()


def common_ends(old: Tensor, new: Tensor) -> tuple[int, int]:
    """How many tokens are the same at the beginning, and at the end of what is left."""
    shorter = min(len(old), len(new))
    head = _run(old[:shorter] == new[:shorter])
    rest = shorter - head
    tail = _run((old[len(old) - rest :] == new[len(new) - rest :]).flip(0)) if rest else 0
    return head, tail


def _run(same: Tensor) -> int:
    return len(same) if bool(same.all()) else int((~same).nonzero()[0])


def pick(keys: ContextKeys, length: int, head: int, tail: int) -> ContextKeys:
    """The keys of the first `head` and the last `tail` tokens for a context of `length`; nothing is known between."""
    old = len(keys.positions)
    is_known = torch.zeros(length, dtype=torch.bool)
    is_known[:head] = is_known[length - tail :] = True
    if head + tail < length or length != old:
        is_known[max(0, head - NEAR) : length - tail + NEAR] = False
    source = torch.arange(length)
    source[length - tail :] += old - length
    source = source.clamp(max=old - 1)
    layers = [(key[:, :, source], value[:, :, source]) for key, value in keys.layers]
    return ContextKeys(layers, keys.positions[source], is_known)
