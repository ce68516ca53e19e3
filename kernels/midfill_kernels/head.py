"""From hidden states to proposals: vocabulary product, softmax and choice, without holding scores [M, V].

M rows, V columns ("words" here only as column numbers), D width. Per row: the best column or a sample, its probability,
the distribution's entropy (nats) and the margin by which the first leads the second. Online softmax: arXiv 1805.02867;
sampling by Gumbel-max, noise by counter: what a row draws depends on its seed and the column alone.
"""

from dataclasses import dataclass
from typing import Final

import torch
import triton
import triton.language as tl
from torch import Tensor

from midfill_kernels.launch import ceil_div, is_interpreted, launch_options, starts_early, wait_for_inputs
from midfill_kernels.matmul import MAX_ROWS, Tile, choose_inner, fit_stages, load_turn, weigh
from midfill_kernels.quantize import Quantized, Weight

PROGRAMS: Final = 264  # pieces of the vocabulary: a constant, so that sums keep their order; two on each of 132
MIN_ROWS: Final = 32
NUMBERS: Final = 6  # fp32 state of a row: highest, second, total, weighted, best score, its logit


@dataclass(frozen=True)
class Proposals:
    """Per row [M]: `ids` int64, `probability` of that id without noise, `entropy` in nats, `margin` of the top two."""

    ids: Tensor
    probability: Tensor
    entropy: Tensor
    margin: Tensor


@dataclass(frozen=True)
class Sampling:
    """Per row: `temperature` [M] fp32 (0 takes the best) and `seeds` [M] int64."""

    temperature: Tensor
    seeds: Tensor


@dataclass(frozen=True)
class Rules:
    """Which columns a row may take: `allowed` [rules, V] bool and each row's rule `of_row` [M] int32."""

    allowed: Tensor
    of_row: Tensor


def pointers(rules: Rules | None, sampling: Sampling | None) -> tuple[Tensor | None, ...]:
    """What a kernel is given of both: `allowed` as bytes, `of_row`, `temperature`, `seeds`."""
    ruled = (rules.allowed.view(torch.uint8), rules.of_row) if rules else (None, None)
    return (*ruled, *((sampling.temperature, sampling.seeds) if sampling else (None, None)))


def propose_reference(x: Tensor | Quantized, weight: Weight, rules: Rules | None = None) -> Proposals:
    """The definition without sampling, through scores [M, V] in fp32. Ties go to the lowest id."""
    wide = x.dequantize() if isinstance(x, Quantized) else x.float()
    scores = wide @ weight.dequantize().T
    if rules is not None:
        scores = scores.masked_fill(~rules.allowed[rules.of_row.long()], -torch.inf)
    probabilities = scores.softmax(dim=1)
    best = probabilities.topk(2, dim=1).values
    ids = scores.argmax(dim=1)
    entropy = torch.special.entr(probabilities).sum(dim=1)
    return Proposals(ids, best[:, 0], entropy, best[:, 0] - best[:, 1])


def choose_head_tile(weight: Weight, num_rows: int, x_group: int | None) -> Tile:
    """As `matmul.choose_tile`; `splits` is the number of vocabulary pieces.

    Always 4 warps over 64 columns, and 32 rows or more: the layout of their sums decides a row's bits, which must not
    depend on the number of rows (with rules and 16 rows it is another; `bench.compile` looks). Registers let two
    programs share a multiprocessor: one reads on while the other takes its softmax.
    """
    inner = x_group or choose_inner(weight)
    rows = min(MAX_ROWS, max(MIN_ROWS, triton.next_power_of_2(num_rows)))
    return Tile(64, rows, inner, PROGRAMS, warps=4, stages=fit_stages(weight, 64, rows, inner, 1 if x_group else 2))


