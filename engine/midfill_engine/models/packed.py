"""One forward pass over the concatenated rows of many requests' steps. Knows no canvas, no request.

A row's result does not depend on the rest of the pack: every sequence starts at a multiple of the operators' tile,
attention sees one sequence at a time, and `TorchOperators` guarantees the rest.
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

HEAD_ROWS: Final = 64  # scored at once on a CPU: logits of 400 rows of a vocabulary of 49,152 take 80 MB


@dataclass(frozen=True)
class Stacks:
    """Keys and values that kernels read where they lie, [L, 2, K, length, E] each: a `past` that all rows see, and a
    `tail` of which each row sees a part. The pass writes its own into `room` [L, 2, K, T, E], if there is any.
    """

    past: Tensor
    tail: Tensor | None = None
    room: Tensor | None = None


@dataclass(frozen=True)
class Pass:
    """One sequence's T rows: `ids` [T] at `positions` ([T], or [H, T] by head), attending to `past` and to itself.

    `past` has keys and values [1, K, P, E] a layer; with `grows`, and a mask, the pass writes its own into the memory
    behind them. `mask` [T, P + T] is true where attention is allowed. Returns the states of the rows `wanted` [M], the
    tokens of `choice`, and with `keeps` all T keys and values. Passes with `stacks` are for `FusedRunner`: they have no
    `past`, and `mask` [T, tail + T] is about their tail and themselves. Without `shows_states` the states may be
    missing.
    """

    ids: Tensor
    positions: Tensor
    wanted: Tensor
    past: KeyValues | None = None
    mask: Tensor | None = None
    grows: bool = False
    keeps: bool = False
    choice: Choice | None = None
    stacks: Stacks | None = None
    shows_states: bool = True


@dataclass(frozen=True)
class WantedRows:
    """The `rows` [A] of a pack that a layer computes, None for all, in their own `spans`."""

    rows: Tensor | None
    spans: list[Span]

    @classmethod
    def of(cls, passes: list[Pass], spans: list[Span], device: torch.device, tile: int) -> "WantedRows":
        """The rows of the last layer: the wanted ones, padded to tiles with each pass's first row."""
        rows: list[Tensor] = []
        wanted_spans: list[Span] = []
        start = 0
        for step, span in zip(passes, spans, strict=True):
            wanted = step.wanted.to(device)
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


@dataclass(frozen=True)
class Result:
    """`hidden` [M, D] normed states of the wanted rows; `own` keys and values [1, K, T, E] a layer, if kept."""

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
    x = transformer.embedding(_pack([step.ids for step in passes], tile).to(device))  # [R, D]
    x = x.to(transformer.state_dtype or transformer.dtype)
    config = transformer.config
    positions = _pack([step.positions for step in passes], tile).to(device)
    tables = rotary_tables(positions[None], config, transformer.dtype)
    if positions.dim() == 2:  # of the heads of queries and of keys, which are as many
        tables = tables[0].repeat(1, 2, 1, 1), tables[1].repeat(1, 2, 1, 1)
    kept: list[list[tuple[Tensor, Tensor]]] = [[] for _ in passes]
    wanted = WantedRows.of(passes, spans, device, tile)
    for index, block in enumerate(transformer.blocks):
        is_last = index + 1 == len(transformer.blocks)
        sought = wanted if is_last else WantedRows(None, spans)
        pasts = [None if step.past is None else step.past[index] for step in passes]
        mixed, key, value = attend(block.attention, block.attention_norm(x), tables, pasts, spans, sought, operators)
        x = sought.take(x) + mixed
        x = x + feed_forward(block.mlp, block.mlp_norm(x), sought.spans, operators)
        for own, span, step in zip(kept, spans, passes, strict=True):
            if step.keeps:
                own.append((_of_span(key, span), _of_span(value, span)))
    results = []
    for step, span, own in zip(passes, wanted.spans, kept, strict=True):
        hidden = transformer.final_norm(x[span.start : span.end])
        results.append(Result(hidden, own if step.keeps else None, None))
    return choose_packed(transformer, passes, results, operators, head_rows)


