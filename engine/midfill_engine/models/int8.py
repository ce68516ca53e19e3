"""Matrix products and embeddings in int8 on a CPU: weights with one scale a column, rows with one scale a row.

torch's own dynamic quantization has one activation scale for a whole call, so a row's bits would depend on other rows.
Hidden states are rotated by Hadamard matrices, which changes no result and spreads a few large channels over many that
an integer can hold (QuaRot, arXiv 2404.00456).
"""

import math
import os
import warnings
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import torch
from torch import Tensor, nn

from midfill_engine.models.operators import OperatorsError, PackedOperators, is_same_alone, pile
from midfill_engine.models.transformer import (
    MLP,
    Embedding,
    Transformer,
    TransformerBlock,
    TransformerConfig,
    head_weight,
)

LEVELS: Final = 127
ZERO: Final = 128  # zero point of unsigned rows: on x86 signed ones took 1,000 times as long
BLOCK: Final = 32  # channels that are rotated together, and numbers behind a scale in GGUF's Q8_0
Q8_BYTES: Final = 2 + BLOCK
WIDENED_ROWS: Final = 8 * BLOCK  # at once, so that they fit into the CPU's cache: half of the time


@dataclass(frozen=True)
class OneDnnWeight:
    """`values` in oneDNN's layout, `scales` [N] of its columns. Without VNNI every call converts the layout."""

    values: Tensor
    scales: Tensor
    zeros: Tensor

    @classmethod
    def of(cls, whole: Tensor, scales: Tensor) -> "OneDnnWeight":
        values = torch.ops.onednn.qlinear_prepack(whole, None)
        return cls(values, scales, torch.zeros(len(scales), dtype=torch.int64))

    @staticmethod
    def round(rows: Tensor) -> Tensor:
        return rows.add_(ZERO + 0.5).to(torch.uint8)  # cuts off, and all are positive

    def multiply(self, rows: Tensor) -> Tensor:
        product: Tensor = torch.ops.onednn.qlinear_pointwise(
            rows, 1.0, ZERO, self.values, self.scales, self.zeros, None, 1.0, 0, torch.float32, "none", [], ""
        )
        return product


@dataclass(frozen=True)
class FbgemmWeight:
    """FBGEMM's layout, converted once on every processor; the product rounds rows itself."""

    values: torch.ScriptObject

    @classmethod
    def of(cls, whole: Tensor, scales: Tensor) -> "FbgemmWeight":
        engine = torch.backends.quantized.engine
        with warnings.catch_warnings(action="ignore"):  # torch deprecates quantized tensors
            held = torch._make_per_channel_quantized_tensor(whole, scales.double(), torch.zeros(len(scales)).long(), 0)
        try:
            torch.backends.quantized.engine = "fbgemm"
            return cls(torch.ops.quantized.linear_prepack(held, None))
        finally:
            torch.backends.quantized.engine = engine

    @staticmethod
    def round(rows: Tensor) -> Tensor:
        return rows

    def multiply(self, rows: Tensor) -> Tensor:
        multiply = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32
        product: Tensor = multiply(rows, 1.0, ZERO, self.values)
        return product


@dataclass(frozen=True)
class Rotation:
    """Changes of a matrix [N, D] whose input or output is rotated, or whose input lacks the `gain` [D] of its norm."""

    gain: Tensor | None = None
    columns: bool = False
    rows: bool = False

    def apply(self, part: Tensor) -> Tensor:
        """`part` [R, D]: fp32, some blocks of rows."""
        if self.gain is not None:
            part = part * self.gain.float()
        if self.columns:
            part = (part.reshape(-1, BLOCK) @ hadamard()).view(part.shape)
        if self.rows:
            part = (hadamard() @ part.view(-1, BLOCK, part.shape[1])).view(part.shape)
        return part


PLAIN: Final = Rotation()


@cache
def hadamard() -> Tensor:
    """The orthogonal and symmetric Hadamard matrix [BLOCK, BLOCK]."""
    matrix = torch.ones(1, 1)
    while len(matrix) < BLOCK:
        matrix = torch.kron(matrix, torch.tensor([[1.0, 1.0], [1.0, -1.0]]))
    return matrix / math.sqrt(BLOCK)


