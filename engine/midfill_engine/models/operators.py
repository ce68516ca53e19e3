"""The heavy operators of a packed step in plain torch. Knows matrices, keys and values; no model, no request."""

from dataclasses import dataclass
from functools import cache
from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor

from midfill_engine.models.moe import ROW_TILE

MAX_FOLDED_ROWS: Final = 16


class OperatorsError(ValueError):
    """These operators cannot compute this model here; the message says why."""


@dataclass(frozen=True)
class Span:
    """One sequence's rows `start`..`end` of a pack, padded with its own rows to `padded_end`. `mask` [T, P + T] is true
    where attention to its past and itself is allowed, None allows all.
    """

    start: int
    end: int
    padded_end: int
    mask: Tensor | None = None


class TorchOperators:
    """Heavy operators of a packed step. A row's bits do not depend on the other rows of the pack: if the device's
    products do not guarantee that, each span gets its own. Span starts and the number of rows are multiples of
    `row_tile`.
    """

    row_tile: int = ROW_TILE

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        self.packs_products = rows_are_independent(device, dtype)

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None, spans: list[Span]) -> Tensor:
        """`x` [R, D], `weight` [N, D] -> [R, N]."""
        if self.packs_products:
            return F.linear(x, weight, bias)
        if len(spans) == 1:  # joining a single product copied it: 3 to 10 % of a step
            return F.linear(x, weight, bias)
        return torch.cat([F.linear(x[span.start : span.padded_end], weight, bias) for span in spans])

    def attention(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        pasts: list[tuple[Tensor, Tensor] | None],
        spans: list[Span],
        asked: list[Span],
    ) -> Tensor:
        """`query` [A, H, E], `key` and `value` [R, K, E] -> [A, H, E]; each of `asked` attends to its past and its
        span. `asked` is `spans` if all rows ask, otherwise the spans of the rows that do, with their masks.
        """
        mixed = torch.zeros_like(query)
        for span, rows, past in zip(spans, asked, pasts, strict=True):
            q = query[rows.start : rows.end].transpose(0, 1)[None]
            k, v = (part[span.start : span.end].transpose(0, 1)[None] for part in (key, value))
            if past is not None:
                k, v = torch.cat((past[0], k), dim=2), torch.cat((past[1], v), dim=2)
            mixed[rows.start : rows.end] = attend_in_groups(q, k, v, rows.mask)[0].transpose(0, 1)
        return mixed


def attend_in_groups(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    """`query` [1, H, T, E], `key` and `value` [1, K, L, E], `mask` [T, L] -> [1, H, T, E].

    Folds the heads that share keys into rows if there are few rows: with 5 rows and 1,000 keys a third of the time on a
    CPU.
    """
    num_heads, num_groups, num_rows = query.shape[1], key.shape[1], query.shape[2]
    if num_heads == num_groups or num_rows > MAX_FOLDED_ROWS or query.device.type != "cpu":
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, enable_gqa=num_heads != num_groups)
    folded = query.reshape(1, num_groups, -1, query.shape[3])
    repeated = None if mask is None else mask.repeat(num_heads // num_groups, 1)
    return F.scaled_dot_product_attention(folded, key, value, attn_mask=repeated).view(query.shape)


@cache
def rows_are_independent(device: torch.device, dtype: torch.dtype) -> bool:
    """True if a row of a matrix product has the same bits whatever the number of rows, in multiples of 16."""
    generator = torch.Generator().manual_seed(0)
    for dim, width in ((64, 272), (256, 1024), (896, 512)):
        weight, x = (torch.randn(size, dim, generator=generator).to(device, dtype) for size in (width, 20 * ROW_TILE))
        whole = F.linear(x, weight)
        for num_rows in (ROW_TILE, 2 * ROW_TILE, 5 * ROW_TILE, 8 * ROW_TILE):
            if not torch.equal(F.linear(x[-num_rows:], weight), whole[-num_rows:]):
                return False
    return True
