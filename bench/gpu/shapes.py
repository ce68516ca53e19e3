"""The shapes that are benched: Qwen2.5-7B's and -0.5B's and LLaDA-8B's published sizes, and a toy."""

from typing import Final

from midfill_engine.models.fused import Shape
from midfill_kernels.rotary import Heads

QWEN_7B: Final = Shape("7B", 3584, 28, Heads(28, 4, 128), 18944, 152_064, bias=True)
LLADA_8B: Final = Shape("8B", 4096, 32, Heads(32, 32, 128), 12288, 126_464, rope_base=5e5)
QWEN_HALF_B: Final = Shape("0.5B", 896, 24, Heads(14, 2, 64), 4864, 151_936, bias=True)
TOY: Final = Shape("toy", 128, 2, Heads(4, 2, 32), 128, 300, bias=True)
SHAPES: Final = {shape.name: shape for shape in (QWEN_7B, LLADA_8B, QWEN_HALF_B, TOY)}