def rotate(x: Tensor) -> Tensor:
    """Rotates each block of `x` [R, D] in fp32. One product a row, so that its bits do not depend on the others."""
    if len(x) == 1:
        return rotate(x.expand(2, -1))[:1]  # torch multiplies a single one by another function
    blocks = x.float().reshape(len(x), x.shape[1] // BLOCK, BLOCK)
    return torch.bmm(blocks, hadamard().expand(len(x), -1, -1)).flatten(1)


class Int8Embedding(Embedding):
    """Looks up rows of int8 `weight` [V, D] with one scale a row, `scales` [V]; returns them in fp32."""

    scales: Tensor

    def __init__(self, weight: Tensor, rotation: Rotation = PLAIN) -> None:
        """Quantizes `weight` [V, D]."""
        values, scales = quantize_rows(weight, rotation=rotation)
        super().__init__(len(values), values.shape[1], _weight=values, _freeze=True)
        self.register_buffer("scales", scales)

    def forward(self, ids: Tensor) -> Tensor:
        return super().forward(ids) * self.scales[ids][..., None]


@dataclass(frozen=True)
class StoredRows:
    """A matrix [`count`, `width`] of a GGUF file in Q8_0: from `offset` on, 32 integers behind each scale in fp16.

    The file stays open as `descriptor`, so a file that takes its place changes nothing.
    """

    file: Path
    descriptor: int
    offset: int
    count: int
    width: int

    def __post_init__(self) -> None:
        weakref.finalize(self, os.close, self.descriptor)

    def read(self, ids: list[int]) -> Tensor:
        """The rows [R, `width`] in fp32. Raises OSError."""
        size = self.width // BLOCK * Q8_BYTES
        data = bytearray().join(os.pread(self.descriptor, size, self.offset + row * size) for row in ids)
        if len(data) != size * len(ids):
            raise OSError(f"the file {self.file} was cut off while its model was running")
        blocks = torch.frombuffer(data, dtype=torch.uint8).view(len(ids), -1, Q8_BYTES)
        scales = blocks[..., :2].contiguous().view(torch.float16)
        values = blocks[..., 2:].view(torch.int8)
        return (values * scales.float()).flatten(1)


class StoredEmbedding(Embedding):
    """Reads rows from the model's file, so that memory holds none of them. `weight` tells only the shape."""

    def __init__(self, rows: StoredRows, is_rotated: bool) -> None:
        shape = torch.zeros(1, 1, dtype=torch.int8).expand(rows.count, rows.width)
        super().__init__(rows.count, rows.width, _weight=shape, _freeze=True)
        self.rows = rows
        self.is_rotated = is_rotated

    def forward(self, ids: Tensor) -> Tensor:
        states = self.rows.read(ids.flatten().tolist())
        if self.is_rotated:
            states = rotate(states)
        return states.view(*ids.shape, -1)


def quantize_rows(weight: Tensor, *, in_pairs: bool = False, rotation: Rotation = PLAIN) -> tuple[Tensor, Tensor]:
    """`weight` [N, D] as integers from -LEVELS to LEVELS, and the scale of each row [N]. Widens a part at a time.

    With `in_pairs` two neighbors in a row have at most LEVELS + 1 together.
    """
    scales = torch.empty(len(weight))
    values = torch.empty(weight.shape, dtype=torch.int8)
    for start in range(0, len(weight), WIDENED_ROWS):
        part = slice(start, start + WIDENED_ROWS)
        wide = rotation.apply(weight[part].float())
        sizes = wide.abs()
        if in_pairs:
            sizes = sizes[:, ::2] + sizes[:, 1::2]
        scales[part] = sizes.amax(dim=1).clamp(min=1e-12) / LEVELS
        values[part] = (wide / scales[part, None]).round_()
    return values, scales


@dataclass(frozen=True)
class Format:
    """The library that multiplies; weights are rounded `in_pairs` if it adds two products in 16 bits."""

    weight: type[OneDnnWeight] | type[FbgemmWeight]
    in_pairs: bool

    def lay(self, weights: Sequence[Tensor], rotation: Rotation = PLAIN) -> OneDnnWeight | FbgemmWeight:
        """Packs the `weights` [N, D] as one matrix."""
        quantized = [quantize_rows(weight, in_pairs=self.in_pairs, rotation=rotation) for weight in weights]
        values, scales = zip(*quantized, strict=True)
        return self.weight.of(pile(values), pile(scales))

    def narrow(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """`x` [R, D] as `multiply` takes it, and the scale of each row [R, 1]."""
        scales = x.abs().amax(dim=1, keepdim=True).float().clamp_(min=1e-12).div_(LEVELS)
        return self.weight.round(x / scales), scales


# the second is for processors without VNNI
FORMATS: Final = (Format(OneDnnWeight, False), Format(FbgemmWeight, True))


@dataclass(frozen=True)
class Int8Weight:
    """A packed matrix. With `rotates` it multiplies rotated rows."""

    packed: OneDnnWeight | FbgemmWeight
    rotates: bool


class Int8Operators(PackedOperators):
    """Torch's operators, but packed weights are multiplied in int8."""

    def __init__(
        self,
        device: torch.device,
        dtype: torch.dtype,
        embedding: StoredRows | None = None,
        form: Format | None = None,
    ) -> None:
        """`embedding`: where it can be read from. Raises OperatorsError where the machine cannot compute so."""
        if device.type != "cpu":
            raise OperatorsError(f"int8 weights are for CPUs, and the model is on the device {device.type!r}")
        super().__init__(device, dtype)
        self._embedding = embedding
        self._format = form or choose_format()
        self.row_tile = 1  # integer sums do not depend on the number of rows; experts are not packed
        self._rotations: dict[int, Rotation] = {}

    def lay(self, weights: Sequence[Tensor]) -> Int8Weight:
        rotation = self._rotations.pop(id(weights[0]), PLAIN)
        # only `down` has both: its input is no state of the transformer, which are rotated already
        return Int8Weight(self._format.lay(weights, rotation), rotation.columns and rotation.rows)

    def pack(self, module: nn.Module) -> None:
        """Packs the matrices, and stores the embedding in int8, unless it can be read from the model's file.

        Rotates the states of a transformer that is packed by itself, at once or block by block; only its head reads
        them.
        """
        is_alone = isinstance(module, Transformer | TransformerBlock)
        if is_alone:
            self._plan_rotations(module)
        super().pack(module)
        for transformer in [part for part in module.modules() if isinstance(part, Transformer)]:
            weight = transformer.embedding.weight
            is_rotated = is_alone and can_rotate(transformer.config)
            if self._embedding is None:
                transformer.embedding = Int8Embedding(weight, Rotation(columns=is_rotated))
            else:
                transformer.embedding = StoredEmbedding(self._embedding, is_rotated)
            if id(weight) in self._packed:
                self._packed[id(transformer.embedding.weight)] = self._packed.pop(id(weight))

    def _plan_rotations(self, module: nn.Module) -> None:
        for part in module.modules():
            if isinstance(part, Transformer) and can_rotate(part.config):
                part.state_dtype = torch.float32  # products are, and no norm has a gain in another type
                rotation = Rotation(take_gain(part.final_norm), columns=True)
                self._rotations[id(head_weight(part))] = rotation
            elif isinstance(part, TransformerBlock) and can_rotate(part.attention.config):
                self._plan_block(part)

    def _plan_block(self, block: TransformerBlock) -> None:
        attention, mlp = block.attention, block.mlp
        if attention.q.weight.is_meta:
            return  # it comes later
        assert isinstance(mlp, MLP)
        self._rotations |= {  # by the first of the matrices with the same input
            id(attention.q.weight): Rotation(take_gain(block.attention_norm), columns=True),
            id(attention.out.weight): Rotation(rows=True),
            id((mlp.gate or mlp.up).weight): Rotation(take_gain(block.mlp_norm), columns=True),
            id(mlp.down.weight): Rotation(columns=True, rows=True),
        }

    def product(self, x: Tensor, packed: Int8Weight, bias: Tensor | None) -> Tensor:
        rows, scales = self._format.narrow(rotate(x) if packed.rotates else x)
        product = packed.packed.multiply(rows).mul_(scales)
        if bias is not None:
            product.add_(bias)
        return product.to(x.dtype)


def can_rotate(config: TransformerConfig) -> bool:
    """True for dense layers of whole blocks of channels."""
    return config.moe is None and config.dim % BLOCK == config.mlp_dim % BLOCK == 0


def take_gain(norm: nn.RMSNorm) -> Tensor | None:
    """The gain of a norm, which the matrices behind it take over."""
    gain, norm.weight = norm.weight, None  # type: ignore[assignment]
    return gain


def choose_format(forms: Sequence[Format] = FORMATS) -> Format:
    """The first, and so the finest, whose products are exact on this machine. Raises OperatorsError if none is."""
    reasons = []
    for form in forms:
        try:
            if _adds_up(form):
                return form
            reasons.append("this machine's 8-bit products are not exact")
        except (RuntimeError, AttributeError) as error:
            reasons.append(f"this machine's torch has no 8-bit product ({type(error).__name__})")
    raise OperatorsError(reasons[0])


def _adds_up(form: Format) -> bool:
    """True if products are exact at the extremes, and the same alone and beside other rows."""
    generator = torch.Generator().manual_seed(0)
    weight = torch.randint(-LEVELS, LEVELS + 1, (272, 256), generator=generator).float()
    if form.in_pairs:
        weight[:, 1::2] = weight[:, 1::2].sign() * (LEVELS - weight[:, ::2].abs())
    most = LEVELS / 2 if form.in_pairs else LEVELS  # both halves are rounded up
    weight[:2] = torch.tensor([[most], [-most]])
    weight[:, :2] = torch.tensor([LEVELS, 0.0])  # every column has the scale 1
    x = torch.randint(-LEVELS, LEVELS + 1, (320, 256), generator=generator).float()
    x[:16] = LEVELS
    x[:, 0] = LEVELS
    packed = form.lay([weight])

    def multiply(rows: Tensor) -> Tensor:
        narrow, _ = form.narrow(rows)
        return packed.multiply(narrow)

    is_exact = torch.equal(multiply(x), (x.double() @ weight.round().double().t()).float())
    return is_exact and is_same_alone(multiply, x, (1, 5, 16, 33, 128))
