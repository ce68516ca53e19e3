"""The transformer's forward pass with Midfill's GPU kernels, for many sequences at once. R rows in all, L layers."""

from bisect import bisect_left
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from midfill_engine.models.moe import MixtureOfExperts
from midfill_engine.models.operators import TorchOperators
from midfill_engine.models.transformer import Transformer, TransformerBlock, TransformerConfig, head_weight
from midfill_kernels.cached_attention import CachedSchedule, cached_attention
from midfill_kernels.experts import Experts, mix_experts
from midfill_kernels.launch import ROW_BUCKETS
from midfill_kernels.matmul import gated_matmul, matmul
from midfill_kernels.norm import add_rms_norm
from midfill_kernels.rotary import Heads, norm_rotate_store


@dataclass(frozen=True)
class Sizes:
    """How much work the steps on kernels have room for. Each number of rows in `buckets` has a graph of its own."""

    buckets: tuple[int, ...] = ROW_BUCKETS
    long_rows: int = 512  # a pass of so many rows goes to torch, which is as fast: its products are compute-bound
    blocks: int = 64  # groups of rows of a pass, each of which sees the same keys: rows of a block, or a causal row
    rules: int = 32  # sets of allowed tokens in one step; the first allows all
    slots: int = 4096  # initial number of tokens in the pool
    runs: int = 24  # splits of keys for each row of a branch step; of 128 keys each, so 3,072 keys
    words: int = 32  # 64-bit words of seen keys for each row of a branch step

    def bucket_of(self, num_rows: int) -> int:
        """The smallest bucket that has room for `num_rows` rows."""
        return self.buckets[bisect_left(self.buckets, num_rows)]


@dataclass(frozen=True)
class Layer:
    """Weights: `qkv` [(H + 2K)E, D], `out` [D, HE], `up` [2F, D] with the gate's rows first, `down` [D, F]. The
    `head_gains` belong to the norms of queries and keys. In a mixture of `experts`, `up` and `down` are those of the
    expert that every row goes through, None without one.
    """

    attention_gain: Tensor | None
    qkv: Tensor
    bias: Tensor | None
    head_gains: tuple[Tensor, Tensor] | None
    out: Tensor
    mlp_gain: Tensor | None
    up: Tensor | None
    down: Tensor | None
    experts: MixtureOfExperts | None = None


@dataclass(frozen=True)
class Rows:
    """A step's rotary `tables` [R, E / 2], its attention work, and `own` [L, 2, R, K, E], which receives its keys and
    values. The work of branches is relative to an `anchor`, because their keys are outside the model's cache.
    """

    tables: tuple[Tensor, Tensor]
    schedule: CachedSchedule
    own: Tensor
    anchor: Tensor | None = None


@dataclass(frozen=True)
class FusedModel:
    """A transformer's weights as the kernels take them. `cache` [L, 2, slots, K, E] has earlier keys and values."""

    config: TransformerConfig
    embedding: Tensor
    layers: list[Layer]
    final_gain: Tensor | None
    head: Tensor
    cache: Tensor

    @property
    def heads(self) -> Heads:
        config = self.config
        return Heads(config.num_heads, config.num_kv_heads, config.head_dim, config.qk_norm, config.norm_eps)

    def hidden(self, ids: Tensor, rows: Rows) -> Tensor:
        """The normed states [R, D] of `ids` [R], which the head reads; writes keys and values into `rows.own`."""
        parts = self.embedding[ids][None]
        stream = None
        for index, (layer, cached, (keys, values)) in enumerate(zip(self.layers, self.cache, rows.own, strict=True)):
            stream, normed = add_rms_norm(parts, stream, layer.attention_gain, self.config.norm_eps)
            qkv = matmul(normed, layer.qkv)
            q = norm_rotate_store(qkv, self.heads, rows.tables, keys, values, bias=layer.bias, gains=layer.head_gains)
            cache = (cached[0], cached[1]) if rows.anchor is None else (rows.anchor, rows.anchor)
            mixed = cached_attention(q, (keys, values), cache, rows.schedule, layer=index)
            parts = matmul(mixed, layer.out)
            stream, normed = add_rms_norm(parts, stream, layer.mlp_gain, self.config.norm_eps)
            parts = self._feed_forward(layer, normed)
        return add_rms_norm(parts, stream, self.final_gain, self.config.norm_eps)[1]

    def _feed_forward(self, layer: Layer, normed: Tensor) -> Tensor:
        """The layer's MLP or experts as partial sums [S, R, D] in fp32."""
        sums: list[Tensor] = []
        if layer.experts is not None:
            logits = matmul(normed, layer.experts.router.weight).sum(dim=0)  # torch's depends on the rows beside
            chosen, weights = layer.experts.route(logits, normed.dtype)
            sums.append(mix_experts(normed, matrices_of(layer.experts), chosen, weights))
        if layer.up is not None and layer.down is not None:
            sums.append(matmul(gated_matmul(normed, layer.up, self.embedding.dtype), layer.down))
        return sums[0] if len(sums) == 1 else torch.cat(sums)


