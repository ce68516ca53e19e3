"""Runs passes of many requests as one forward pass over a pack: all rows, concatenated. Knows no canvas, no request.

A row's result does not depend on the other rows of the pack: every sequence starts at a multiple of the operators'
tile, attention sees one sequence at a time, and the products of `TorchOperators` do not depend on other rows.
"""

import sys
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor

from midfill_engine.groups import split
from midfill_engine.models.choice import Choice, Chosen, choose
from midfill_engine.models.moe import pad_rows
from midfill_engine.models.operators import Span, TorchOperators
from midfill_engine.models.transformer import MLP, Attention, KeyValues, Transformer, head_weight, rotary_tables, rotate

HEAD_ROWS: Final = 64  # scored at once on a CPU, because the logits of 400 rows over 49,152 tokens take 80 MB


@dataclass(frozen=True)
class Stacks:
    """Keys and values that kernels read where they are, [L, 2, K, length, E] each: a `past` that all rows see, and a
    `tail` of which each row sees a part. The pass writes its own keys and values into `room` [L, 2, K, T, E], if given.
    """

    past: Tensor
    tail: Tensor | None = None
    room: Tensor | None = None


@dataclass(eq=False)
class Pass:
    """T rows of one sequence to compute: `ids` [T] at `positions` ([T], or [H, T] by head), attending to `past` and to
    each other where `attention_mask` [T, P + T] is true, or everywhere without one.

    `past` has the keys and values [1, K, P, E] of each layer. With `grows` the pass writes its own keys and values into
    the memory behind them, which must have room. The result has the states of the rows `wanted` [M], which may be
    missing without `shows_states`; the tokens of `choice`; and with `keeps` the keys and values of all T rows. A pass
    with `stacks` is for `FusedRunner`: it has no `past`, and its `attention_mask` [T, tail + T] leaves out the past of
    the stacks.
    """

    ids: Tensor
    positions: Tensor
    wanted: Tensor
    past: KeyValues | None = None
    attention_mask: Tensor | None = None
    grows: bool = False
    keeps: bool = False
    choice: Choice | None = None
    stacks: Stacks | None = None
    shows_states: bool = True


@dataclass(frozen=True)
class OutputRows:
    """The `rows` [A] of a pack whose output a layer computes, None for all, and the passes' `spans` among them. Keys
    and values are computed for all rows.
    """

    rows: Tensor | None
    spans: list[Span]

    @classmethod
    def of(cls, passes: list[Pass], spans: list[Span], device: torch.device, tile: int) -> "OutputRows":
        """The rows of the last layer: the wanted ones, each pass padded to tiles with its first row."""
        rows: list[Tensor] = []
        wanted_spans: list[Span] = []
        start = 0
        for pass_, span in zip(passes, spans, strict=True):
            wanted = pass_.wanted.to(device)
            end = start + len(wanted)
            padding = -len(wanted) % tile
            bias = None if span.bias is None else span.bias[wanted]
            rows.append(F.pad(span.start + wanted, (0, padding), value=span.start))
            wanted_spans.append(Span(start, end, end + padding, bias))
            start = end + padding
        return cls(torch.cat(rows), wanted_spans)

    def take(self, x: Tensor) -> Tensor:
        """The rows [A, ...] of `x` [R, ...]."""
        return x if self.rows is None else x[self.rows]


@dataclass(eq=False)
class Result:
    """`hidden` [M, D], the normed states of the wanted rows; `own` keys and values [1, K, T, E] of each layer, if the
    pass keeps them; and the tokens `chosen`, if it has a choice.
    """

    hidden: Tensor
    own: KeyValues | None
    chosen: Chosen | None


@torch.inference_mode()
def run_packed(
    transformer: Transformer, passes: list[Pass], operators: TorchOperators, head_rows: int = HEAD_ROWS
) -> list[Result]:
    """Runs all passes in one forward pass; returns their results in order. On a CPU it scores `head_rows` at a time."""
    device = transformer.embedding.weight.device
    tile = operators.row_tile
    spans = lay_spans(passes, device, tile, transformer.dtype)
    x = transformer.embedding(_pack([pass_.ids for pass_ in passes], tile).to(device))  # [R, D]
    x = x.to(transformer.state_dtype or transformer.dtype)
    config = transformer.config
    positions = _pack([pass_.positions for pass_ in passes], tile).to(device)
    tables = rotary_tables(positions[None], config, transformer.dtype)
    if positions.dim() == 2:  # by head: once for the heads of queries, once for those of keys, which are as many
        tables = tables[0].repeat(1, 2, 1, 1), tables[1].repeat(1, 2, 1, 1)
    kept: list[list[tuple[Tensor, Tensor]]] = [[] for _ in passes]
    wanted = OutputRows.of(passes, spans, device, tile)
    for index, block in enumerate(transformer.blocks):
        is_last = index + 1 == len(transformer.blocks)
        computed = wanted if is_last else OutputRows(None, spans)
        pasts = [None if pass_.past is None else pass_.past[index] for pass_ in passes]
        mixed, key, value = attend(block.attention, block.attention_norm(x), tables, pasts, spans, computed, operators)
        x = computed.take(x) + mixed
        x = x + feed_forward(block.mlp, block.mlp_norm(x), computed.spans, operators)
        for own, span, pass_ in zip(kept, spans, passes, strict=True):
            if pass_.keeps:
                own.append((_of_span(key, span), _of_span(value, span)))
    results = []
    for pass_, span, own in zip(passes, wanted.spans, kept, strict=True):
        hidden = transformer.final_norm(x[span.start : span.end])
        results.append(Result(hidden, own if pass_.keeps else None, None))
    return choose_packed(transformer, passes, results, operators, head_rows)


