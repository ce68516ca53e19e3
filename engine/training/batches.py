"""The transformer over batches of equal length, with gradients. Knows tensors; no tokens' meaning, no requests.

The engine runs the same weights in `models/packed.py`, many requests at once and without gradients.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from midfill_engine.models.transformer import MLP, Attention, Transformer, TransformerBlock, rotary_tables, rotate


class BatchAttention(Attention):
    def forward(self, x: Tensor, tables: tuple[Tensor, Tensor], mask: Any, causal: bool) -> Tensor:
        batch, length, _ = x.shape
        head_dim = self.config.head_dim
        query = self.q_norm(self.q(x).view(batch, length, -1, head_dim)).transpose(1, 2)  # [B, H, T, E]
        key = self.k_norm(self.k(x).view(batch, length, -1, head_dim)).transpose(1, 2)  # [B, K, T, E]
        value = self.v(x).view(batch, length, -1, head_dim).transpose(1, 2)  # [B, K, T, E]
        mixed = _mix(rotate(query, *tables), rotate(key, *tables), value, mask, causal)
        out: Tensor = self.out(mixed.transpose(1, 2).flatten(2))
        return out


def _mix(query: Tensor, key: Tensor, value: Tensor, mask: Any, causal: bool) -> Tensor:
    """Attention. A FlexAttention block mask skips blocks that are masked completely."""
    grouped = query.shape[1] != key.shape[1]
    if mask is None or isinstance(mask, Tensor):
        return F.scaled_dot_product_attention(query, key, value, mask, is_causal=causal, enable_gqa=grouped)
    from torch.nn.attention.flex_attention import flex_attention  # a second of imports that a CPU run does not need

    mixed: Tensor = flex_attention(query, key, value, block_mask=mask, enable_gqa=grouped)
    return mixed


class BatchMLP(MLP):
    def forward(self, x: Tensor) -> Tensor:
        up: Tensor = self.up(x)
        hidden = F.relu(up).square() if self.gate is None else F.silu(self.gate(x)) * up
        return self.down(hidden)  # type: ignore[no-any-return]


class BatchBlock(TransformerBlock):
    def forward(self, x: Tensor, tables: tuple[Tensor, Tensor], mask: Any, causal: bool) -> Tensor:
        x = x + self.attention(self.attention_norm(x), tables, mask, causal)
        return x + self.mlp(self.mlp_norm(x))  # type: ignore[no-any-return]


def enable_batches(transformer: Transformer) -> Transformer:
    """Gives the layers of `transformer` the forward passes above; the engine's passes stay as they are."""
    for block in transformer.blocks:
        assert isinstance(block, TransformerBlock)
        block.__class__, block.attention.__class__ = BatchBlock, BatchAttention
        if isinstance(block.mlp, MLP):
            block.mlp.__class__ = BatchMLP
    return transformer


def run_batch(
    transformer: Transformer, ids: Tensor, positions: Tensor, mask: Any = None, *, causal: bool = False
) -> Tensor:
    """The normed hidden states [B, T, D] of `ids` [B, T] at `positions` [B, T], after `enable_batches`.

    `mask` is broadcastable to [B, H, T, T], true where attention is allowed, or a block mask; None allows all.
    """
    x = transformer.embedding(ids)
    if torch.is_grad_enabled():
        x.requires_grad_()  # one compiled graph serves the first block and the others
    tables = rotary_tables(positions, transformer.config, x.dtype)
    for block in transformer.blocks:
        x = block(x, tables, mask, causal)
    states: Tensor = transformer.final_norm(x)
    return states
