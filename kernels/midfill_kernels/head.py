"""From hidden states to predictions: each row's best column (token), its probability and the distribution's entropy.

M rows, V columns, D width. Vocabulary product, softmax and choice are one kernel that never holds scores [M, V]. Online
softmax: arXiv 1805.02867.
"""

from dataclasses import dataclass
from typing import Final

import torch
import triton
import triton.language as tl
from torch import Tensor

from midfill_kernels.launch import is_interpreted
from midfill_kernels.matmul import MAX_ROWS, Tile, add_product, choose_inner, fit_stages, load_inputs

PROGRAMS: Final = 264  # pieces of the vocabulary: two for each of 132 multiprocessors; constant for the order of sums
MIN_ROWS: Final = 32  # of a tile: see `choose_head_tile`
STATE_SIZE: Final = 3  # in fp32, for a row: the highest score, the sums of exp(d) and d * exp(d), d = score - highest


@dataclass(frozen=True)
class TokenPredictions:
    """Per row [M]: `ids` int64, `probability` of that id, `entropy` in nats."""

    ids: Tensor
    probability: Tensor
    entropy: Tensor


@dataclass(frozen=True)
class Rules:
    """The columns that rows may take: `allowed` [rules, V] bool, and each row's rule `of_row` [M] int32, an index."""

    allowed: Tensor
    of_row: Tensor


def predict_tokens_reference(x: Tensor, weight: Tensor, rules: Rules | None = None) -> TokenPredictions:
    """The definition, through scores [M, V] in fp32. Ties go to the lowest id."""
    scores = x.float() @ weight.float().T
    if rules is not None:
        scores = scores.masked_fill(~rules.allowed[rules.of_row.long()], -torch.inf)
    probabilities = scores.softmax(dim=1)
    entropy = torch.special.entr(probabilities).sum(dim=1)
    return TokenPredictions(scores.argmax(dim=1), probabilities.amax(dim=1), entropy)


def choose_head_tile(weight: Tensor, num_rows: int) -> Tile:
    """Like `matmul.choose_tile`; `splits` is the number of vocabulary pieces.

    Every tile has 4 warps, 64 columns and at least 32 rows, because these decide which thread adds what, and so a row's
    bits, which must not depend on the number of rows. (16 rows with rules would differ; `bench.gpu.compile` checks.)
    Such tiles need few registers, so two programs share a multiprocessor: one reads while the other takes its softmax.
    """
    inner = choose_inner(weight.shape[1])
    rows = min(MAX_ROWS, max(MIN_ROWS, triton.next_power_of_2(num_rows)))
    return Tile(64, rows, inner, PROGRAMS, warps=4, stages=fit_stages(weight, 64, rows, inner))


def predict_tokens(
    x: Tensor, weight: Tensor, *, rules: Rules | None = None, tile: Tile | None = None
) -> TokenPredictions:
    """Predictions for normed hidden states `x` [M, D] under the vocabulary matrix `weight` [V, D]. Each row's rule must
    allow a column. Extra memory: 16 bytes for each row and each of the 264 pieces of the vocabulary.
    """
    num_rows, num_columns = x.shape[0], weight.shape[0]
    tile = tile or choose_head_tile(weight, num_rows)
    assert x.is_contiguous() and weight.is_contiguous() and x.shape[1] == weight.shape[1]
    per_program = triton.cdiv(triton.cdiv(num_columns, tile.cols), tile.splits)
    pieces = triton.cdiv(num_columns, per_program * tile.cols)
    states = torch.empty(STATE_SIZE, pieces, num_rows, dtype=torch.float32, device=x.device)
    ids = torch.empty(pieces, num_rows, dtype=torch.int32, device=x.device)
    _head[(triton.cdiv(num_rows, tile.rows), pieces)](
        x,
        weight,
        rules.allowed.view(torch.uint8) if rules else None,
        rules.of_row if rules else None,
        states,
        ids,
        num_rows,
        num_columns,
        weight.shape[1],
        per_program,
        EVEN=weight.shape[1] % tile.inner == 0,
        RULED=rules is not None,
        B_COLS=tile.cols,
        B_ROWS=tile.rows,
        B_INNER=tile.inner,
        UPCAST=is_interpreted(),
        num_warps=tile.warps,
        num_stages=tile.stages,
        enable_fp_fusion=False,  # fused roundings could differ between numbers of rows
    )
    return join_pieces(states, ids)


def join_pieces(states: Tensor, ids: Tensor) -> TokenPredictions:
    """Predictions from the states of C pieces of the vocabulary: `states` [3, C, M] and `ids` [C, M]."""
    _, pieces, num_rows = states.shape
    chosen = torch.empty(num_rows, dtype=torch.int64, device=states.device)
    results = torch.empty(2, num_rows, dtype=torch.float32, device=states.device)
    _join[(num_rows,)](
        states, ids, chosen, results, num_rows, pieces, B_PIECES=triton.next_power_of_2(pieces), num_warps=1
    )
    return TokenPredictions(chosen, results[0], results[1])


