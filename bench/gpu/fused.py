"""Random weights of a shape for the fused transformer: speed depends on sizes alone."""

import torch
from torch import Tensor

from midfill_engine.models.fused import FusedModel, Layer, Shape, make_cache
from midfill_kernels.quantize import Format, Weight, pack


def make_random(
    shape: Shape, format: Format, num_slots: int, device: torch.device, dtype: torch.dtype = torch.bfloat16
) -> FusedModel:
    """Weights drawn so that activations stay near 1."""
    heads = shape.heads

    def draw(num_columns: int, width: int) -> Weight:
        return pack(torch.randn(num_columns, width, device=device, dtype=dtype) * width**-0.5, format)

    def ones(width: int) -> Tensor:
        return torch.ones(width, device=device, dtype=dtype)

    layers = [
        Layer(
            ones(shape.dim),
            draw(heads.columns, shape.dim),
            torch.randn(heads.columns, device=device, dtype=dtype) * 0.1 if shape.bias else None,
            (ones(heads.width), ones(heads.width)) if heads.norm else None,
            draw(shape.dim, heads.query * heads.width),
            ones(shape.dim),
            draw(2 * shape.mlp_dim, shape.dim),
            draw(shape.dim, shape.mlp_dim),
        )
        for _ in range(shape.num_layers)
    ]
    embedding = torch.randn(shape.vocabulary, shape.dim, device=device, dtype=dtype)
    head = draw(shape.vocabulary, shape.dim)
    return FusedModel(shape, embedding, layers, ones(shape.dim), head, make_cache(shape, num_slots, device, dtype))