def choose_packed(
    transformer: Transformer,
    passes: list[Pass],
    results: list[Result],
    operators: TorchOperators,
    head_rows: int = HEAD_ROWS,
) -> list[Result]:
    """The `results` with the tokens that passes with a choice still lack. On a CPU it scores `head_rows` at a time."""
    max_rows = head_rows if transformer.embedding.weight.device.type == "cpu" else sys.maxsize
    parts: list[tuple[int, Choice, slice]] = []  # index of a pass, its choice, and some of its wanted rows
    for index, (pass_, result) in enumerate(zip(passes, results, strict=True)):
        if pass_.choice is not None and result.chosen is None:
            for start in range(0, len(pass_.wanted), max_rows):
                parts.append((index, pass_.choice, slice(start, min(start + max_rows, len(pass_.wanted)))))
    chosen: dict[int, list[Chosen]] = {}
    for group in split(parts, lambda part: part[2].stop - part[2].start, max_rows):
        group_scores = score_rows(transformer, [results[index].hidden[rows] for index, _, rows in group], operators)
        for (index, choice, rows), scores in zip(group, group_scores, strict=True):
            chosen.setdefault(index, []).append(choose(scores, choice.take(rows)))
    decided = list(results)
    for index, chosen_parts in chosen.items():
        decided[index] = replace(results[index], chosen=Chosen.join(chosen_parts))
    return decided


@torch.inference_mode()
def score_rows(transformer: Transformer, states: list[Tensor], operators: TorchOperators) -> list[Tensor]:
    """The logits [M, V] of each pass's `states` [M, D]."""
    padded = [pad_rows(rows, operators.row_tile) for rows in states]
    ends = torch.tensor([0, *map(len, padded)]).cumsum(0).tolist()
    spans = [Span(start, end, end) for start, end in pairwise(ends)]
    scores = operators.linear(torch.cat(padded), head_weight(transformer), None, spans)
    parts = torch.split(scores, [len(rows) for rows in padded])
    return [part[: len(rows)] for part, rows in zip(parts, states, strict=True)]


@torch.inference_mode()
def choose_again(transformer: Transformer, hidden: Tensor, choice: Choice, operators: TorchOperators) -> Chosen:
    """Makes another choice from the states `hidden` [M, D] that a pass returned."""
    return choose(score_rows(transformer, [hidden], operators)[0], choice)


def attend(
    attention: Attention,
    x: Tensor,
    tables: tuple[Tensor, Tensor],
    pasts: list[tuple[Tensor, Tensor] | None],
    spans: list[Span],
    computed: OutputRows,
    operators: TorchOperators,
) -> tuple[Tensor, Tensor, Tensor]:
    """`x` [R, D] -> the attention output [A, D] of the `computed` rows; rotated keys and values [R, K, E] of all."""
    head_dim, dtype = attention.config.head_dim, attention.q.weight.dtype
    parts = operators.linears(x, [attention.q, attention.k, attention.v], spans)
    query, key, value = (part.to(dtype).view(len(x), -1, head_dim) for part in parts)
    heads = torch.cat((attention.q_norm(query), attention.k_norm(key)), dim=1).transpose(0, 1)
    turned = rotate(heads[None], *tables)[0].transpose(0, 1)
    query, key = turned[:, : query.shape[1]], turned[:, query.shape[1] :]
    mixed = operators.attention(computed.take(query), key, value, pasts, spans, computed.spans)
    return operators.linear(mixed.flatten(1), attention.out.weight, None, computed.spans), key, value


def feed_forward(mlp: torch.nn.Module, x: Tensor, spans: list[Span], operators: TorchOperators) -> Tensor:
    """`x` [A, D] -> the output [A, D] of a layer's MLP or experts."""
    if not isinstance(mlp, MLP):  # experts get one sequence at a time if the number of rows matters
        parts = [x]
        if not operators.packs_products:
            parts = [x[span.start : span.padded_end] for span in spans]
        return torch.cat([mlp(part, operators.mix) for part in parts])
    if mlp.gate is None:
        hidden = F.relu(operators.linear(x, mlp.up.weight, None, spans)).square()
    else:
        gate, up = operators.linears(x, [mlp.gate, mlp.up], spans)
        hidden = F.silu(gate).mul_(up)
    return operators.linear(hidden, mlp.down.weight, None, spans)


def lay_spans(passes: list[Pass], device: torch.device, tile: int, dtype: torch.dtype) -> list[Span]:
    """The passes' spans in a pack, each padded to a multiple of `tile` rows."""
    spans: list[Span] = []
    start = 0
    for pass_ in passes:
        length = len(pass_.ids)
        padded_end = start + length + -length % tile
        bias = None
        if pass_.attention_mask is not None:  # converted here, because torch's attention would do so in every layer
            bias = torch.where(pass_.attention_mask.to(device), 0.0, -torch.inf).to(dtype)
        spans.append(Span(start, start + length, padded_end, bias, pass_.grows))
        start = padded_end
    return spans


def _pack(parts: list[Tensor], tile: int) -> Tensor:
    """Joins [..., T] tensors along the last axis, each padded with zeros to a multiple of `tile`."""
    return torch.cat([F.pad(part, (0, -part.shape[-1] % tile)) for part in parts], dim=-1)


def _of_span(rows: Tensor, span: Span) -> Tensor:
    """A span's `rows` [R, K, E] as [1, K, T, E], copied, so that one request does not keep the whole pack alive."""
    return rows[span.start : span.end].transpose(0, 1)[None].contiguous()
