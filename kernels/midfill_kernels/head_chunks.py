"""Proposals for many rows: the library's product for a chunk of the vocabulary at a time, and one pass over its scores.

Where a row count makes the product bound by arithmetic, the library's is hard to beat; a chunk's scores are small
enough to stay in the cache between the two kernels. Same results as `head.propose`, in another order of sums.
"""

from typing import Final

import torch
import triton
import triton.language as tl
from torch import Tensor

from midfill_kernels.head import NUMBERS, Proposals, Rules, Sampling, absorb, join_pieces, pointers
from midfill_kernels.launch import ceil_div
from midfill_kernels.quantize import Weight

CHUNK_BYTES: Final = 16 * 2**20  # fp32 scores of a chunk; a third of an H100's second-level cache
COLUMN_BLOCK: Final = 1024  # chunks are whole blocks, so their size moves no sum


def propose_by_chunks(
    x: Tensor,
    weight: Weight,
    *,
    sampling: Sampling | None = None,
    rules: Rules | None = None,
    chunk_bytes: int = CHUNK_BYTES,
    column_block: int = COLUMN_BLOCK,
) -> Proposals:
    """As `head.propose`, for a plain `weight`. Extra memory: `chunk_bytes` and 32 bytes a row."""
    assert weight.format == "plain" and x.is_contiguous()
    num_rows, num_columns = x.shape[0], weight.shape[0]
    columns = max(1, chunk_bytes // (4 * num_rows * column_block)) * column_block
    columns = min(columns, ceil_div(num_columns, column_block) * column_block)
    scores = torch.empty(num_rows, columns, dtype=torch.float32, device=x.device)
    numbers = torch.empty(NUMBERS, 1, num_rows, dtype=torch.float32, device=x.device)
    ids = torch.empty(2, 1, num_rows, dtype=torch.int32, device=x.device)
    for first in range(0, num_columns, columns):
        piece = weight.data[first : first + columns]
        chunk = _multiply(x, piece, scores)
        _absorb_chunk[(num_rows,)](
            chunk,
            *pointers(rules, sampling),
            numbers,
            ids,
            num_rows,
            first,
            piece.shape[0],
            chunk.stride(0),
            num_columns,
            OPENS=first == 0,
            RULED=rules is not None,
            SAMPLED=sampling is not None,
            B_COLS=column_block,
            num_warps=8,
        )
    return join_pieces(numbers, ids, sampled=sampling is not None)


def _multiply(x: Tensor, piece: Tensor, scores: Tensor) -> Tensor:
    """x @ piece.T in fp32, [M, columns of the piece]; in `scores` where the device's library can widen as it stores."""
    if x.device.type == "cuda" and x.dtype != torch.float32:
        return torch.mm(x, piece.T, out_dtype=torch.float32)
    return torch.mm(x.float(), piece.float().T, out=scores[:, : piece.shape[0]])


@triton.jit
def _absorb_chunk(
    p_scores,
    p_allowed,
    p_rule,
    p_temperature,
    p_seed,
    p_numbers,
    p_ids,
    num_rows,
    first,
    num_cols,
    row_stride,
    vocabulary,
    OPENS: tl.constexpr,
    RULED: tl.constexpr,
    SAMPLED: tl.constexpr,
    B_COLS: tl.constexpr,
):
    i_row = tl.program_id(0).to(tl.int64)
    o_row = i_row + tl.arange(0, 1)
    if OPENS:
        highest = tl.full((1,), -1e30, tl.float32)
        second = tl.full((1,), -1e30, tl.float32)
        total = tl.zeros((1,), tl.float32)
        weighted = tl.zeros((1,), tl.float32)
        score = tl.full((1,), float("-inf"), tl.float32)
        score_logit = tl.full((1,), -1e30, tl.float32)
        best_id = tl.full((1,), 2147483647, tl.int32)
        score_id = tl.full((1,), 2147483647, tl.int32)
    else:
        highest = tl.load(p_numbers + o_row)
        second = tl.load(p_numbers + num_rows + o_row)
        total = tl.load(p_numbers + 2 * num_rows + o_row)
        weighted = tl.load(p_numbers + 3 * num_rows + o_row)
        score = tl.load(p_numbers + 4 * num_rows + o_row)
        score_logit = tl.load(p_numbers + 5 * num_rows + o_row)
        best_id = tl.load(p_ids + o_row)
        score_id = tl.load(p_ids + num_rows + o_row)
    temperature = total
    seed = o_row
    if SAMPLED:
        temperature = tl.load(p_temperature + o_row)
        seed = tl.load(p_seed + o_row)
    for start in range(0, num_cols, B_COLS):
        o_local = start + tl.arange(0, B_COLS)
        may = o_local < num_cols
        o_col = first + o_local.to(tl.int64)
        logits = tl.load(p_scores + i_row * row_stride + o_local, may, 0.0)
        if RULED:
            rule = tl.load(p_rule + i_row).to(tl.int64)
            may = may & (tl.load(p_allowed + rule * vocabulary + o_col, may, 0) > 0)
        logits = tl.where(may, logits, float("-inf"))[:, None]
        highest, second, total, weighted, best_id, score, score_logit, score_id = absorb(
            logits, o_col.to(tl.int32), highest, second, total, weighted, best_id, score, score_logit, score_id,
            temperature, seed, SAMPLED,
        )  # fmt: skip
    tl.store(p_numbers + o_row, highest)
    tl.store(p_numbers + num_rows + o_row, second)
    tl.store(p_numbers + 2 * num_rows + o_row, total)
    tl.store(p_numbers + 3 * num_rows + o_row, weighted)
    tl.store(p_numbers + 4 * num_rows + o_row, score)
    tl.store(p_numbers + 5 * num_rows + o_row, score_logit)
    tl.store(p_ids + o_row, best_id)
    tl.store(p_ids + num_rows + o_row, score_id)
