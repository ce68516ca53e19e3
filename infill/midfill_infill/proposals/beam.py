"""Whole texts for a gap by a beam over counted words, kept where the text behind the gap follows. Knows numbers only.

After every step each open path tries to arrive: the first words behind the gap are scored as its continuation. The best
arrivals of every length are kept, so that lengths do not crowd each other out.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from midfill_infill.proposals.levels import Floats, Reader
from midfill_infill.proposals.table import DEPTH, Numbers

WIDTH: Final = 16
FOLLOWERS: Final = 12
MAX_WORDS: Final = 32
ARRIVALS: Final = 5  # of every length
REACH: Final = 6  # words behind the gap
DROP: Final = 8.0  # nats that an open path may be behind the best arrival
NEVER: Final = -1e9

Begins = Numbers | None


@dataclass(frozen=True)
class Paths:
    """N open paths of the same length: their `words` [N, length] and ln probabilities."""

    words: Numbers
    scores: Floats


def search(
    reader: Reader, before: Numbers, after: Numbers, breaks: Numbers, may_begin: Begins = None
) -> list[tuple[int, ...]]:
    """Words for the gap between `before` and `after`, best first within a length.

    `breaks` are the words that are line breaks, `may_begin` those with which the gap may begin; None: any.
    """
    paths = Paths(np.zeros((1, 0), np.int32), np.zeros(1))
    found: list[tuple[int, ...]] = []
    best = NEVER
    for step in range(MAX_WORDS):
        paths = _grow(reader, before, paths, may_begin if step == 0 else None, breaks)
        if not len(paths.scores) or np.max(paths.scores) < best - DROP:
            break
        totals = paths.scores + arrive(reader, before, paths.words, after)
        best = max(best, float(np.max(totals)))
        order = np.argsort(-totals, kind="stable")[:ARRIVALS]
        found += [tuple(paths.words[index].tolist()) for index in order if totals[index] > best - 2 * DROP]
    return found


def _grow(reader: Reader, before: Numbers, paths: Paths, may_begin: Begins, breaks: Numbers) -> Paths:
    """The best WIDTH of what follows, at most FOLLOWERS of a path; a path ends with a line break."""
    rows, words, logs = reader.followers(contexts_behind(before, paths.words))
    ended = np.isin(paths.words[rows, 1:][:, -1:], breaks).any(axis=1)
    keep = np.logical_not(ended) if may_begin is None else np.isin(words, may_begin)
    rows, words, scores = rows[keep], words[keep], logs[keep] + paths.scores[rows[keep]]
    order = np.lexsort((words, -scores, rows))
    rows, words, scores = rows[order], words[order], scores[order]
    rank = np.arange(len(rows)) - np.searchsorted(rows, rows)
    keep = rank < FOLLOWERS
    rows, words, scores = rows[keep], words[keep], scores[keep]
    best = np.argsort(-scores, kind="stable")[:WIDTH]
    grown = np.column_stack((paths.words[rows[best]], words[best])).astype(np.int32)
    return Paths(grown, scores[best])


def contexts_behind(before: Numbers, words: Numbers) -> Numbers:
    """[N, DEPTH - 1]: what stands before the end of `before` + `words` [N, length], nearest first."""
    head = np.repeat(before[-(DEPTH - 1) :][None], len(words), axis=0)
    return np.column_stack((head, words))[:, ::-1][:, : DEPTH - 1]


def arrive(reader: Reader, before: Numbers, words: Numbers, after: Numbers) -> Floats:
    """[N]: ln of the probability that the first words of `after` follow each path."""
    reach = after[:REACH]
    if not len(reach):
        return np.zeros(len(words))
    line = np.column_stack((contexts_behind(before, words)[:, ::-1], np.repeat(reach[None], len(words), axis=0)))
    contexts = np.lib.stride_tricks.sliding_window_view(line[:, :-1], DEPTH - 1, axis=1)[:, :, ::-1]
    scores = reader.log_probs(contexts.reshape(-1, DEPTH - 1), np.tile(reach, len(words)))
    totals: Floats = scores.reshape(len(words), -1).sum(axis=1)
    return totals