@triton.jit
def absorb(logits, o_col, highest, total, weighted, best_id):
    """The state of rows [B_ROWS] with `logits` [B_COLS, B_ROWS] of columns `o_col` too. Minus infinity adds nothing."""
    top = tl.max(logits, axis=0)
    top_id = tl.min(tl.where(logits == top[None, :], o_col[:, None], 2147483647), axis=0).to(tl.int32)
    best_id = tl.where(top > highest, top_id, best_id)
    higher = tl.maximum(highest, top)
    distance = tl.maximum(logits - higher[None, :], -1e4)  # not -inf: exp(-1e4) is 0 too, but 0 * -1e4 a number
    share = tl.exp(distance)
    shrink = tl.exp(highest - higher)
    # The sum of (score - highest) * exp(score - highest): moving `highest` moves every term by the same distance.
    weighted = (weighted + (highest - higher) * total) * shrink + tl.sum(distance * share, axis=0)
    total = total * shrink + tl.sum(share, axis=0)
    return higher, total, weighted, best_id


@triton.jit(do_not_specialize=["num_rows"])
def _head(
    p_x,
    p_w,
    p_allowed,
    p_rule,
    p_states,
    p_ids,
    num_rows,
    num_cols,
    width,
    per_program,
    EVEN: tl.constexpr,
    RULED: tl.constexpr,
    B_COLS: tl.constexpr,
    B_ROWS: tl.constexpr,
    B_INNER: tl.constexpr,
    UPCAST: tl.constexpr,
):
    # Stores, for each row of a tile, the state and the best column of one piece of the vocabulary.
    o_row = tl.program_id(0).to(tl.int64) * B_ROWS + tl.arange(0, B_ROWS)
    m_row = o_row < num_rows
    i_piece = tl.program_id(1)
    highest = tl.full((B_ROWS,), -1e30, tl.float32)
    total = tl.zeros((B_ROWS,), tl.float32)
    weighted = tl.zeros((B_ROWS,), tl.float32)
    best_id = tl.full((B_ROWS,), 2147483647, tl.int32)
    for iteration in range(per_program):
        o_col = (i_piece.to(tl.int64) * per_program + iteration) * B_COLS + tl.arange(0, B_COLS)
        m_col = o_col < num_cols
        logits = tl.zeros((B_COLS, B_ROWS), tl.float32)
        for start in range(0, width, B_INNER):
            x = load_inputs(p_x, o_row, m_row, start, width, EVEN, B_INNER)
            logits = add_product(logits, p_w, o_col, m_col, x, start, width, EVEN, B_INNER, UPCAST)
        m_allowed = m_col[:, None] & m_row[None, :]
        if RULED:
            rule = tl.load(p_rule + o_row, m_row, 0).to(tl.int64)
            m_allowed = m_allowed & (tl.load(p_allowed + rule[None, :] * num_cols + o_col[:, None], m_allowed, 0) > 0)
        logits = tl.where(m_allowed, logits, float("-inf"))
        highest, total, weighted, best_id = absorb(logits, o_col.to(tl.int32), highest, total, weighted, best_id)
    stride = tl.num_programs(1).to(tl.int64) * num_rows
    p_state = p_states + i_piece.to(tl.int64) * num_rows + o_row
    tl.store(p_state, highest, m_row)
    tl.store(p_state + stride, total, m_row)
    tl.store(p_state + 2 * stride, weighted, m_row)
    tl.store(p_ids + i_piece.to(tl.int64) * num_rows + o_row, best_id, m_row)


@triton.jit(do_not_specialize=["num_rows"])
def _join(p_states, p_ids, p_chosen, p_results, num_rows, pieces, B_PIECES: tl.constexpr):
    i_row = tl.program_id(0).to(tl.int64)
    o_piece = tl.arange(0, B_PIECES).to(tl.int64)
    m_piece = o_piece < pieces
    stride = pieces * num_rows
    p_state = p_states + o_piece * num_rows + i_row
    p_id = p_ids + o_piece * num_rows + i_row
    highest = tl.load(p_state, m_piece, -1e30)
    total = tl.load(p_state + stride, m_piece, 0.0)
    weighted = tl.load(p_state + 2 * stride, m_piece, 0.0)
    top = tl.max(highest, axis=0)
    # Among equals the lowest column wins, whatever the piece.
    top_id = tl.min(tl.where(highest == top, tl.load(p_id, m_piece, 2147483647), 2147483647), axis=0)
    shrink = tl.exp(tl.maximum(highest - top, -1e4))
    sum_total = tl.sum(total * shrink, axis=0)
    sum_weighted = tl.sum((weighted + tl.maximum(highest - top, -1e4) * total) * shrink, axis=0)
    tl.store(p_chosen + i_row, top_id.to(tl.int64))
    tl.store(p_results + i_row, 1 / sum_total)
    tl.store(p_results + num_rows + i_row, tl.log(sum_total) - sum_weighted / sum_total)
