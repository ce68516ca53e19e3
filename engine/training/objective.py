"""The losses: causal next token, and masked tokens of gaps over an isolated context. Knows the model and batches."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from midfill_engine.families.embedded import Embedded
from midfill_engine.tokens.special import PAD
from training.data.rows import Batch

LENGTH_WEIGHT = 0.1


@dataclass(frozen=True)
class Losses:
    """`total` is what is trained on; the others are means in nats for the log."""

    total: Tensor
    token: Tensor
    length: Tensor


def causal_loss(model: Embedded, ids: Tensor) -> Losses:
    """Next-token loss of `ids` [B, T + 1], none where padding is next; all heads count from the left."""
    positions = torch.arange(ids.shape[1] - 1, device=ids.device).expand(ids.shape[0], -1)
    hidden, _ = model.transformer(ids[:, :-1], positions, causal=True)
    loss = F.cross_entropy(model.transformer.logits(hidden).flatten(0, 1), ids[:, 1:].flatten(), ignore_index=PAD)
    return Losses(loss, loss.detach(), torch.zeros_like(loss))


def span_hidden(model: Embedded, batch: "TensorBatch") -> tuple[Tensor, Tensor]:
    """Hidden states of the context [B, C, D] and of both copies of the gaps [B, 2, G, D], as the engine computes them.

    The context goes through alone; then each copy, seeing the context's keys and values and itself. Padding is seen by
    none. Two passes cost less attention than one with a mask over all, and need no mask but for the padding.
    """
    present = batch.context_ids != PAD  # [B, C]
    hidden, context = model.transformer(batch.context_ids, batch.context_positions, mask=present[:, None, None])
    gap_ids = batch.gap_ids.flatten(0, 1)  # [2B, G]: both copies of a row, then of the next
    visible = torch.cat((present.repeat_interleave(2, dim=0), gap_ids != PAD), dim=1)  # [2B, C + G]
    gaps, _ = model.transformer(
        gap_ids,
        model.by_head(batch.gap_positions).repeat_interleave(2, dim=0),  # [2B, H, G]
        mask=visible[:, None, None],
        past=[(key.repeat_interleave(2, dim=0), value.repeat_interleave(2, dim=0)) for key, value in context],
    )
    return hidden, gaps.unflatten(0, (-1, 2))


Hidden = Callable[[Embedded, "TensorBatch"], tuple[Tensor, Tensor]]


def span_loss(model: Embedded, batch: "TensorBatch", certainty: float = 0.0, hidden: Hidden = span_hidden) -> Losses:
    """Mean cross-entropy over masked tokens, unweighted but for deletes, plus the length head's.

    `certainty` is the weight of `certainty_loss`; `hidden` says who sees whom.
    """
    context_hidden, gap_hidden = hidden(model, batch)
    chosen = batch.weights > 0  # [B, 2, G]
    logits = model.transformer.logits(gap_hidden[chosen])  # [M, V]
    targets = batch.targets[:, None].expand_as(chosen)[chosen]
    weights = batch.weights[chosen]
    token = (F.cross_entropy(logits.float(), targets, reduction="none") * weights).sum() / weights.sum()
    rows = torch.arange(len(context_hidden), device=token.device)[:, None, None]
    pairs = context_hidden[rows, batch.edges].flatten(2)  # [B, K, 2D]
    length = F.cross_entropy(model.length_head(pairs).flatten(0, 1), batch.buckets.flatten(), ignore_index=-1)
    total = token + LENGTH_WEIGHT * length
    if certainty > 0:
        total = total + certainty * certainty_loss(logits.float(), targets)
    return Losses(total, token.detach(), length.detach())


def certainty_loss(logits: Tensor, targets: Tensor, temperature: float = 0.5) -> Tensor:
    """Mean entropy in nats of the sharpened scores [M, V] where the likeliest token is the target; 0 where none is.

    Certainty-forcing distillation (Chen et al. 2025, dParallel): what is right anyway is made sure early, so that more
    positions pass a threshold in one step. With complementary masks every token of a gap is asked for once.
    """
    right = logits.argmax(dim=-1) == targets
    log_shares = F.log_softmax(logits[right] / temperature, dim=-1)
    entropies = -(log_shares.exp() * log_shares).sum(dim=-1)
    return entropies.sum() / max(1, len(entropies))


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