def propose(
    x: Tensor | Quantized,
    weight: Weight,
    *,
    sampling: Sampling | None = None,
    rules: Rules | None = None,
    tile: Tile | None = None,
) -> Proposals:
    """Proposals for normed hidden states `x` [M, D] under the vocabulary matrix `weight` [V, D].

    Extra memory: 32 bytes for each row and piece of the vocabulary (264 of them). Every row must be allowed a column.
    """
    values = x.values if isinstance(x, Quantized) else x
    num_rows, num_columns = values.shape[0], weight.shape[0]
    tile = tile or choose_head_tile(weight, num_rows, x.group if isinstance(x, Quantized) else None)
    assert values.is_contiguous() and values.shape[1] == weight.shape[1]
    per_program = ceil_div(ceil_div(num_columns, tile.cols), tile.splits)
    pieces = ceil_div(num_columns, per_program * tile.cols)
    numbers = torch.empty(NUMBERS, pieces, num_rows, dtype=torch.float32, device=values.device)
    ids = torch.empty(2, pieces, num_rows, dtype=torch.int32, device=values.device)
    _head[(ceil_div(num_rows, tile.rows), pieces)](
        values,
        x.scales if isinstance(x, Quantized) else None,
        weight.data,
        weight.scale,
        *pointers(rules, sampling),
        numbers,
        ids,
        num_rows,
        num_columns,
        weight.shape[1],
        per_program,
        FORMAT="fp8_both" if isinstance(x, Quantized) else weight.format,
        EVEN=weight.shape[1] % tile.inner == 0,
        RULED=rules is not None,
        SAMPLED=sampling is not None,
        B_COLS=tile.cols,
        B_ROWS=tile.rows,
        B_INNER=tile.inner,
        UPCAST=is_interpreted(),
        PDL=starts_early(),
        num_warps=tile.warps,
        num_stages=tile.stages,
        enable_fp_fusion=False,  # what is fused into one rounding could differ from one number of rows to another
        **launch_options(),
    )
    return join_pieces(numbers, ids, sampled=sampling is not None)


def join_pieces(numbers: Tensor, ids: Tensor, *, sampled: bool) -> Proposals:
    """Proposals from the states of C pieces of the vocabulary: `numbers` [6, C, M] and `ids` [2, C, M]."""
    _, pieces, num_rows = numbers.shape
    chosen = torch.empty(num_rows, dtype=torch.int64, device=numbers.device)
    results = torch.empty(3, num_rows, dtype=torch.float32, device=numbers.device)
    _join[(num_rows,)](
        numbers,
        ids,
        chosen,
        results,
        num_rows,
        pieces,
        SAMPLED=sampled,
        B_PIECES=triton.next_power_of_2(pieces),
        PDL=starts_early(),
        num_warps=1,
        **launch_options(),
    )
    return Proposals(chosen, results[0], results[1], results[2])


@triton.jit
def draw_uniform(seed, counter):
    """Numbers in (0, 1) from int64 seeds and int32 counters: two rounds of a 32-bit mix (Wellons' triple32, halved).

    In Philox's place: with that the kernel spilled 1,824 bytes a thread, with this 480 (64 rows, compiled for 9.0).
    """
    mixed = counter.to(tl.uint32) * 0x9E3779B1 + (seed & 0xFFFFFFFF).to(tl.uint32)
    mixed = mix(mixed)
    mixed = mix(mixed + ((seed >> 32) & 0xFFFFFFFF).to(tl.uint32) * 0x85EBCA6B)
    return tl.minimum(mixed.to(tl.float32) * 2.3283064365386963e-10 + 1.1641532182693481e-10, 1 - 2**-24)


@triton.jit
def mix(word):
    """A bijection of uint32 words whose every output bit depends on every input bit."""
    word = (word ^ (word >> 16)) * 0x21F0AAAD
    word = (word ^ (word >> 15)) * 0x735A2D97
    return word ^ (word >> 15)