def matrices_of(experts: MixtureOfExperts) -> Experts:
    return Experts(experts.gate, experts.up, experts.down)


class ExpertOperators(TorchOperators):
    """torch's operators, but for experts, whose kernel takes any number of rows, a part of them at a time."""

    def mix(self, experts: MixtureOfExperts, rows: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
        if not len(rows):
            return rows
        matrices, mixed = matrices_of(experts), []
        for start in range(0, len(rows), ROW_BUCKETS[-1]):
            part = slice(start, start + ROW_BUCKETS[-1])
            sums = mix_experts(rows[part], matrices, chosen[part], weights[part])
            mixed.append(sums.sum(dim=0).to(rows.dtype))
        return torch.cat(mixed)


def make_room(config: TransformerConfig, num_rows: int, like: Tensor) -> Tensor:
    """Memory for keys and values, [L, 2, num_rows, K, E]. It is random, so that reading an unwritten row is noticed."""
    size = (config.num_layers, 2, num_rows, config.num_kv_heads, config.head_dim)
    return torch.randn(size, device=like.device, dtype=like.dtype)


def pack_transformer(transformer: Transformer, num_slots: int) -> FusedModel:
    """The weights of `transformer`, shared and not copied, and a cache of `num_slots`. Gated layers only."""
    config = transformer.config
    embedding = transformer.embedding.weight.detach()
    return FusedModel(
        config,
        embedding,
        [_pack_block(block) for block in transformer.blocks],
        transformer.final_norm.weight,
        head_weight(transformer).detach().contiguous(),
        make_room(config, num_slots, embedding),
    )


def _pack_block(block: TransformerBlock) -> Layer:
    attention, mlp = block.attention, block.mlp
    experts: MixtureOfExperts | None = None
    gate_up_down: list[nn.Linear] = []
    if isinstance(mlp, MixtureOfExperts):
        experts = mlp
        if mlp.shared is not None:
            gate_up_down = [mlp.shared["gate"], mlp.shared["up"], mlp.shared["down"]]  # type: ignore[list-item]
    else:
        assert mlp.gate is not None, "gated layers only"
        gate_up_down = [mlp.gate, mlp.up, mlp.down]
    qkv = [attention.q, attention.k, attention.v]
    bias = None
    if attention.q.bias is not None:
        bias = torch.cat([linear.bias.detach() for linear in qkv])
    norms = [norm.weight for norm in (attention.q_norm, attention.k_norm) if isinstance(norm, nn.RMSNorm)]
    gains = [gain.detach() for gain in norms if gain is not None]
    return Layer(
        block.attention_norm.weight,
        _join(qkv),
        bias,
        (gains[0], gains[1]) if len(gains) == 2 else None,
        attention.out.weight.detach().contiguous(),
        block.mlp_norm.weight,
        _join(gate_up_down[:2]) if gate_up_down else None,
        gate_up_down[2].weight.detach().contiguous() if gate_up_down else None,
        experts,
    )


def _join(linears: list[nn.Linear]) -> Tensor:
    """The matrices of `linears`, concatenated; they become views of the result, so that none is in memory twice."""
    joined = torch.cat([linear.weight.detach() for linear in linears])
    for linear, part in zip(linears, torch.split(joined, [linear.out_features for linear in linears]), strict=True):
        linear.weight = nn.Parameter(part, requires_grad=False)
    return joined
