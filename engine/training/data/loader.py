"""Prepares batches in other processes, ahead of the trainer. Batch `i` depends on the seed and `i` alone."""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from midfill_engine.tokenizer import Tokenizer
from training.data.pack import Pack, read_pack
from training.data.rows import Batch, Noise, RowShape, collate, draw_example, draw_stream

_WORKER: Final[list[tuple[Pack, Tokenizer]]] = []


class Loader:
    """Serves batches in order. `num_workers` processes each hold the pack; `ahead` batches are in the making."""

    def __init__(self, pack: Path, tokenizer: Path, shape: RowShape, rows: int, seed: int, num_workers: int) -> None:
        self.shape, self.rows, self.seed, self.ahead = shape, rows, seed, 2 + 2 * num_workers
        self.executor = ProcessPoolExecutor(num_workers, get_context("spawn"), _open, (pack, tokenizer))

    def spans(self, first: int, noise: Noise) -> Iterator[Batch]:
        """Diffusion batches from number `first` on, for ever."""
        waiting: deque[Future[Batch]] = deque()
        for index in range(first, 2**62):
            waiting.append(self.executor.submit(_spans, self.shape, self.rows, noise, (self.seed, index)))
            if len(waiting) > self.ahead:
                yield waiting.popleft().result()

    def streams(self, first: int, rows: int) -> Iterator[NDArray[np.int64]]:
        """`rows` rows [B, T + 1] for the causal stage from number `first` on, for ever."""
        waiting: deque[Future[NDArray[np.int64]]] = deque()
        for index in range(first, 2**62):
            waiting.append(self.executor.submit(_streams, self.shape, rows, (self.seed, index)))
            if len(waiting) > self.ahead:
                yield waiting.popleft().result()

    def close(self) -> None:
        self.executor.shutdown(wait=True, cancel_futures=True)


def _open(pack: Path, tokenizer: Path) -> None:
    _WORKER.append((read_pack(pack, "train"), Tokenizer.read(tokenizer)))


def _spans(shape: RowShape, rows: int, noise: Noise, seed: tuple[int, int]) -> Batch:
    pack, tokenizer = _WORKER[0]
    rng = np.random.default_rng(seed)
    return collate([draw_example(pack, tokenizer, shape, rng) for _ in range(rows)], shape, noise, rng)


def _streams(shape: RowShape, rows: int, seed: tuple[int, int]) -> NDArray[np.int64]:
    return draw_stream(_WORKER[0][0], shape, rows, np.random.default_rng(seed))
