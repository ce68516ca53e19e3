"""How often which word stood behind which, for contexts of up to four words. Knows numbers of words, no text.

Every place of the texts is an entry: its context as a 64-bit key with the nearest word on top, sorted. The places that
share a context of any length are then one range, and how often a word stands in that context is the size of another.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

DEPTH: Final = 5  # words of a key
WIDTHS: Final = (20, 11, 11, 11, 11)  # bits of each; a nearer word must not be mistaken

Ints = NDArray[np.int64]
Keys = NDArray[np.uint64]
Numbers = NDArray[np.int32]


@dataclass
class Table:
    """`stream` is all texts with DEPTH edges before, between and behind; the rest has an entry a place behind those.

    `keys` are sorted, `followers` are the words at their `places`.
    """

    stream: Numbers
    keys: Keys
    followers: Numbers
    places: Numbers
    _types: dict[int, Numbers] = field(default_factory=dict)

    @classmethod
    def of(cls, stream: Numbers, hashes: Keys) -> "Table":
        places = np.arange(DEPTH, len(stream), dtype=np.int32)
        keys = keys_at(stream, places, hashes)
        order = sort(keys)
        return cls(stream, keys[order], stream[places[order]], places[order])

    def changed_to(self, stream: Numbers, hashes: Keys) -> "Table":
        """The table of `stream`, where all but a stretch is as before: only that is sorted anew."""
        start = _common(self.stream, stream)
        longest = min(len(stream), len(self.stream)) - start
        end = min(_common(self.stream[::-1], stream[::-1]), longest)
        first, shift = max(start, DEPTH), len(stream) - len(self.stream)
        last = max(first, min(len(stream), len(stream) - end + DEPTH))  # contexts reach DEPTH words back
        kept = (self.places < first) | (self.places >= last - shift)
        places = self.places[kept]
        places = np.where(places < first, places, places + np.int32(shift))
        keys = self.keys[kept]
        new = np.arange(first, last, dtype=np.int32)
        new_keys = keys_at(stream, new, hashes)
        order = sort(new_keys)
        new, new_keys = new[order], new_keys[order]
        where = np.searchsorted(keys, new_keys, "right")
        places = np.insert(places, where, new)
        return Table(stream, np.insert(keys, where, new_keys), stream[places], places)

    def ranges(self, hashes: Keys) -> Iterator[tuple[Ints, Ints]]:
        """For 1, 2, ... D words: the first entry and the end of those whose nearest words have the `hashes` [Q, D]."""
        prefix, rest = np.zeros(len(hashes), np.uint64), 64
        for depth, width in enumerate(WIDTHS[: hashes.shape[1]]):
            prefix = (prefix << np.uint64(width)) | (hashes[:, depth] >> np.uint64(64 - width))
            rest -= width
            low = prefix << np.uint64(rest)
            high = low | np.uint64((1 << rest) - 1)
            yield self.keys.searchsorted(low, "left"), self.keys.searchsorted(high, "right")

    def types(self, depth: int, starts: Ints, sizes: Ints) -> Ints:
        """How many different words stand in each range of `depth` words; counted when first asked for."""
        if depth not in self._types:
            self._types[depth] = np.zeros(len(self.keys) + 1, np.int32)
        known = self._types[depth]
        for start, size in {
            (int(starts[row]), int(sizes[row])) for row in np.flatnonzero((sizes > 1) & (known[starts] == 0))
        }:
            known[start] = len(set(self.followers[start : start + size].tolist()))
        return np.where(sizes > 1, known[starts], sizes)


def sort(keys: Keys) -> Ints:
    """The stable order of `keys`, by 16 bits at a time: numpy sorts such by radix, half the time of all 64 at once."""
    order = np.argsort(keys.astype(np.uint16), kind="stable")
    for shift in (16, 32, 48):
        digits = (keys[order] >> np.uint64(shift)).astype(np.uint16)
        order = order[np.argsort(digits, kind="stable")]
    return order


def make_stream(texts: list[list[Numbers]]) -> Numbers:
    """The words of all texts, which are lists of parts, with edges around each."""
    edge = np.zeros(DEPTH, np.int32)
    return np.concatenate([edge, *(part for text in texts for part in (*text, edge))])


def keys_at(stream: Numbers, places: Numbers, hashes: Keys) -> Keys:
    """The keys of the contexts before `places`."""
    keys = np.zeros(len(places), np.uint64)
    low = int(places[0]) - DEPTH if len(places) else 0
    stretch = hashes[stream[low : low + len(places) + DEPTH]]
    for depth, width in enumerate(WIDTHS, 1):
        nearest = stretch[DEPTH - depth : DEPTH - depth + len(places)]
        keys = (keys << np.uint64(width)) | (nearest >> np.uint64(64 - width))
    return keys


def _common(first: Numbers, second: Numbers) -> int:
    """How many words both begin with."""
    size = min(len(first), len(second))
    differs = first[:size] != second[:size]
    return int(differs.argmax()) if differs.any() else size
