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
    """One sequence's rows `start`..`end` of a pack, and the `padded_end` up to which its rows are its own.

    `past` holds keys and values [1, K, P, E] that stand before its own; `mask` [T, P + T] is true where attention is
    allowed, None allows all.
    """

    start: int
    end: int
    padded_end: int
    mask: Tensor | None = None


class TorchOperators:
    """Heavy operators of a packed step. A row's result does not depend on the other rows of the pack, to the last bit.

    `packs_products` says whether the device's own products keep to that; otherwise each span gets its own. Every span's
    start and the number of rows are multiples of `row_tile`.
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
        """`query` [A, H, E], `key` and `value` [R, K, E] -> [A, H, E]; each of `asked` sees its past and its span.

        `asked` is `spans` where every row asks, otherwise the spans of the rows that do, with their masks.
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

    Of few rows those of all heads that share keys are rows of one head, so that keys are laid out once: of 5 rows
    behind 1,000 keys a third of the time on a CPU, of 64 nothing.
    """
    num_heads, num_groups, num_rows = query.shape[1], key.shape[1], query.shape[2]
    if num_heads == num_groups or num_rows > MAX_FOLDED_ROWS or query.device.type != "cpu":
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, enable_gqa=num_heads != num_groups)
    folded = query.reshape(1, num_groups, -1, query.shape[3])
    repeated = None if mask is None else mask.repeat(num_heads // num_groups, 1)
    return F.scaled_dot_product_attention(folded, key, value, attn_mask=repeated).view(query.shape)


@cache
def rows_are_independent(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether a row of a matrix product has the same bits whatever the number of rows, multiples of 16."""
    generator = torch.Generator().manual_seed(0)
    for dim, width in ((64, 272), (256, 1024), (896, 512)):
        weight, x = (torch.randn(size, dim, generator=generator).to(device, dtype) for size in (width, 20 * ROW_TILE))
        whole = F.linear(x, weight)
        for num_rows in (ROW_TILE, 2 * ROW_TILE, 5 * ROW_TILE, 8 * ROW_TILE):
            if not torch.equal(F.linear(x[-num_rows:], weight), whole[-num_rows:]):
                return False
    return True
