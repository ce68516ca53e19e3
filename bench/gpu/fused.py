"""Random weights of a shape for the fused transformer: speed depends on sizes alone."""

import torch
from torch import Tensor

from midfill_engine.models.fused import FusedModel, Layer, heads_of, make_cache
from midfill_engine.models.transformer import TransformerConfig
from midfill_kernels.quantize import Format, Weight, pack


def make_random(
    config: TransformerConfig, format: Format, num_slots: int, device: torch.device, dtype: torch.dtype = torch.bfloat16
) -> FusedModel:
    """Weights drawn so that activations stay near 1."""
    heads = heads_of(config)

    def draw(num_columns: int, width: int) -> Weight:
        return pack(torch.randn(num_columns, width, device=device, dtype=dtype) * width**-0.5, format)

    def ones(width: int) -> Tensor:
        return torch.ones(width, device=device, dtype=dtype)

    layers = [
        Layer(
            ones(config.dim),
            draw(heads.columns, config.dim),
            torch.randn(heads.columns, device=device, dtype=dtype) * 0.1 if config.attention_bias else None,
            (ones(heads.width), ones(heads.width)) if heads.norm else None,
            draw(config.dim, heads.query * heads.width),
            ones(config.dim),
            draw(2 * config.mlp_dim, config.dim),
            draw(config.dim, config.mlp_dim),
        )
        for _ in range(config.num_layers)
    ]
    embedding = torch.randn(config.vocab_size, config.dim, device=device, dtype=dtype)
    head = draw(config.vocab_size, config.dim)
    return FusedModel(config, embedding, layers, ones(config.dim), head, make_cache(config, num_slots, device, dtype))
