"""Brings batches to the trainer's device in parts, one batch ahead of the step. Knows arrays and streams; no loss."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from midfill_engine.tokens.special import PAD
from training.data.rows import Batch
from training.objective import TensorBatch, move, to_device


@dataclass(frozen=True)
class Stream:
    """Rows `ids` [B, T + 1] of running text, a part of rows with `num_targets` tokens to predict."""

    ids: Tensor
    num_targets: int


Part = TensorBatch | Stream


def num_rows(batch: Batch | NDArray[np.int64]) -> int:
    return len(batch.context_ids) if isinstance(batch, Batch) else len(batch)


def cut(batch: Batch | NDArray[np.int64], micro_rows: int, device: torch.device) -> list[Part]:
    """The batch as parts of `micro_rows` rows on `device`, whose losses add up to the batch's."""
    slices = [slice(first, first + micro_rows) for first in range(0, num_rows(batch), micro_rows)]
    if isinstance(batch, Batch):
        pieces = [Batch(**{name: value[rows] for name, value in vars(batch).items()}) for rows in slices]
        return [to_device(piece, device, batch) for piece in pieces]
    num_targets = int((batch[:, 1:] != PAD).sum())
    return [Stream(move(torch.from_numpy(batch[rows]), device), num_targets) for rows in slices]


def feed(
    batches: Iterator[Batch | NDArray[np.int64]], micro_rows: int, device: torch.device
) -> Iterator[tuple[int, list[Part]]]:
    """Each batch's number of rows and its parts. On a GPU the next batch is copied while this one's step computes."""
    if device.type != "cuda":
        yield from ((num_rows(batch), cut(batch, micro_rows, device)) for batch in batches)
        return
    copying, waiting = torch.cuda.Stream(device), None  # type: ignore[no-untyped-call]
    for batch in batches:
        with torch.cuda.stream(copying):
            ready, waiting = waiting, (num_rows(batch), cut(batch, micro_rows, device))
        if ready is not None:
            torch.cuda.current_stream(device).wait_stream(copying)
            for part in ready[1]:
                _keep(part, torch.cuda.current_stream(device))
            yield ready


def _keep(part: Part, stream: torch.cuda.Stream) -> None:
    """Without this the memory could be given to the next copy while `stream` still reads it."""
    for value in vars(part).values():
        if isinstance(value, Tensor):
            value.record_stream(stream)
