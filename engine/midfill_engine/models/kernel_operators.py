"""The operators of a packed step out of `midfill_kernels`, for a GPU. Knows matrices, keys and values only.

Its products add in an order that does not depend on the number of rows, so whole packs go through at once. Attention
that is masked (block-causal, or shadow rows), or the last layer's of some rows, stays with torch.
"""

from typing import Final

import torch
from torch import Tensor

from midfill_engine.models.operators import Span, TorchOperators
from midfill_kernels.gap_attention import GapSequence, gap_attention, schedule_gaps
from midfill_kernels.matmul import matmul
from midfill_kernels.quantize import pack

MAX_WIDE: Final = 2**24  # sums held in fp32 at once: of all rows' scores there would be gigabytes
MIN_ROWS: Final = 64


class KernelOperators(TorchOperators):
    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None, spans: list[Span]) -> Tensor:
        packed, num_rows = pack(weight, "plain"), max(MIN_ROWS, MAX_WIDE // len(weight))
        parts = [matmul(rows, packed).sum(dim=0) for rows in torch.split(x, num_rows)]  # [R, N] in fp32 each
        return torch.cat([(part if bias is None else part + bias).to(x.dtype) for part in parts])

    def attention(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        pasts: list[tuple[Tensor, Tensor] | None],
        spans: list[Span],
        asked: list[Span],
    ) -> Tensor:
        if asked is not spans or any(span.mask is not None for span in spans):
            return super().attention(query, key, value, pasts, spans, asked)
        own = (key.contiguous(), value.contiguous())
        cache = tuple(
            torch.cat([fresh[:0], *(past[index][0].transpose(0, 1) for past in pasts if past is not None)])
            for index, fresh in enumerate(own)
        )  # [slots, K, E]: a copy, because the requests' keys lie apart
        sequences, slot = [], 0
        for span, past in zip(spans, pasts, strict=True):
            length = 0 if past is None else past[0].shape[2]
            sequences.append(GapSequence(span.end - span.start, slot, length))
            slot += length
            if span.padded_end > span.end:  # rows of padding see each other; nobody reads them
                sequences.append(GapSequence(span.padded_end - span.end, 0, 0))
        schedule = schedule_gaps(sequences, (query.shape[1], key.shape[1]), query.device)
        return gap_attention(query.contiguous(), own, (cache[0], cache[1]), schedule).view(query.shape)
