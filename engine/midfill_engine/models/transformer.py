"""The layers and weights of every family's transformer; `packed.py` computes them. Knows tensors, no tokens."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, overload

import torch
from torch import Tensor, nn

from midfill_engine.models.moe import MixtureOfExperts, MoEConfig

KeyValues = Sequence[tuple[Tensor, Tensor]]  # of each layer: keys (rotated) and values [1, heads, positions, width]


class StackedKeys(Sequence[tuple[Tensor, Tensor]]):
    """The `keys` and `values` of all layers, each in one tensor [L, 1, K, T, E], so that selecting, storing and copying
    takes one or two operations in all, not two for each layer.
    """

    def __init__(self, keys: Tensor, values: Tensor) -> None:
        self.keys, self.values = keys, values

    @classmethod
    def of(cls, layers: KeyValues) -> "StackedKeys":
        """`layers` in two tensors; copies them unless they are already StackedKeys."""
        if isinstance(layers, StackedKeys):
            return layers
        return cls(torch.stack([key for key, _ in layers]), torch.stack([value for _, value in layers]))

    def __len__(self) -> int:
        return len(self.keys)

    @overload
    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]: ...
    @overload
    def __getitem__(self, index: slice) -> "StackedKeys": ...
    def __getitem__(self, index: int | slice) -> "tuple[Tensor, Tensor] | StackedKeys":
        keys, values = self.keys[index], self.values[index]
        if isinstance(index, slice):
            return StackedKeys(keys, values)
        return keys, values

    def take(self, positions: slice | Tensor) -> "StackedKeys":
        """The keys and values at `positions`, as views if these are a slice."""
        return StackedKeys(self.keys[:, :, :, positions], self.values[:, :, :, positions])


@dataclass(frozen=True)
class Yarn:
    """Stretches rotary frequencies by `factor` (YaRN, arXiv 2309.00071, section 3.2). Those with more than `beta_fast`
    rotations in `original` positions stay, those with fewer than `beta_slow` are divided, those between are a mixture.
    """

    factor: float
    original: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0

    def stretch(self, frequencies: Tensor, base: float) -> Tensor:
        """The stretched `frequencies` [E / 2], which belong to the rotary `base`."""
        dim = 2 * len(frequencies)
        first = max(math.floor(self._find_dimension(self.beta_fast, dim, base)), 0)
        last = min(math.ceil(self._find_dimension(self.beta_slow, dim, base)), dim - 1)
        ramp = (torch.arange(len(frequencies), device=frequencies.device) - first) / max(last - first, 0.001)
        kept_share = 1 - ramp.clamp(0, 1)
        return frequencies / self.factor * (1 - kept_share) + frequencies * kept_share

    def _find_dimension(self, num_rotations: float, dim: int, base: float) -> float:
        """The dimension (a fraction) that rotates `num_rotations` times in `original` positions."""
        return dim * math.log(self.original / (2 * math.pi * num_rotations)) / (2 * math.log(base))


@dataclass(frozen=True)
class TransformerConfig:
    """The shape of a transformer. Every default is a choice of the embedded family; other families override it.
    `rope_dim` dimensions of a head are rotated, None for all. The first `num_dense_layers` have no experts.
    """

    vocab_size: int
    dim: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    mlp_dim: int
    mlp: Literal["relu2", "swiglu"] = "relu2"
    norm_eps: float = 1e-6
    norm_gain: bool = False
    qk_norm: bool = True
    attention_bias: bool = False
    rope_base: float = 10_000.0
    rope_dim: int | None = None
    yarn: Yarn | None = None
    tied_head: bool = True
    moe: MoEConfig | None = None
    num_dense_layers: int = 0

    @property
    def rotary_dim(self) -> int:
        """The number of a head's dimensions that are rotated."""
        return self.head_dim if self.rope_dim is None else self.rope_dim

    def frequencies(self, device: torch.device) -> Tensor:
        """By what angles a head's dimensions rotate from one position to the next, [rotary_dim / 2] in fp32."""
        exponents = torch.arange(0, self.rotary_dim, 2, device=device, dtype=torch.float32) / self.rotary_dim
        plain = self.rope_base**-exponents
        if self.yarn is None:
            return plain
        return self.yarn.stretch(plain, self.rope_base)


