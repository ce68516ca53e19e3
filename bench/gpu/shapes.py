"""The shapes of the benches: the published sizes of Qwen2.5-7B, Qwen2.5-0.5B, LLaDA-8B and SmolLM2-135M, and a toy."""

from functools import partial
from typing import Final

from midfill_engine.models.transformer import TransformerConfig

_config = partial(TransformerConfig, mlp="swiglu", norm_gain=True, qk_norm=False, rope_base=1e6, tied_head=False)
TOY: Final = _config(320, 128, 2, 4, 2, 32, 128, attention_bias=True)
SHAPES: Final = {
    "7B": _config(152_064, 3584, 28, 28, 4, 128, 18944, attention_bias=True),
    "8B": _config(126_464, 4096, 32, 32, 32, 128, 12288, rope_base=5e5),
    "0.5B": _config(151_936, 896, 24, 14, 2, 64, 4864, attention_bias=True),
    "135M": _config(49_152, 576, 30, 9, 3, 64, 1536, rope_base=1e5, tied_head=True),
    "toy": TOY,
}