def choose_packed(
    transformer: Transformer,
    passes: list[Pass],
    results: list[Result],
    operators: TorchOperators,
    head_rows: int = HEAD_ROWS,
) -> list[Result]:
    """Runs the head and the remaining choices. On a CPU it scores `head_rows` at a time."""
    most = head_rows if transformer.embedding.weight.device.type == "cpu" else sys.maxsize
    parts: list[tuple[int, Choice, slice]] = []  # a pass, its choice, and some of its rows
    for index, (step, result) in enumerate(zip(passes, results, strict=True)):
        if step.choice is not None and result.chosen is None:
            for start in range(0, len(step.wanted), most):
                parts.append((index, step.choice, slice(start, min(start + most, len(step.wanted)))))
    chosen: dict[int, list[Chosen]] = {}
    for group in split(parts, lambda part: part[2].stop - part[2].start, most):
        scores = score_rows(transformer, [results[index].hidden[rows] for index, _, rows in group], operators)
        for (index, choice, rows), part in zip(group, scores, strict=True):
            chosen.setdefault(index, []).append(choose(part, choice.take(rows)))
    decided = list(results)
    for index, chosen_parts in chosen.items():
        decided[index] = replace(results[index], chosen=Chosen.join(chosen_parts))
    return decided


@torch.inference_mode()
def score_rows(transformer: Transformer, states: list[Tensor], operators: TorchOperators) -> list[Tensor]:
    """The vocabulary's scores [M, V] of each pass's states [M, D]."""
    padded = [pad_rows(rows, operators.row_tile) for rows in states]
    ends = torch.tensor([0, *map(len, padded)]).cumsum(0).tolist()
    spans = [Span(start, end, end) for start, end in pairwise(ends)]
    scores = operators.linear(torch.cat(padded), head_weight(transformer), None, spans)
    parts = torch.split(scores, [len(rows) for rows in padded])
    return [part[: len(rows)] for part, rows in zip(parts, states, strict=True)]


@torch.inference_mode()
def choose_again(transformer: Transformer, hidden: Tensor, choice: Choice, operators: TorchOperators) -> Chosen:
    """Another choice from states [M, D] that a pass returned."""
    return choose(score_rows(transformer, [hidden], operators)[0], choice)


def attend(
    attention: Attention,
    x: Tensor,
    tables: tuple[Tensor, Tensor],
    pasts: list[tuple[Tensor, Tensor] | None],
    spans: list[Span],
    asked: WantedRows,
    operators: TorchOperators,
) -> tuple[Tensor, Tensor, Tensor]:
    """`x` [R, D] -> the attention output [A, D] of the asked rows, and rotated keys and values [R, K, E] of all."""
    head_dim, dtype = attention.config.head_dim, attention.q.weight.dtype
    parts = operators.linears(x, [attention.q, attention.k, attention.v], spans)
    query, key, value = (part.to(dtype).view(len(x), -1, head_dim) for part in parts)
    heads = torch.cat((attention.q_norm(query), attention.k_norm(key)), dim=1).transpose(0, 1)
    turned = rotate(heads[None], *tables)[0].transpose(0, 1)
    query, key = turned[:, : query.shape[1]], turned[:, query.shape[1] :]
    mixed = operators.attention(asked.take(query), key, value, pasts, spans, asked.spans)
    return operators.linear(mixed.flatten(1), attention.out.weight, None, asked.spans), key, value


def feed_forward(mlp: torch.nn.Module, x: Tensor, spans: list[Span], operators: TorchOperators) -> Tensor:
    if not isinstance(mlp, MLP):  # experts get one sequence at a time if the number of rows matters
        parts = [x]
        if not operators.packs_products:
            parts = [x[span.start : span.padded_end] for span in spans]
        return torch.cat([mlp(part) for part in parts])
    if mlp.gate is None:
        hidden = F.relu(operators.linear(x, mlp.up.weight, None, spans)).square()
    else:
        gate, up = operators.linears(x, [mlp.gate, mlp.up], spans)
        hidden = F.silu(gate).mul_(up)
    return operators.linear(hidden, mlp.down.weight, None, spans)


def lay_spans(passes: list[Pass], device: torch.device, tile: int, dtype: torch.dtype) -> list[Span]:
    spans: list[Span] = []
    start = 0
    for step in passes:
        length = len(step.ids)
        padded_end = start + length + -length % tile
        bias = None
        if step.mask is not None:  # torch's attention would convert a mask in every layer
            bias = torch.where(step.mask.to(device), 0.0, -torch.inf).to(dtype)
        spans.append(Span(start, start + length, padded_end, bias, step.grows))
        start = padded_end
    return spans


def _pack(parts: list[Tensor], tile: int) -> Tensor:
    """Joins [..., T] tensors along the last axis, each padded with zeros to a multiple of `tile`."""
    return torch.cat([F.pad(part, (0, -part.shape[-1] % tile)) for part in parts], dim=-1)


def _of_span(rows: Tensor, span: Span) -> Tensor:
    """[R, K, E] -> [1, K, T, E], a copy: the pack's memory is not kept alive for one request."""
    return rows[span.start : span.end].transpose(0, 1)[None].contiguous()