def rotary_tables(positions: Tensor, config: TransformerConfig, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cosines and sines [B, 1 or H, T, rotary_dim/2] for `positions` [B, T], or [B, H, T] if heads count differently.
    Angles are computed in fp32, because bf16 cannot count beyond 256.
    """
    if positions.dim() == 2:
        positions = positions[:, None]
    angles = positions.float()[..., None] * config.frequencies(positions.device)
    return angles.cos().to(dtype), angles.sin().to(dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotates `x` [B, H, T, E] in the half-split layout (GPT-NeoX's); dimensions beyond the tables stay."""
    half = cos.shape[-1]
    left, right, unrotated = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    rotated_left = torch.addcmul(left * cos, right, sin, value=-1)
    rotated_right = torch.addcmul(right * cos, left, sin)
    return torch.cat((rotated_left, rotated_right, unrotated), dim=-1)


class Attention(nn.Module):
    """The weights of a layer's attention."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        q_dim = config.num_heads * config.head_dim
        kv_dim = config.num_kv_heads * config.head_dim
        self.q = nn.Linear(config.dim, q_dim, bias=config.attention_bias)
        self.k = nn.Linear(config.dim, kv_dim, bias=config.attention_bias)
        self.v = nn.Linear(config.dim, kv_dim, bias=config.attention_bias)
        self.out = nn.Linear(q_dim, config.dim, bias=False)
        self.q_norm = make_head_norm(config)
        self.k_norm = make_head_norm(config)


def make_head_norm(config: TransformerConfig) -> nn.Module:
    if not config.qk_norm:
        return nn.Identity()
    return nn.RMSNorm(config.head_dim, config.norm_eps, config.norm_gain)


class MLP(nn.Module):
    """The weights of a layer's MLP: SwiGLU with a `gate`, ReLU^2 without."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.gate = nn.Linear(config.dim, config.mlp_dim, bias=False) if config.mlp == "swiglu" else None
        self.up = nn.Linear(config.dim, config.mlp_dim, bias=False)
        self.down = nn.Linear(config.mlp_dim, config.dim, bias=False)


class TransformerBlock(nn.Module):
    def __init__(self, config: TransformerConfig, index: int) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(config.dim, config.norm_eps, config.norm_gain)
        self.attention = Attention(config)
        self.mlp_norm = nn.RMSNorm(config.dim, config.norm_eps, config.norm_gain)
        self.mlp: MLP | MixtureOfExperts
        if config.moe is None or index < config.num_dense_layers:
            self.mlp = MLP(config)
        else:
            self.mlp = MixtureOfExperts(config.dim, config.moe)


class Embedding(nn.Embedding):
    """An embedding without random initialization on the meta device, which would import for seconds."""

    def reset_parameters(self) -> None:
        if not self.weight.is_meta:
            super().reset_parameters()


class Transformer(nn.Module):
    """A transformer with RMSNorm, rotary positions, grouped-query attention, ReLU^2 or SwiGLU, and biases and q/k norm
    as its config says. Hidden states between layers have the `state_dtype`, or the compute type if it is None.
    """

    state_dtype: torch.dtype | None = None

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = Embedding(config.vocab_size, config.dim)
        blocks = nn.ModuleList(TransformerBlock(config, index) for index in range(config.num_layers))
        self.blocks: Sequence[TransformerBlock] = blocks  # type: ignore[assignment]
        self.final_norm = nn.RMSNorm(config.dim, config.norm_eps, config.norm_gain)
        self.head = None if config.tied_head else nn.Linear(config.dim, config.vocab_size, bias=False)

    @property
    def dtype(self) -> torch.dtype:
        """The compute type. The embedding may be stored in another type."""
        return self.blocks[0].attention.q.weight.dtype


def head_weight(transformer: Transformer) -> Tensor:
    """The head's matrix [V, D], which is the embedding if both are tied."""
    return transformer.embedding.weight if transformer.head is None else transformer.head.weight
