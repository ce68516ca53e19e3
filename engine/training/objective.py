"""The losses: causal next token, and masked tokens of gaps over an isolated context. Knows the model and batches."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
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

    @classmethod
    def sum(cls, parts: Sequence["Losses"]) -> "Losses":
        """A batch's losses from its parts'."""
        columns = zip(*((part.total, part.token, part.length) for part in parts), strict=True)
        return cls(*(torch.stack(column).sum() for column in columns))


def token_nats(hidden: Tensor, targets: Tensor, head: Tensor) -> Tensor:
    """Cross-entropy in fp32 of `targets` [M] under the vocabulary matrix `head` [V, D]; 0 where the target is padding.

    Compiled, it never holds the scores [M, V] in fp32.
    """
    return F.cross_entropy(F.linear(hidden, head).float(), targets, reduction="none", ignore_index=PAD)


TokenNats = Callable[[Tensor, Tensor, Tensor], Tensor]


def head_of(model: Embedded) -> Tensor:
    transformer = model.transformer
    return transformer.embedding.weight if transformer.head is None else transformer.head.weight


def causal_loss(model: Embedded, ids: Tensor, num_targets: float | None = None, nats: TokenNats = token_nats) -> Losses:
    """Next-token loss of `ids` [B, T + 1], none where padding is next; all heads count from the left.

    Over `num_targets` tokens where these are a part of more rows, so that the parts' losses add up to the whole's.
    """
    positions = torch.arange(ids.shape[1] - 1, device=ids.device).expand(ids.shape[0], -1)
    hidden, _ = model.transformer(ids[:, :-1], positions, causal=True)
    total = nats(hidden.flatten(0, 1), ids[:, 1:].flatten(), head_of(model)).sum()
    loss = total / ((ids[:, 1:] != PAD).sum() if num_targets is None else num_targets)
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


def span_loss(
    model: Embedded,
    batch: "TensorBatch",
    certainty: float = 0.0,
    hidden: Hidden = span_hidden,
    nats: TokenNats = token_nats,
) -> Losses:
    """Mean cross-entropy over masked tokens, unweighted but for deletes, plus the length head's.

    Of a part of a batch its share of the batch's mean. `certainty` is the weight of `certainty_loss`; `hidden` says who
    sees whom.
    """
    context_hidden, gap_hidden = hidden(model, batch)
    asked = gap_hidden.flatten(0, 2)[batch.places]  # [M, D]
    targets = batch.targets[:, None].expand_as(batch.weights).flatten()[batch.places]
    weights = batch.weights.flatten()[batch.places]
    token = (nats(asked, targets, head_of(model)) * weights).sum() / batch.weight_sum
    rows = torch.arange(len(context_hidden), device=token.device)[:, None, None]
    pairs = context_hidden[rows, batch.edges].flatten(2)  # [B, K, 2D]
    scores = model.length_head(pairs).flatten(0, 1)
    length = F.cross_entropy(scores, batch.buckets.flatten(), ignore_index=-1, reduction="sum") / batch.num_gaps
    total = token + LENGTH_WEIGHT * length
    if certainty > 0:
        share = weights.sum() / batch.weight_sum
        total = total + certainty * share * certainty_loss(model.transformer.logits(asked).float(), targets)
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
    """`Batch` on a device, same names and shapes.

    `places` [M]: which of the gaps' positions have a loss, flat, so that a GPU need not be asked. `weight_sum` and
    `num_gaps` are the sums of the weights and the gaps in the whole batch of which these rows are a part.
    """

    context_ids: Tensor
    context_positions: Tensor
    gap_ids: Tensor
    gap_positions: Tensor
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
