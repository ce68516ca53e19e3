"""The step built of kernels against the engine's transformer in plain torch, at toy size."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from bench.gpu.fused import make_random
from bench.gpu.shapes import TOY
from midfill_engine.models.fused import FusedModel, Rows, pack_transformer
from midfill_engine.models.fused_runner import new_own
from midfill_engine.models.transformer import Transformer, TransformerConfig
from midfill_kernels.cached_attention import CachedSequence, schedule_cached
from midfill_kernels.head import propose
from midfill_kernels.quantize import Weight, pack
from midfill_kernels.rotary import rotary_tables

QWEN_LIKE = TransformerConfig(
    vocab_size=70, dim=32, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=16, mlp_dim=48,
    mlp="swiglu", norm_gain=True, qk_norm=False, attention_bias=True, tied_head=False,
)  # fmt: skip
EMBEDDED_LIKE = TransformerConfig(
    vocab_size=70, dim=32, num_layers=2, num_heads=2, num_kv_heads=2, head_dim=16, mlp_dim=48
)
CONTEXTS, GAPS = (3, 6), (3, 1)


def draw(config: TransformerConfig, device: torch.device) -> Transformer:
    model = Transformer(config).to(device).eval().requires_grad_(False)
    for parameter in model.parameters():
        parameter.copy_(torch.randn_like(parameter) * (parameter.shape[-1] ** -0.5 if parameter.dim() == 2 else 1))
    return model


def positions_of(config: TransformerConfig, length: int, first: int) -> Tensor:
    """[P, T]: the embedded family counts from both sides, half of the heads each."""
    ahead = torch.arange(first, first + length)
    return ahead[None] if config is QWEN_LIKE else torch.stack((ahead, ahead + 40))


def by_head(config: TransformerConfig, positions: Tensor) -> Tensor:
    return positions if config is QWEN_LIKE else positions.repeat_interleave(config.num_heads // 2, dim=0)[None]


def run_plain(model: Transformer, context: Tensor, ids: Tensor) -> Tensor:
    """Logits [T, V] of a gap behind its context."""
    config = model.config
    where = by_head(config, positions_of(config, len(context), 0)).to(ids.device)
    _, past = model(context[None], where)
    hidden, _ = model(
        ids[None], by_head(config, positions_of(config, len(ids), len(context))).to(ids.device), past=past
    )
    return model.logits(hidden[0])


def encode_all(fused: FusedModel, config: TransformerConfig, contexts: Tensor) -> None:
    positions = torch.cat([positions_of(config, length, 0) for length in CONTEXTS], dim=1)
    fused.encode(contexts, positions, CONTEXTS, torch.arange(sum(CONTEXTS), device=contexts.device))


def cached_sequences() -> list[CachedSequence]:
    return [CachedSequence(GAPS[0], 0, CONTEXTS[0]), CachedSequence(GAPS[1], CONTEXTS[0], CONTEXTS[1])]


def open_rows(fused: FusedModel, positions: Tensor) -> Rows:
    heads, device = fused.shape.heads, fused.embedding.device
    return Rows(
        rotary_tables(positions.to(device), heads.width, fused.shape.rope_base),
        schedule_cached(cached_sequences(), (heads.query, heads.key_value), device, num_rows=sum(GAPS)),
        new_own(fused, sum(GAPS), 1),
        torch.arange(sum(GAPS), device=device),
    )


@pytest.mark.parametrize("config", [QWEN_LIKE, EMBEDDED_LIKE], ids=["qwen", "embedded"])
def test_a_step_agrees_with_the_engines_transformer(config: TransformerConfig, device: torch.device) -> None:
    model = draw(config, device)
    fused = pack_transformer(model, "plain", num_slots=32)
    contexts = torch.randint(0, 70, (sum(CONTEXTS),), device=device)
    ids = torch.randint(0, 70, (sum(GAPS),), device=device)
    encode_all(fused, config, contexts)
    positions = torch.cat(
        [positions_of(config, gap, context) for gap, context in zip(GAPS, CONTEXTS, strict=True)], dim=1
    )
    logits = torch.cat(
        [run_plain(model, context, gap) for context, gap in zip(contexts.split(CONTEXTS), ids.split(GAPS), strict=True)]
    )
    hidden = fused.hidden(ids, open_rows(fused, positions))
    torch.testing.assert_close(model.logits(hidden), logits, rtol=1e-3, atol=1e-3)
    proposals = propose(hidden, fused.head)
    assert torch.equal(proposals.ids, logits.argmax(dim=1))
    torch.testing.assert_close(proposals.probability, logits.softmax(dim=1).amax(dim=1), rtol=1e-3, atol=1e-4)


def test_int8_weights_stay_near_the_plain_step(device: torch.device) -> None:
    """The weights are those of the narrow model, widened, so that only the arithmetic differs."""
    narrow = make_random(replace(TOY, num_layers=1), "int8", 32, device, torch.float32)
    plain = replace(
        narrow,
        layers=[
            replace(layer, **{name: _widen(getattr(layer, name)) for name in ("qkv", "out", "up", "down")})
            for layer in narrow.layers
        ],
    )
    ids = torch.randint(0, TOY.vocabulary, (sum(GAPS),), device=device)
    positions = torch.arange(sum(GAPS))[None]
    ours, expected = (model.hidden(ids, open_rows(model, positions)) for model in (narrow, plain))
    assert (ours - expected).norm() / expected.norm() < 1e-4


def _widen(weight: Weight) -> Weight:
    return pack(weight.dequantize(), "plain")
