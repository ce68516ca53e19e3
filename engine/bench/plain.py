"""The published loops in plain torch, over the same weights as the fused model: what a step is compared with.

Two, each written from its paper: the plain loop computes every position and all scores at every step (LLaDA, arXiv
2502.09992, section 2.4); the dual cache keeps the keys and values before and behind a block and computes the block
alone (Fast-dLLM, arXiv 2505.22618, section 3.2). Both take softmax over all scores in double precision, as published.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from midfill_engine.models.fused import FusedModel, Layer
from midfill_kernels.rotary import rotary_tables

KeyValues = list[tuple[Tensor, Tensor]]  # [1, K, S, E] a layer


@dataclass(frozen=True)
class PlainModel:
    """The fused model's weights, read as matrices. Needs precision bf16."""

    fused: FusedModel

    def hidden(self, ids: Tensor, positions: Tensor, past: KeyValues | None = None) -> tuple[Tensor, KeyValues]:
        """Normed states [T, D] of `ids` [T] at `positions` [T], every one seeing all and `past`; and their own keys."""
        shape = self.fused.shape
        x = self.fused.embedding[ids]
        cos, sin = (
            table[0].to(x.dtype) for table in rotary_tables(positions[None], shape.heads.width, shape.rope_base)
        )
        own: KeyValues = []
        for index, layer in enumerate(self.fused.layers):
            mixed, pair = self._attend(x, layer, (cos, sin), past[index] if past is not None else None)
            own.append(pair)
            x = x + mixed
            x = x + self._mlp(F.rms_norm(x, (shape.dim,), layer.mlp_gain, shape.eps), layer)
        return F.rms_norm(x, (shape.dim,), self.fused.final_gain, shape.eps), own

    def scores(self, hidden: Tensor) -> Tensor:
        """[T, V] in the model's dtype."""
        return F.linear(hidden, self.fused.head.data)

    def _attend(
        self, x: Tensor, layer: Layer, tables: tuple[Tensor, Tensor], past: tuple[Tensor, Tensor] | None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        heads, eps = self.fused.shape.heads, self.fused.shape.eps
        normed = F.rms_norm(x, (x.shape[-1],), layer.attention_gain, eps)
        joint = F.linear(normed, layer.qkv.data, layer.bias).view(len(x), -1, heads.width)
        q, k, v = torch.split(joint, [heads.query, heads.key_value, heads.key_value], dim=1)
        if heads.norm:
            q_gain, k_gain = layer.head_gains or (None, None)
            q, k = F.rms_norm(q, (heads.width,), q_gain, eps), F.rms_norm(k, (heads.width,), k_gain, eps)
        q, k = (_turn(part, tables).transpose(0, 1)[None] for part in (q, k))
        pair = (k, v.transpose(0, 1)[None])
        key, value = (
            pair if past is None else (torch.cat((past[0], pair[0]), dim=2), torch.cat((past[1], pair[1]), dim=2))
        )
        mixed = F.scaled_dot_product_attention(q, key, value, enable_gqa=heads.query != heads.key_value)
        return F.linear(mixed[0].transpose(0, 1).flatten(1), layer.out.data), pair

    def _mlp(self, x: Tensor, layer: Layer) -> Tensor:
        up = F.linear(x, layer.up.data)
        if self.fused.shape.activation == "swiglu":
            gate, up = up.chunk(2, dim=-1)
            return F.linear(F.silu(gate) * up, layer.down.data)
        return F.linear(F.relu(up).square(), layer.down.data)


def _turn(x: Tensor, tables: tuple[Tensor, Tensor]) -> Tensor:
    cos, sin = (table[:, None] for table in tables)
    left, right = x.chunk(2, dim=-1)
    return torch.cat((left * cos - right * sin, right * cos + left * sin), dim=-1)


Hidden = Callable[[Tensor, Tensor, KeyValues | None], tuple[Tensor, KeyValues]]


def fill_plainly(
    model: PlainModel, ids: Tensor, masked: Tensor, per_step: int, *, hidden: Hidden | None = None
) -> Tensor:
    """The plain loop: `ids` [N] with `masked` [N] true where a token is missing; settles `per_step` a step."""
    ids, masked = ids.clone(), masked.clone()
    positions = torch.arange(len(ids), device=ids.device)
    run = hidden or model.hidden
    for _ in range(-(-int(masked.sum()) // per_step)):
        states, _ = run(ids, positions, None)
        _settle_best(model.scores(states), ids, masked, per_step)
    return ids


def fill_with_dual_cache(
    model: PlainModel, ids: Tensor, masked: Tensor, per_step: int, *, hidden: Hidden | None = None
) -> Tensor:
    """The dual cache's loop over one block, which is the gap: one full forward, then the block against the cache."""
    ids, masked = ids.clone(), masked.clone()
    positions = torch.arange(len(ids), device=ids.device)
    run = hidden or model.hidden
    where = masked.nonzero().flatten()
    first, end = int(where[0]), int(where[-1]) + 1
    states, own = run(ids, positions, None)
    past = [tuple(torch.cat((side[:, :, :first], side[:, :, end:]), dim=2) for side in pair) for pair in own]
    _settle_best(model.scores(states), ids, masked, per_step)
    block, block_masked = ids[first:end], masked[first:end]
    while block_masked.any():
        states, _ = run(block, positions[first:end], [(key, value) for key, value in past])
        _settle_best(model.scores(states), block, block_masked, per_step)
    return ids


def _settle_best(scores: Tensor, ids: Tensor, masked: Tensor, count: int) -> None:
    """Takes the `count` surest of the masked positions, in place."""
    best, proposed = scores.double().softmax(dim=-1).max(dim=-1)
    best = best.masked_fill(~masked, -torch.inf)
    chosen = best.topk(min(count, int(masked.sum()))).indices
    ids[chosen] = proposed[chosen]
    masked[chosen] = False