@triton.jit
def absorb(
    logits, o_col, highest, second, total, weighted, best_id, score, score_logit, score_id, temperature, seed,
    SAMPLED: tl.constexpr,
):  # fmt: skip
    """Takes `logits` [B_COLS, B_ROWS] of columns `o_col` (int32: the noise's counter is as wide as they are) into the
    running state [B_ROWS]. Minus infinity is nothing."""
    top = tl.max(logits, axis=0)
    top_id = tl.min(tl.where(logits == top[None, :], o_col[:, None], 2147483647), axis=0).to(tl.int32)
    runner_up = tl.max(tl.where(o_col[:, None] == top_id[None, :], float("-inf"), logits), axis=0)
    second = tl.maximum(tl.minimum(highest, top), tl.maximum(second, runner_up))
    best_id = tl.where(top > highest, top_id, best_id)
    higher = tl.maximum(highest, top)
    distance = tl.maximum(logits - higher[None, :], -1e4)  # exp of it is 0 long before, and 0 * it stays a number
    share = tl.exp(distance)
    shrink = tl.exp(highest - higher)
    # The sum of (score - highest) * exp(score - highest): moving `highest` moves every term by the same distance.
    weighted = (weighted + (highest - higher) * total) * shrink + tl.sum(distance * share, axis=0)
    total = total * shrink + tl.sum(share, axis=0)
    if SAMPLED:
        uniform = draw_uniform(seed[None, :], o_col[:, None])
        # The exponential near 0, where the winners are, needs more digits than 1 - uniform has.
        exponential = tl.where(uniform < 1e-3, uniform * (1 + 0.5 * uniform), -tl.log(1 - uniform))
        is_warm = temperature > 0
        noisy = logits / tl.where(is_warm, temperature, 1.0)[None, :]
        noisy = noisy - tl.where(is_warm[None, :], tl.log(exponential), 0.0)
        top_noisy = tl.max(noisy, axis=0)
        noisy_id = tl.min(tl.where(noisy == top_noisy[None, :], o_col[:, None], 2147483647), axis=0).to(tl.int32)
        logit = tl.max(tl.where(o_col[:, None] == noisy_id[None, :], logits, float("-inf")), axis=0)
        score_id = tl.where(top_noisy > score, noisy_id, score_id)
        score_logit = tl.where(top_noisy > score, logit, score_logit)
        score = tl.maximum(score, top_noisy)
    return higher, second, total, weighted, best_id, score, score_logit, score_id


@triton.jit(do_not_specialize=["num_rows"])
def _head(
    p_x,
    p_x_scale,
    p_w,
    p_w_scale,
    p_allowed,
    p_rule,
    p_temperature,
    p_seed,
    p_numbers,
    p_ids,
    num_rows,
    num_cols,
    width,
    per_program,
    FORMAT: tl.constexpr,
    EVEN: tl.constexpr,
    RULED: tl.constexpr,
    SAMPLED: tl.constexpr,
    B_COLS: tl.constexpr,
    B_ROWS: tl.constexpr,
    B_INNER: tl.constexpr,
    UPCAST: tl.constexpr,
    PDL: tl.constexpr,
):
    wait_for_inputs(PDL)
    o_row = tl.program_id(0).to(tl.int64) * B_ROWS + tl.arange(0, B_ROWS)
    m_row = o_row < num_rows
    i_piece = tl.program_id(1)
    highest = tl.full((B_ROWS,), -1e30, tl.float32)
    second = tl.full((B_ROWS,), -1e30, tl.float32)
    score = tl.full((B_ROWS,), float("-inf"), tl.float32)
    score_logit = tl.full((B_ROWS,), -1e30, tl.float32)
    total = tl.zeros((B_ROWS,), tl.float32)
    weighted = tl.zeros((B_ROWS,), tl.float32)
    best_id = tl.full((B_ROWS,), 2147483647, tl.int32)
    score_id = tl.full((B_ROWS,), 2147483647, tl.int32)
    temperature = total
    seed = o_row
    if SAMPLED:
        temperature = tl.load(p_temperature + o_row, m_row, 0.0)
        seed = tl.load(p_seed + o_row, m_row, 0)
    for turn in range(per_program):
        o_col = (i_piece.to(tl.int64) * per_program + turn) * B_COLS + tl.arange(0, B_COLS)
        m_col = o_col < num_cols
        logits = tl.zeros((B_COLS, B_ROWS), tl.float32)
        for start in range(0, width, B_INNER):
            x, x_high, x_scale = load_turn(p_x, p_x_scale, o_row, m_row, start, width, FORMAT, EVEN, B_INNER)
            logits = weigh(
                logits, p_w, p_w_scale, o_col, m_col, x, x_high, x_scale, start, width, FORMAT, EVEN, B_INNER, UPCAST
            )
        if FORMAT == "int8" or FORMAT == "fp8" or FORMAT == "fp8_both":
            logits *= tl.load(p_w_scale + o_col, m_col, 0.0)[:, None]
        may = m_col[:, None] & m_row[None, :]
        if RULED:
            rule = tl.load(p_rule + o_row, m_row, 0).to(tl.int64)
            may = may & (tl.load(p_allowed + rule[None, :] * num_cols + o_col[:, None], may, 0) > 0)
        logits = tl.where(may, logits, float("-inf"))
        highest, second, total, weighted, best_id, score, score_logit, score_id = absorb(
            logits, o_col.to(tl.int32), highest, second, total, weighted, best_id, score, score_logit, score_id,
            temperature, seed, SAMPLED,
        )  # fmt: skip
    stride = tl.num_programs(1).to(tl.int64) * num_rows
    p_number = p_numbers + i_piece.to(tl.int64) * num_rows + o_row
    tl.store(p_number, highest, m_row)
    tl.store(p_number + stride, second, m_row)
    tl.store(p_number + 2 * stride, total, m_row)
    tl.store(p_number + 3 * stride, weighted, m_row)
    tl.store(p_number + 4 * stride, score, m_row)
    tl.store(p_number + 5 * stride, score_logit, m_row)
    p_id = p_ids + i_piece.to(tl.int64) * num_rows + o_row
    tl.store(p_id, best_id, m_row)
    tl.store(p_id + stride, score_id, m_row)


