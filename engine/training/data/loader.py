"""Prepares batches in other processes, ahead of the trainer. Batch `i` depends on seed, `i` and the sets present."""

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from midfill_engine.tokens.tokenizer import Tokenizer
from training.data.fim import draw_fim
from training.data.pack import Pack, read_pack, sets_of
from training.data.rows import Batch, Noise, RowShape, collate, draw_example, draw_stream


class _Worker:
    """What a worker process holds; the pack is read again when it has more sets."""

    def __init__(self, folder: Path, tokenizer: Path) -> None:
        self.folder, self.tokenizer = folder, Tokenizer.read(tokenizer)
        self.sets: list[Path] = []
        self.refresh()

    def refresh(self) -> Pack:
        present = sets_of(self.folder, "train")
        if present != self.sets:
            self.pack, self.sets = read_pack(self.folder, "train"), present
        return self.pack


_WORKER: Final[list[_Worker]] = []
T = TypeVar("T")


class Loader:
    """Serves batches in order. `num_workers` processes each hold the pack; `ahead` batches are in the making."""

    def __init__(self, pack: Path, tokenizer: Path, shape: RowShape, rows: int, seed: int, num_workers: int) -> None:
        self.shape, self.rows, self.seed, self.ahead = shape, rows, seed, 2 + 2 * num_workers
        self.executor = ProcessPoolExecutor(num_workers, get_context("spawn"), _open, (pack, tokenizer))

    def spans(self, first: int, noise: Noise) -> Iterator[Batch]:
        """Diffusion batches from number `first` on, for ever."""
        return self._ahead(first, _spans, self.rows, noise)

    def streams(self, first: int, rows: int) -> Iterator[NDArray[np.int64]]:
        """`rows` rows [B, T + 1] for the causal stage from number `first` on, for ever."""
        return self._ahead(first, _streams, rows)

    def fims(self, first: int, rows: int) -> Iterator[NDArray[np.int64]]:
        """`rows` rows [B, T + 1] for the baseline from number `first` on, for ever: half of them plain streams."""
        return self._ahead(first, _fims, rows)

    def _ahead(self, first: int, prepare: Callable[..., T], *arguments: Any) -> Iterator[T]:
        """What `prepare` makes of the shape, `arguments` and a batch's seed, in order, some batches ahead."""
        waiting: deque[Future[T]] = deque()
        for index in range(first, 2**62):
            waiting.append(self.executor.submit(prepare, self.shape, *arguments, (self.seed, index)))
            if len(waiting) > self.ahead:
                yield waiting.popleft().result()

    def close(self) -> None:
        self.executor.shutdown(wait=True, cancel_futures=True)


def _open(pack: Path, tokenizer: Path) -> None:
    threading.Thread(target=_end_with_trainer, daemon=True).start()
    _WORKER.append(_Worker(pack, tokenizer))


def _end_with_trainer() -> None:
    """A killed trainer tells its workers nothing: without this they would wait, and hold the pack, for ever."""
    trainer = parent_process()
    assert trainer is not None
    trainer.join()
    os._exit(1)


def _spans(shape: RowShape, rows: int, noise: Noise, seed: tuple[int, int]) -> Batch:
    (worker,) = _WORKER
    pack, rng = worker.refresh(), np.random.default_rng(seed)
    examples = [draw_example(pack, worker.tokenizer, shape, rng) for _ in range(rows)]
    return collate(examples, shape, noise, rng)


def _streams(shape: RowShape, rows: int, seed: tuple[int, int]) -> NDArray[np.int64]:
    (worker,) = _WORKER
    return draw_stream(worker.refresh(), shape, rows, np.random.default_rng(seed))


def _fims(shape: RowShape, rows: int, seed: tuple[int, int]) -> NDArray[np.int64]:
    (worker,) = _WORKER
    pack, rng = worker.refresh(), np.random.default_rng(seed)
    streams = draw_stream(pack, shape, rows // 2, rng)
    fims = [draw_fim(pack, worker.tokenizer, shape.computed + 1, rng) for _ in range(rows - len(streams))]
    return np.concatenate((streams, np.stack(fims)))[rng.permutation(rows)]
