"""The losses: causal next token, and masked tokens of gaps over an isolated context. Knows the model and batches."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from midfill_engine.models.embedded import PAD, Embedded
from training.data.rows import Batch

LENGTH_WEIGHT = 0.1


@dataclass(frozen=True)
class Losses:
    """`total` is what is trained on; the others are means in nats for the log."""

    total: Tensor
    token: Tensor
    length: Tensor


def causal_loss(model: Embedded, ids: Tensor) -> Losses:
    """Next-token loss of `ids` [B, T + 1]; all heads count from the left."""
    positions = torch.arange(ids.shape[1] - 1, device=ids.device).expand(ids.shape[0], -1)
    hidden, _ = model.transformer(ids[:, :-1], positions, causal=True)
    loss = F.cross_entropy(model.transformer.logits(hidden).flatten(0, 1), ids[:, 1:].flatten())
    return Losses(loss, loss.detach(), torch.zeros_like(loss))


def isolation_mask(context_ids: Tensor, gap_ids: Tensor) -> Tensor:
    """Who sees whom: [B, 1, T, T] over context, copy 1, copy 2. Context sees context; a copy sees that and itself.

    `context_ids` [B, C], `gap_ids` [B, 2, G]; padding is seen by none.
    """
    num_context, num_gap = context_ids.shape[1], gap_ids.shape[2]
    group = torch.arange(3, device=gap_ids.device).repeat_interleave(
        torch.tensor([num_context, num_gap, num_gap], device=gap_ids.device)
    )
    allowed = (group[None, :] == 0) | (group[None, :] == group[:, None])  # [T, T]
    present = torch.cat((context_ids, gap_ids.flatten(1)), dim=1) != PAD  # [B, T]
    return (allowed & present[:, None, :])[:, None]


def span_hidden(model: Embedded, batch: "TensorBatch") -> tuple[Tensor, Tensor]:
    """One masked forward of context and both copies -> hidden of the context [B, C, D] and of the gaps [B, 2, G, D]."""
    context, gaps = batch.context_ids, batch.gap_ids
    ids = torch.cat((context, gaps.flatten(1)), dim=1)
    gap_positions = model.by_head(batch.gap_positions)  # [B, H, G]
    positions = torch.cat(
        (model.by_head(batch.context_positions[:, None].expand(-1, 2, -1)), gap_positions, gap_positions), -1
    )
    hidden, _ = model.transformer(ids, positions, mask=isolation_mask(context, gaps))
    return hidden[:, : context.shape[1]], hidden[:, context.shape[1] :].unflatten(1, (2, -1))


def span_loss(model: Embedded, batch: "TensorBatch") -> Losses:
    """Mean cross-entropy over masked tokens, unweighted but for deletes, plus the length head's."""
    context_hidden, gap_hidden = span_hidden(model, batch)
    chosen = batch.weights > 0  # [B, 2, G]
    logits = model.transformer.logits(gap_hidden[chosen])  # [M, V]
    targets = batch.targets[:, None].expand_as(chosen)[chosen]
    weights = batch.weights[chosen]
    token = (F.cross_entropy(logits.float(), targets, reduction="none") * weights).sum() / weights.sum()
    rows = torch.arange(len(context_hidden), device=token.device)[:, None, None]
    pairs = context_hidden[rows, batch.edges].flatten(2)  # [B, K, 2D]
    length = F.cross_entropy(model.length_head(pairs).flatten(0, 1), batch.buckets.flatten(), ignore_index=-1)
    return Losses(token + LENGTH_WEIGHT * length, token.detach(), length.detach())


@dataclass(frozen=True)
class TensorBatch:
    """`Batch` on a device, same names and shapes."""

    context_ids: Tensor
    context_positions: Tensor
    gap_ids: Tensor
    gap_positions: Tensor
    targets: Tensor
    weights: Tensor
    edges: Tensor
    buckets: Tensor


def to_device(batch: Batch, device: torch.device) -> TensorBatch:
    return TensorBatch(
        **{name: torch.from_numpy(value).to(device, non_blocking=True) for name, value in vars(batch).items()}
    )
