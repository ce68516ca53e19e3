"""Prepares the rows of steps, optionally in worker processes. Step `i` depends on seed, `i` and the sets present."""

import os
import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from training.data.cutter import Cutter
from training.data.pack import Pack, read_pack, sets_of
from training.data.packing import Packed, pack_rows, padded_length, size_of, stack_rows
from training.data.rows import Row, RowShape, draw_row

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Batching:
    """A step has rows of at least `step_tokens` tokens; each row is computed alone, or, with a `pack_length`, packed
    with others into tables of that length.
    """

    step_tokens: int
    pack_length: int = 0


@dataclass
class Source:
    """Makes steps; reads the pack again when it has more sets."""

    folder: Path
    cutter: Cutter
    shape: RowShape
    batching: Batching
    seed: int
    _sets: tuple[Path, ...] = ()
    _pack: Pack | None = None

    def make(self, index: int) -> list[Packed]:
        rng = np.random.default_rng((self.seed, index))
        pack, rows, total = self.refresh(), [], 0
        while total < self.batching.step_tokens:
            rows.append(draw_row(pack, self.cutter, self.shape, rng))
            total += size_of(rows[-1], self.shape.masked)
        mask_id = self.cutter.sentinels[-1] if self.shape.masked else None
        return pack_all(rows, mask_id, self.batching.pack_length, rng)

    def make_arrays(self, index: int) -> list[Arrays]:
        return [{name: value.numpy() for name, value in vars(packed).items()} for packed in self.make(index)]

    def refresh(self) -> Pack:
        present = tuple(sets_of(self.folder, "train"))
        if self._pack is None or present != self._sets:
            self._pack, self._sets = read_pack(self.folder, "train", self.cutter), present
        return self._pack


def pack_all(rows: list[Row], mask_id: int | None, length: int, rng: np.random.Generator) -> list[Packed]:
    """Tables of at most `length` positions: rows without branches side by side, sorted by length; others in one line.
    Each row alone if `length` is 0.
    """
    if not any(row.branches for row in rows):
        return [stack_rows(group) for group in _group(sorted(rows, key=lambda row: -len(row.context)), length)]
    if not length:
        return [pack_rows([row], rng, mask_id) for row in rows]
    packs: list[list[Row]] = []
    left = 0
    for row in rows:
        size = size_of(row, mask_id is not None)
        if size > left:
            packs.append([])
            left = length
        packs[-1].append(row)
        left -= size
    return [pack_rows(rows_of_pack, rng, mask_id, length) for rows_of_pack in packs]


def _group(rows: list[Row], length: int) -> Iterator[list[Row]]:
    """Rows of falling length, as many as fit side by side."""
    while rows:
        count = max(1, length // padded_length(rows[0]))
        yield rows[:count]
        rows = rows[count:]


_SOURCE: Final[list[Source]] = []


class Loader:
    """Yields steps in order, made here or ahead of time by `num_workers` processes that each hold the pack."""

    def __init__(self, source: Source, num_workers: int) -> None:
        self.source, self.ahead = source, 2 + 2 * num_workers
        self.executor = (
            ProcessPoolExecutor(num_workers, get_context("spawn"), _open, (source,)) if num_workers else None
        )

    def steps(self, first: int) -> Iterator[list[Packed]]:
        """All steps from number `first`, without end."""
        if self.executor is None:
            yield from map(self.source.make, range(first, 2**62))
            return
        waiting: deque[Future[list[Arrays]]] = deque()
        for index in range(first, 2**62):
            waiting.append(self.executor.submit(_make, index))
            if len(waiting) > self.ahead:
                made = waiting.popleft().result()
                yield [Packed(**{name: torch.from_numpy(value) for name, value in arrays.items()}) for arrays in made]

    def close(self) -> None:
        if self.executor is not None:
            self.executor.shutdown(wait=True, cancel_futures=True)


def _open(source: Source) -> None:
    torch.set_num_threads(1)
    threading.Thread(target=_end_with_trainer, daemon=True).start()
    _SOURCE.append(source)


def _end_with_trainer() -> None:
    """Ends a worker with its trainer: a killed trainer sends no message, so workers would hold the pack forever."""
    trainer = parent_process()
    assert trainer is not None
    trainer.join()
    os._exit(1)


def _make(index: int) -> list[Arrays]:
    return _SOURCE[0].make_arrays(index)
