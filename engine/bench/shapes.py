"""The shapes that are benched, and what the machine must at least do for one of their steps.

Sizes: Qwen2.5-7B's and -0.5B's and LLaDA-8B's published configurations.
"""

from dataclasses import dataclass
from typing import Final

from midfill_engine.models.fused import Precision, Shape
from midfill_kernels.rotary import Heads

QWEN_7B: Final = Shape("7B", 3584, 28, Heads(28, 4, 128), 18944, 152_064, bias=True)
LLADA_8B: Final = Shape("8B", 4096, 32, Heads(32, 32, 128), 12288, 126_464, rope_base=5e5)
QWEN_HALF_B: Final = Shape("0.5B", 896, 24, Heads(14, 2, 64), 4864, 151_936, bias=True, group=64)
TOY: Final = Shape("toy", 128, 2, Heads(4, 2, 32), 128, 300, bias=True, group=64)
SHAPES: Final = {shape.name: shape for shape in (QWEN_7B, LLADA_8B, QWEN_HALF_B, TOY)}

WEIGHT_BITS: Final[dict[Precision, float]] = {"bf16": 16, "fp8": 8, "fp8_weight": 8, "int8": 8, "int4": 4.25}


@dataclass(frozen=True)
class Floor:
    """The fewest bytes a step reads and the operations it does, by part."""

    layer_bytes: float
    head_bytes: float
    context_bytes: float
    layer_flops: float
    head_flops: float
    attention_flops: float

    def seconds(self, bytes_per_s: float, flops_per_s: float) -> float:
        """Each part at the slower of memory and arithmetic, one after the other, nothing between them."""
        parts = (
            (self.layer_bytes, self.layer_flops),
            (self.head_bytes, self.head_flops),
            (self.context_bytes, self.attention_flops),
        )
        return sum(max(num_bytes / bytes_per_s, flops / flops_per_s) for num_bytes, flops in parts)

    @property
    def total_bytes(self) -> float:
        return self.layer_bytes + self.head_bytes + self.context_bytes

    @property
    def total_flops(self) -> float:
        return self.layer_flops + self.head_flops + self.attention_flops


def step_floor(shape: Shape, precision: Precision, batch: int, context: int, gap: int) -> Floor:
    """A step of `batch` gaps of `gap` rows, each behind `context` cached tokens; bf16 keys, values and int4's head."""
    rows = batch * gap
    head_weights = shape.vocabulary * shape.dim
    layer_weights = shape.num_layers * shape.layer_weights
    head_bits = 16 if precision == "int4" else WEIGHT_BITS[precision]
    return Floor(
        layer_weights * WEIGHT_BITS[precision] / 8,
        head_weights * head_bits / 8,
        batch * shape.key_value_bytes(context),
        2.0 * rows * layer_weights,
        2.0 * rows * head_weights,
        attention_flops(shape, rows, context + gap),
    )


def attention_flops(shape: Shape, rows: int, seen: int) -> float:
    """Of `rows` positions that attend to `seen`, in all layers."""
    return 4.0 * rows * seen * shape.heads.query * shape.heads.width * shape.num_layers


def pass_flops(shape: Shape, rows: int, seen: int, scored: int = 0) -> float:
    """A forward over `rows` positions that attend to `seen`, and the head over `scored` of them."""
    products = 2.0 * rows * shape.num_layers * shape.layer_weights
    return products + attention_flops(shape, rows, seen) + 2.0 * scored * shape.dim * shape.vocabulary
