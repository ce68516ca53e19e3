"""From counts to probabilities: contexts of growing length, each with a fitted weight. Knows numbers of words only.

Witten and Bell's idea (1991), a context counts by how determined and how frequent it is, with a fitted curve: a context
seen `total` times with `types` different followers has the share sigmoid(a + b ln(total / types) + c ln(total)).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

import numpy as np
from numpy.typing import NDArray

from midfill_infill.proposals.table import Ints, Numbers, Table
from midfill_infill.proposals.words import EDGE, Lexicon

NUM_COMMON: Final = 12
MAX_ENTRIES: Final = 600  # of a context that stood more often only those with one word more are read
BASE: Final = 1 / 2**16  # of a word that the texts do not have

Floats = NDArray[np.float64]
Gate = tuple[float, float, float]  # a, b, c


@dataclass
class Reader:
    """A table read in one direction with a gate for every order from 1 to DEPTH.

    `unigram` is by number the probability without any context, `commonest` are the words with the largest.
    """

    table: Table
    lexicon: Lexicon
    gates: Sequence[Gate]
    unigram: Floats
    commonest: Numbers

    @classmethod
    def of(cls, table: Table, lexicon: Lexicon, gates: Sequence[Gate]) -> "Reader":
        counts = np.bincount(table.followers, minlength=2)
        counts[EDGE] = 0
        total, types = max(1, int(counts.sum())), int(np.count_nonzero(counts))
        share = gate(gates[0], np.array([total]), np.array([max(1, types)]))[0]
        commonest = np.argsort(-counts, kind="stable")[: min(NUM_COMMON, types)].astype(np.int32)
        return cls(table, lexicon, gates, (1 - share) * BASE + share * counts / total, commonest)

    @property
    def known(self) -> Numbers:
        """The words of the texts."""
        return np.flatnonzero(self.unigram > self.unigram[EDGE]).astype(np.int32)

    def alone(self, words: Numbers) -> Floats:
        """The probability of `words` without any context; those that came after the count are like new ones."""
        return self.unigram[np.where(words < len(self.unigram), words, EDGE)]

    def log_probs(self, contexts: Numbers, targets: Numbers) -> Floats:
        """[Q]: ln of the probability that `targets` [Q] follow `contexts` [Q, DEPTH - 1], nearest first."""
        inner = self.lexicon.hashes[np.column_stack((targets, contexts))]
        probs = self.alone(targets)
        whole = islice(self.table.ranges(inner), 1, None)
        for order, ((starts, ends), (first, last)) in enumerate(
            zip(self.table.ranges(inner[:, 1:]), whole, strict=True), 2
        ):
            totals = ends - starts
            share = gate(self.gates[order - 1], totals, self.table.types(order - 1, starts, totals))
            probs = (1 - share) * probs + share * np.minimum(last - first, totals) / np.maximum(totals, 1)
        return np.log(probs)

    def followers(self, contexts: Numbers) -> tuple[Ints, Numbers, Floats]:
        """Words that stood behind `contexts` [Q, DEPTH - 1], nearest first: their rows, numbers, ln probabilities.

        Where a context is new, the commonest words.
        """
        hashes = self.lexicon.hashes[contexts]
        ranges = list(self.table.ranges(hashes))
        totals = [ends - starts for starts, ends in ranges]
        shares = [
            gate(self.gates[depth], total, self.table.types(depth, starts, total))
            for depth, ((starts, _), total) in enumerate(zip(ranges, totals, strict=True), 1)
        ]
        left = np.cumprod([1 - share for share in shares[::-1]], axis=0)[::-1]  # behind all longer contexts, itself too
        behind = np.concatenate((left[1:], np.ones((1, len(contexts)))))
        is_large = (totals[0] > MAX_ENTRIES) & (totals[1] > 0)
        starts = np.where(is_large, ranges[1][0], ranges[0][0])
        rows, entries = spread(starts, np.minimum(np.where(is_large, totals[1], totals[0]), MAX_ENTRIES))
        amounts = np.zeros(len(rows))
        for (low, high), total, share, rest in zip(ranges, totals, shares, behind, strict=True):
            weight = share * rest / np.maximum(total, 1)
            amounts += np.where((entries >= low[rows]) & (entries < high[rows]), weight[rows], 0.0)
        new = np.flatnonzero(totals[0] == 0)
        rows = np.concatenate((rows, np.repeat(new, len(self.commonest))))
        words = np.concatenate((self.table.followers[entries], np.tile(self.commonest, len(new))))
        amounts = np.concatenate((amounts, np.zeros(len(new) * len(self.commonest))))
        cells, back = np.unique(rows * len(self.unigram) + words, return_inverse=True)
        rows, words = cells // len(self.unigram), (cells % len(self.unigram)).astype(np.int32)
        probs = np.bincount(back, amounts, len(cells)) + left[0][rows] * self.unigram[words]
        is_word = words != EDGE
        return rows[is_word], words[is_word], np.log(probs[is_word])


def gate(weights: Gate, totals: Ints, types: Ints) -> Floats:
    """The share of a context seen `totals` times with `types` followers; 0 where it was never seen."""
    a, b, c = weights
    some = np.maximum(totals, 1)
    score = a + b * np.log(some / np.maximum(types, 1)) + c * np.log(some)
    return np.where(totals > 0, 1 / (1 + np.exp(-score)), 0.0)


def spread(starts: Ints, sizes: Ints) -> tuple[Ints, Ints]:
    """Every entry of the ranges, and the row it belongs to."""
    rows = np.repeat(np.arange(len(starts)), sizes)
    offsets = np.arange(len(rows)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return rows, offsets + np.repeat(starts, sizes)
