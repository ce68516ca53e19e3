"""Packs rows into tables of one length, and makes their attention masks. Knows positions; no text, no model."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from training.data.rows import Row

NOWHERE: Final = -1  # the row of padding
LEAD, CAUSAL, MASKED = 0, 1, 2
ROUNDED: Final = 64  # lengths of rows side by side are multiples


@dataclass(frozen=True)
class Packed:
    """Concatenated rows, padded to T positions; or, side by side, B rows without branches of at most L positions.

    `asked` are positions (T, or B L) whose next tokens are `targets`; a weight of 0 marks padding.
    """

    ids: Tensor  # [T] or [B, L]
    positions: Tensor  # [T] or [B, L]; the four below are empty for rows side by side
    rows: Tensor  # [T], NOWHERE for padding
    branches: Tensor  # [T], 0 in a context
    ends: Tensor  # [T], the end of the context that a position sees
    copies: Tensor  # [T], of a branch's tokens: LEAD, CAUSAL or MASKED
    asked: Tensor  # [A]
    targets: Tensor  # [A]
    weights: Tensor  # [A]

    @property
    def is_plain(self) -> bool:
        """True if every row is causal by itself: rows without branches, side by side."""
        return self.ids.dim() == 2

    @property
    def sees(self) -> Callable[[Tensor, Tensor], Tensor]:
        """Maps two broadcastable tensors of positions to true where the first position attends to the second."""
        rows, branches, ends, copies = self.rows, self.branches, self.ends, self.copies

        def sees(query: Tensor, key: Tensor) -> Tensor:
            of_context = (branches[key] == 0) & (key < ends[query])
            from_left = (copies[query] != MASKED) & (copies[key] != MASKED) & (key <= query)
            masked = (copies[query] == MASKED) & (copies[key] != CAUSAL)
            of_branch = (branches[query] > 0) & (branches[query] == branches[key]) & (from_left | masked)
            return ((rows[query] == rows[key]) & (of_context | of_branch)) | (query == key)

        return sees

    def mask(self) -> Tensor:
        """The attention mask [T, T], true where the row's position attends to the column's."""
        places = torch.arange(len(self.ids), device=self.ids.device)
        return self.sees(places[:, None], places[None])

    def to(self, device: torch.device) -> "Packed":
        return Packed(**{name: value.to(device, non_blocking=True) for name, value in vars(self).items()})


def size_of(row: Row, masked: bool) -> int:
    return len(row.context) + sum(len(branch.lead) + (1 + masked) * len(branch.ids) for branch in row.branches)


def pack_rows(
    rows: Sequence[Row], rng: np.random.Generator, mask_id: int | None = None, length: int | None = None
) -> Packed:
    """Concatenates rows, padded to `length` if it is given; with a `mask_id` adds a copy of each branch's ids that are
    masked by it.
    """
    places: list[tuple[int, int, int, int, int, int]] = []
    asked: list[tuple[int, int, float]] = []
    for number, row in enumerate(rows):
        first = len(places)
        for place, token in enumerate(row.context):
            places.append((token, place, number, 0, first + place + 1, LEAD))
            if place:
                asked.append((first + place - 1, token, row.weights[place]))
        for index, branch in enumerate(row.branches, 1):
            end, behind = first + branch.start, branch.start + len(branch.lead)
            for place, token in enumerate((*branch.lead, *branch.ids), branch.start):
                if place >= behind:
                    asked.append((len(places) - 1, token, 1.0))
                places.append((token, place, number, index, end, LEAD if place < behind else CAUSAL))
            hidden = () if mask_id is None else hide(len(branch.ids), rng)
            for place, (token, is_hidden) in enumerate(zip(branch.ids, hidden, strict=False), behind):
                if is_hidden:
                    asked.append((len(places), token, 1.0))
                places.append(
                    (mask_id if is_hidden and mask_id is not None else token, place, number, index, end, MASKED)
                )
    if length is not None:  # every length is one that a compiled graph knows
        places += [(0, 0, NOWHERE, 0, 0, LEAD)] * (length - len(places))
        asked += [(0, 0, 0.0)] * (length - len(asked))
    table, columns = np.array(places, np.int64).T.copy(), zip(*asked, strict=True)
    return Packed(*map(torch.from_numpy, table), *map(torch.tensor, columns))


def padded_length(row: Row) -> int:
    """The positions of a row without branches beside others."""
    return -(-len(row.context) // ROUNDED) * ROUNDED


def stack_rows(rows: Sequence[Row]) -> Packed:
    """Rows without branches side by side, padded at their ends, which no other token sees."""
    length = max(map(padded_length, rows))
    ids, empty = np.zeros((len(rows), length), np.int64), torch.zeros(0, dtype=torch.int64)
    for number, row in enumerate(rows):
        ids[number, : len(row.context)] = row.context
    asked = np.concatenate([number * length + np.arange(len(row.context) - 1) for number, row in enumerate(rows)])
    weights = np.concatenate([np.array(row.weights[1:], np.float32) for row in rows])
    positions = torch.arange(length).repeat(len(rows), 1)
    others = map(torch.from_numpy, (asked, ids.reshape(-1)[asked + 1], weights))
    return Packed(torch.from_numpy(ids), positions, empty, empty, empty, empty, *others)


def hide(length: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Selects the tokens to mask in a copy: in 30 % of the copies all, otherwise a random share, at least one."""
    hidden: NDArray[np.bool_] = rng.random(length) < (1.0 if rng.random() < 0.3 else rng.uniform(0.15, 0.95))
    hidden[rng.integers(length)] = True
    return hidden
