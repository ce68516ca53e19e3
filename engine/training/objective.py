"""The losses: causal next token, and masked tokens of gaps over an isolated context. Knows the model and batches."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from midfill_engine.families.embedded import Embedded
from midfill_engine.models.transformer import take
from midfill_engine.tokens.special import PAD
from training.data.rows import Batch

LENGTH_WEIGHT = 0.1


@dataclass(frozen=True)
class Losses:
    """`total` is what is trained on; the others are means in nats for the log."""

    total: Tensor
    token: Tensor
    length: Tensor

    @classmethod
    def sum(cls, parts: Sequence["Losses"]) -> "Losses":
        """A batch's losses from its parts'."""
        columns = zip(*((part.total, part.token, part.length) for part in parts), strict=True)
        return cls(*(torch.stack(column).sum() for column in columns))


class _FusedNats(torch.autograd.Function):
    """Makes the gradients with the scores, some rows at a time: no two copies of all scores are ever there."""

    ROWS: Final = 1024

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, targets: Tensor, weights: Tensor, head: Tensor) -> Tensor:
        total, rounded = torch.zeros((), device=hidden.device), head.to(hidden.dtype)
        by_hidden, by_head = torch.empty_like(hidden), torch.zeros_like(head, dtype=torch.float32)
        for start in range(0, len(hidden), _FusedNats.ROWS):
            here = slice(start, start + _FusedNats.ROWS)
            log_shares = (hidden[here] @ rounded.T).float().log_softmax(dim=-1)
            picked = targets[here, None]
            total -= log_shares.gather(1, picked)[:, 0] @ weights[here]
            slope = log_shares.exp_().scatter_add_(1, picked, torch.full_like(log_shares[:, :1], -1.0))
            slope = slope.mul_(weights[here, None]).to(hidden.dtype)
            by_hidden[here] = slope @ rounded
            by_head += slope.T @ hidden[here]
        ctx.save_for_backward(by_hidden, by_head.to(head.dtype))
        return total

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor, None, None, Tensor]:
        by_hidden, by_head = ctx.saved_tensors
        return by_hidden * outer[0], None, None, by_head * outer[0]


def fused_nats(hidden: Tensor, targets: Tensor, weights: Tensor, head: Tensor) -> Tensor:
    """As `sum_nats`. On a CPU, eagerly, the faster one."""
    if torch.is_grad_enabled():
        return _FusedNats.apply(hidden, targets, weights, head)  # type: ignore[no-any-return,no-untyped-call]
    return sum_nats(hidden, targets, weights, head)


def sum_nats(hidden: Tensor, targets: Tensor, weights: Tensor, head: Tensor) -> Tensor:
    """Cross-entropy of `targets` [M] under the vocabulary matrix `head` [V, D], in fp32, each times its `weights` [M].

    Compiled, it never holds the scores [M, V] in fp32.
    """
    scores = F.linear(hidden, head.to(hidden.dtype)).float()
    return F.cross_entropy(scores, targets, reduction="none") @ weights


SumNats = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def head_of(model: Embedded) -> Tensor:
    transformer = model.transformer
    return transformer.embedding.weight if transformer.head is None else transformer.head.weight


def causal_loss(model: Embedded, ids: Tensor, num_targets: float | None = None, nats: SumNats = fused_nats) -> Losses:
    """Next-token loss of `ids` [B, T + 1], none where padding is next; all heads count from the left.

    Over `num_targets` tokens where these are a part of more rows, so that the parts' losses add up to the whole's.
    """
    positions = torch.arange(ids.shape[1] - 1, device=ids.device).expand(ids.shape[0], -1)
    hidden, _ = model.transformer(ids[:, :-1], positions, causal=True)
    targets, count = ids[:, 1:].flatten(), (ids[:, 1:] != PAD).sum() if num_targets is None else num_targets
    loss = nats(hidden.flatten(0, 1), targets, (targets != PAD).float() / count, head_of(model))
    return Losses(loss, loss.detach(), torch.zeros_like(loss))


def span_hidden(model: Embedded, batch: "TensorBatch", only_edges: bool = False) -> tuple[Tensor, Tensor]:
    """Hidden states of the context [B, C, D] and of all copies of the gaps [B, N, G, D], as the engine computes them.

    The context sees itself, and a copy the context and what its groups say. Padding is seen by none. With `only_edges`
    of the context only the states at the edges of gaps [B, 2K, D], and the last layer computes no others.
    """
    num_context, dtype = batch.context_ids.shape[1], model.length_head.weight.dtype
    ids = torch.cat((batch.context_ids, batch.gap_ids.flatten(1)), dim=1)  # [B, C + NG]
    context = batch.context_positions[:, None].expand(-1, 2, -1)
    positions = torch.cat((context, batch.gap_positions.transpose(1, 2).flatten(2)), dim=2)
    present = (batch.context_ids != PAD)[:, None]  # [B, 1, C]
    groups, sees, ranks = (value.flatten(1) for value in (batch.groups, batch.sees, batch.ranks))
    visible = (sees[:, :, None] == groups[:, None]) & (ranks[:, :, None] >= ranks[:, None])  # [B, NG, NG]
    visible |= torch.eye(visible.shape[1], dtype=torch.bool, device=ids.device)
    behind = torch.cat((present.expand(-1, visible.shape[1], -1), visible), dim=2)
    masks = (_added(present[:, None], dtype), _added(behind[:, None], dtype))
    asked, num_before = None, num_context
    if only_edges:
        edges, num_gap = batch.edges.flatten(1), visible.shape[1]
        num_before = edges.shape[1]
        gaps = torch.arange(num_context, num_context + num_gap, device=ids.device).expand(len(ids), -1)
        alone = F.pad(masks[0], (0, num_gap), value=-torch.inf).expand(-1, -1, num_before, -1)
        asked = torch.cat((edges, gaps), dim=1), torch.cat((alone, masks[1]), dim=2)
    hidden, _ = model.transformer(ids, model.by_head(positions), mask=masks, asked=asked)
    return hidden[:, :num_before], hidden[:, num_before:].unflatten(1, batch.gap_ids.shape[1:])


def _added(allowed: Tensor, dtype: torch.dtype) -> Tensor:
    """A mask for all layers: attention would make one of each bool mask in every layer again."""
    return torch.zeros(allowed.shape, dtype=dtype, device=allowed.device).masked_fill_(~allowed, -torch.inf)


def span_loss(model: Embedded, batch: "TensorBatch", nats: SumNats = fused_nats) -> Losses:
    """Mean cross-entropy over all that is asked for, unweighted but for deletes, plus the length head's.

    Of a part of a batch its share of the batch's mean.
    """
    on_cpu = batch.edges.device.type == "cpu"  # masked attention of other lengths gives a GPU NaN: train.check_rows
    context_hidden, gap_hidden = span_hidden(model, batch, only_edges=on_cpu)
    asked = gap_hidden.flatten(0, 2)[batch.places]  # [M, D]
    targets, weights = batch.targets.flatten()[batch.places], batch.weights.flatten()[batch.places]
    token = nats(asked, targets, weights / batch.weight_sum, head_of(model))
    pairs = context_hidden if on_cpu else take(context_hidden, batch.edges.flatten(1))
    scores = model.length_head(pairs.reshape(*batch.edges.shape[:2], -1)).float().flatten(0, 1)  # of [B, K, 2D]
    length = F.cross_entropy(scores, batch.buckets.flatten(), ignore_index=-1, reduction="sum") / batch.num_gaps
    return Losses(token + LENGTH_WEIGHT * length, token.detach(), length.detach())


@dataclass(frozen=True)
class TensorBatch:
    """`Batch` on a device, same names and shapes.

    `places` [M]: which of the gaps' positions have a loss, flat, so that a GPU need not be asked. `weight_sum` and
    `num_gaps` are the sums of the weights and the gaps in the whole batch of which these rows are a part.
    """

    context_ids: Tensor
    context_positions: Tensor
    gap_ids: Tensor
    gap_positions: Tensor
    groups: Tensor
    sees: Tensor
    ranks: Tensor
    targets: Tensor
    weights: Tensor
    edges: Tensor
    buckets: Tensor
    places: Tensor
    weight_sum: float
    num_gaps: int


def to_device(batch: Batch, device: torch.device, whole: Batch | None = None) -> TensorBatch:
    """`batch` on `device`; from pinned memory where that is a GPU, so that the copies wait for nothing."""
    whole = whole or batch
    arrays = {**vars(batch), "places": np.flatnonzero(batch.weights)}
    return TensorBatch(
        **{name: move(torch.from_numpy(value), device) for name, value in arrays.items()},
        weight_sum=float(whole.weights.sum()),
        num_gaps=int((whole.buckets >= 0).sum()),
    )


def move(tensor: Tensor, device: torch.device) -> Tensor:
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)
