"""The shapes of the benches: the published sizes of Qwen2.5-7B, Qwen2.5-0.5B, LLaDA-8B, SmolLM2-135M and LLaDA2.0-mini,
a mixture of experts; and two toys.
"""

from dataclasses import replace
from functools import partial
from typing import Final

from midfill_engine.models.moe import MoEConfig
from midfill_engine.models.transformer import TransformerConfig

_config = partial(TransformerConfig, mlp="swiglu", norm_gain=True, qk_norm=False, rope_base=1e6, tied_head=False)
TOY: Final = _config(320, 128, 2, 4, 2, 32, 128, attention_bias=True)
EXPERTS: Final = MoEConfig(
    256, 8, 512, router="sigmoid", renormalize=True, scale=2.5, num_groups=8, num_chosen_groups=4, shared_dim=512,
    router_bias=True,
)  # fmt: skip
SHAPES: Final = {
    "7B": _config(152_064, 3584, 28, 28, 4, 128, 18944, attention_bias=True),
    "8B": _config(126_464, 4096, 32, 32, 32, 128, 12288, rope_base=5e5),
    "0.5B": _config(151_936, 896, 24, 14, 2, 64, 4864, attention_bias=True),
    "135M": _config(49_152, 576, 30, 9, 3, 64, 1536, rope_base=1e5, tied_head=True),
    "16B-A1B": replace(
        _config(157_184, 2048, 20, 16, 4, 128, 5120, rope_base=6e5, rope_dim=64, moe=EXPERTS, num_dense_layers=1),
        qk_norm=True,
    ),
    "toy": TOY,
    "toy-experts": replace(TOY, moe=replace(EXPERTS, num_experts=16, expert_dim=32, shared_dim=32), num_dense_layers=1),
}
