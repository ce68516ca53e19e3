"""Refits the length head of a finished model on its frozen context states. Knows the head; trains nothing else.

Most rows of the training have as many gaps as fit, so the head comes to take a gap that is alone for a body. Here rows
have as many gaps as requests have.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from midfill_engine.families.embedded import Embedded
from midfill_engine.loading import checkpoint
from midfill_engine.tokens.special import PAD
from midfill_engine.tokens.tokenizer import Tokenizer
from training.data.pack import Pack, read_pack
from training.data.rows import AS_REQUESTED, Noise, RowShape, collate, draw_example
from training.objective import TensorBatch, to_device

BATCH_ROWS: Final = 16


@dataclass(frozen=True)
class LengthFit:
    """Cross-entropy in nats of the true bucket on held-out packages, before and after; chance is log(24) = 3.18."""

    before: float
    after: float


def refit(folder: Path, pack: Path, num_rows: int = 4000, decay: float = 0.03, device: str = "cpu") -> LengthFit:
    """Rewrites the checkpoint in `folder` with a head fitted to `num_rows` training rows, if that is better.

    The states are computed on `device`, the head is fitted on the CPU.
    """
    loaded = checkpoint.load(folder)
    model, config = loaded.model.to(device), loaded.config
    shape = RowShape(config.max_context, config.max_hole, config.hole_span)
    states, buckets = edge_states(model, loaded.tokenizer, read_pack(pack, "train"), shape, num_rows)
    held_states, held_buckets = edge_states(
        model, loaded.tokenizer, read_pack(pack, "validation"), shape, num_rows // 5
    )
    model.cpu()
    before = float(F.cross_entropy(model.length_head(held_states), held_buckets))
    old = {name: value.clone() for name, value in model.length_head.state_dict().items()}
    fit_head(model, states, buckets, decay)
    after = float(F.cross_entropy(model.length_head(held_states), held_buckets))
    if after >= before:
        model.length_head.load_state_dict(old)
    config.training["length_head"] = json.dumps({"rows": num_rows, "nats_before": before, "nats_after": after})
    checkpoint.save(folder, model, loaded.tokenizer, "int8")
    return LengthFit(before, after)


@torch.no_grad()
def edge_states(
    model: Embedded, tokenizer: Tokenizer, pack: Pack, shape: RowShape, num_rows: int
) -> tuple[Tensor, Tensor]:
    """The states on both sides [M, 2D] of the gaps of `num_rows` rows, and the buckets [M] of their lengths.

    Computed where the model is; on the CPU.
    """
    rng, states, buckets = np.random.default_rng(99), [], []
    device = model.length_head.weight.device
    for _ in range(max(1, num_rows // BATCH_ROWS)):
        examples = [draw_example(pack, tokenizer, shape, rng, AS_REQUESTED) for _ in range(BATCH_ROWS)]
        batch = to_device(collate(examples, shape, Noise(), rng), device)
        is_gap = batch.buckets >= 0
        states.append(_pairs(model, batch)[is_gap].cpu())
        buckets.append(batch.buckets[is_gap].cpu())
    return torch.cat(states), torch.cat(buckets)


def _pairs(model: Embedded, batch: TensorBatch) -> Tensor:
    present = (batch.context_ids != PAD)[:, None, None]  # [B, 1, 1, C]
    hidden, _ = model.transformer(batch.context_ids, batch.context_positions, mask=present)
    rows = torch.arange(len(hidden), device=hidden.device)[:, None, None]
    pairs: Tensor = hidden[rows, batch.edges].flatten(2)  # [B, K, 2D]
    return pairs


def fit_head(model: Embedded, states: Tensor, buckets: Tensor, decay: float) -> None:
    """Logistic regression with squared-norm decay towards the weights it starts from, solved by L-BFGS."""
    head = model.length_head.requires_grad_(True)
    trained = head.weight.detach().clone()
    optimizer = torch.optim.LBFGS(head.parameters(), max_iter=200, line_search_fn="strong_wolfe")

    def loss() -> float:
        optimizer.zero_grad()
        value = F.cross_entropy(head(states), buckets) + decay * (head.weight - trained).square().sum()
        value.backward()  # type: ignore[no-untyped-call]
        return float(value.detach())

    optimizer.step(loss)  # type: ignore[no-untyped-call]
    head.requires_grad_(False)