@triton.jit(do_not_specialize=["num_rows"])
def _join(
    p_numbers,
    p_ids,
    p_chosen,
    p_results,
    num_rows,
    pieces,
    SAMPLED: tl.constexpr,
    B_PIECES: tl.constexpr,
    PDL: tl.constexpr,
):
    wait_for_inputs(PDL)
    i_row = tl.program_id(0).to(tl.int64)
    o_piece = tl.arange(0, B_PIECES).to(tl.int64)
    m_piece = o_piece < pieces
    stride = pieces * num_rows
    p_number = p_numbers + o_piece * num_rows + i_row
    p_id = p_ids + o_piece * num_rows + i_row
    highest = tl.load(p_number, m_piece, -1e30)
    second = tl.load(p_number + stride, m_piece, -1e30)
    total = tl.load(p_number + 2 * stride, m_piece, 0.0)
    weighted = tl.load(p_number + 3 * stride, m_piece, 0.0)
    top = tl.max(highest, axis=0)
    # Among equals the lowest column wins, whatever the piece.
    top_id = tl.min(tl.where(highest == top, tl.load(p_id, m_piece, 2147483647), 2147483647), axis=0)
    first_piece = tl.min(tl.where(highest == top, o_piece, B_PIECES), axis=0)
    runner_up = tl.max(tl.maximum(second, tl.where(o_piece == first_piece, -1e30, highest)), axis=0)
    shrink = tl.exp(tl.maximum(highest - top, -1e4))
    sum_total = tl.sum(total * shrink, axis=0)
    sum_weighted = tl.sum((weighted + tl.maximum(highest - top, -1e4) * total) * shrink, axis=0)
    chosen = top_id
    probability = 1 / sum_total
    if SAMPLED:
        score = tl.load(p_number + 4 * stride, m_piece, float("-inf"))
        best_score = tl.max(score, axis=0)
        chosen = tl.min(tl.where(score == best_score, tl.load(p_id + stride, m_piece, 2147483647), 2147483647), axis=0)
        logit = tl.max(tl.where(score == best_score, tl.load(p_number + 5 * stride, m_piece, -1e30), -1e30), axis=0)
        probability = tl.exp(logit - top) / sum_total
    tl.store(p_chosen + i_row, chosen.to(tl.int64))
    tl.store(p_results + i_row, probability)
    tl.store(p_results + num_rows + i_row, tl.log(sum_total) - sum_weighted / sum_total)
    tl.store(p_results + 2 * num_rows + i_row, (1 - tl.exp(tl.maximum(runner_up - top, -1e4))) / sum_total)
