"""Matrix products and embeddings in int8 on a CPU. Each row of states and each column of the result has a scale.

torch's own dynamic quantization has one scale for all states of a call, so a row's bits would depend on other rows.
Hidden states and weights are rotated by Hadamard matrices. That changes no exact result, but it spreads a few large
channels over many that an integer can hold (QuaRot, arXiv 2404.00456).
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

LEVELS: Final = 127  # the highest integer
ZERO: Final = 128  # stands for 0 in rows, which are unsigned because signed ones took 1,000 times as long on x86
BLOCK: Final = 32  # channels that are rotated together; also the numbers that share a scale in GGUF's Q8_0
Q8_BYTES: Final = 2 + BLOCK  # of a block in Q8_0: a scale in fp16, and an int8 for each number
WIDENED_ROWS: Final = 8 * BLOCK  # that are widened at once: they fit into the CPU's cache, which halves the time


@dataclass(frozen=True)
class OneDnnWeight:
    """A matrix in oneDNN's layout, with the `scales` [N] of its rows, which are the columns of products. Without VNNI
    every call converts the layout.
    """

    values: Tensor
    scales: Tensor
    zeros: Tensor

    @classmethod
    def of(cls, integers: Tensor, scales: Tensor) -> "OneDnnWeight":
        values = torch.ops.onednn.qlinear_prepack(integers, None)
        return cls(values, scales, torch.zeros(len(scales), dtype=torch.int64))

    @staticmethod
    def round(rows: Tensor) -> Tensor:
        """The `rows`, from -LEVELS to LEVELS, rounded to the integers that `multiply` takes."""
        return rows.add_(ZERO + 0.5).to(torch.uint8)  # the cast cuts off, which rounds positive numbers with 0.5 more

    def multiply(self, rows: Tensor) -> Tensor:
        product: Tensor = torch.ops.onednn.qlinear_pointwise(
            rows, 1.0, ZERO, self.values, self.scales, self.zeros, None, 1.0, 0, torch.float32, "none", [], ""
        )
        return product


@dataclass(frozen=True)
class FbgemmWeight:
    """A matrix in FBGEMM's layout, converted once whatever the processor. The product rounds rows itself."""

    values: torch.ScriptObject

    @classmethod
    def of(cls, integers: Tensor, scales: Tensor) -> "FbgemmWeight":
        engine = torch.backends.quantized.engine
        zeros = torch.zeros(len(scales)).long()
        with warnings.catch_warnings(action="ignore"):  # torch deprecates quantized tensors
            quantized = torch._make_per_channel_quantized_tensor(integers, scales.double(), zeros, 0)
        try:
            torch.backends.quantized.engine = "fbgemm"
            return cls(torch.ops.quantized.linear_prepack(quantized, None))
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
    """What is done to a matrix [N, D] before it is packed: it takes over the `gain` [D] of the norm in front; its
    columns are rotated if its input is, and its rows if its output shall be.
    """

    gain: Tensor | None = None
    rotates_columns: bool = False
    rotates_rows: bool = False

    def apply(self, part: Tensor) -> Tensor:
        """The changed `part` [R, D] of the matrix: some blocks of rows, in fp32."""
        if self.gain is not None:
            part = part * self.gain.float()
        if self.rotates_columns:
            part = (part.reshape(-1, BLOCK) @ hadamard()).view(part.shape)
        if self.rotates_rows:
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
    """`x` [R, D] in fp32, each block rotated. Each row is a product, so that its bits do not depend on other rows."""
    if len(x) == 1:
        return rotate(x.expand(2, -1))[:1]  # because torch computes a single product by another function
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
    """A matrix [`count`, `width`] in Q8_0 that stays in a GGUF `file`: from `offset` on, each scale in fp16 and the 32
    integers that share it. The file stays open as `descriptor`, so it does not matter if another takes its place.
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
    """Reads rows from the model's file in each call, so that they take no memory. `weight` has the shape, no values."""

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

    With `in_pairs` the absolute values of two neighbors in a row add up to at most LEVELS + 1.
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
    """A way to multiply: the class of `weight` names the library. If that adds two products in 16 bits, weights must be
    rounded `in_pairs`, so that no sum is cut off.
    """

    weight: type[OneDnnWeight] | type[FbgemmWeight]
    in_pairs: bool

    def lay(self, weights: Sequence[Tensor], rotation: Rotation = PLAIN) -> OneDnnWeight | FbgemmWeight:
        """Packs the `weights` [N, D] as one matrix."""
        quantized = [quantize_rows(weight, in_pairs=self.in_pairs, rotation=rotation) for weight in weights]
        values, scales = zip(*quantized, strict=True)
        return self.weight.of(pile(values), pile(scales))

    def narrow(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """`x` [R, D] as `multiply` of the weight takes it, and the scale of each row [R, 1]."""
        scales = x.abs().amax(dim=1, keepdim=True).float().clamp_(min=1e-12).div_(LEVELS)
        return self.weight.round(x / scales), scales


# The finest first; the second is for processors without VNNI.
FORMATS: Final = (Format(OneDnnWeight, False), Format(FbgemmWeight, True))


@dataclass(frozen=True)
class Int8Weight:
    """A packed matrix. With `rotates` its input must be rotated before it is multiplied."""

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
        """The embedding stays in its file if `embedding` tells where. Raises OperatorsError if no product is exact."""
        if device.type != "cpu":
            raise OperatorsError(f"int8 weights are for CPUs, and the model is on the device {device.type!r}")
        super().__init__(device, dtype)
        self._embedding = embedding
        self._format = form or choose_format()
        self.row_tile = 1  # integer sums do not depend on the number of rows; `pack` raises it for experts
        self._rotations: dict[int, Rotation] = {}  # by the id() of a weight that is to be packed

    def lay(self, weights: Sequence[Tensor]) -> Int8Weight:
        rotation = self._rotations.pop(id(weights[0]), PLAIN)
        # Only `down` has both: its input, unlike a state of the transformer, is not rotated yet.
        return Int8Weight(self._format.lay(weights, rotation), rotation.rotates_columns and rotation.rotates_rows)

    def pack(self, module: nn.Module) -> None:
        """Packs the matrices, and stores the embedding in int8, unless it is read from the model's file.

        Rotates the states of a transformer that is packed by itself, at once or block by block. Inside another module
        they stay as they are, because then not only the head reads them.
        """
        is_alone = isinstance(module, Transformer | TransformerBlock)
        if is_alone:
            self._plan_rotations(module)
        super().pack(module)
        for transformer in [part for part in module.modules() if isinstance(part, Transformer)]:
            weight = transformer.embedding.weight
            is_rotated = is_alone and can_rotate(transformer.config)
            if self._embedding is None:
                transformer.embedding = Int8Embedding(weight, Rotation(rotates_columns=is_rotated))
            else:
                transformer.embedding = StoredEmbedding(self._embedding, is_rotated)
            if id(weight) in self._packed:
                self._packed[id(transformer.embedding.weight)] = self._packed.pop(id(weight))

    def _plan_rotations(self, module: nn.Module) -> None:
        """Notes how to rotate each matrix, before it is packed, and takes the gains off the norms."""
        for part in module.modules():
            if isinstance(part, Transformer) and can_rotate(part.config):
                part.state_dtype = torch.float32  # as products are; no norm keeps a gain in another type
                rotation = Rotation(take_gain(part.final_norm), rotates_columns=True)
                self._rotations[id(head_weight(part))] = rotation
            elif isinstance(part, TransformerBlock) and can_rotate(part.attention.config):
                self._plan_block(part)

    def _plan_block(self, block: TransformerBlock) -> None:
        attention, mlp = block.attention, block.mlp
        if attention.q.weight.is_meta:
            return  # not loaded yet; the layer is packed once it is
        assert isinstance(mlp, MLP)
        self._rotations |= {  # q and gate or up stand for all matrices with the same input
            id(attention.q.weight): Rotation(take_gain(block.attention_norm), rotates_columns=True),
            id(attention.out.weight): Rotation(rotates_rows=True),
            id((mlp.gate or mlp.up).weight): Rotation(take_gain(block.mlp_norm), rotates_columns=True),
            id(mlp.down.weight): Rotation(rotates_columns=True, rotates_rows=True),
        }

    def product(self, x: Tensor, packed: Int8Weight, bias: Tensor | None) -> Tensor:
        rows, scales = self._format.narrow(rotate(x) if packed.rotates else x)
        product = packed.packed.multiply(rows).mul_(scales)
        if bias is not None:
            product.add_(bias)
        return product.to(x.dtype)


def can_rotate(config: TransformerConfig) -> bool:
    """True if all layers are dense, and their widths multiples of a block."""
    return config.moe is None and config.dim % BLOCK == config.mlp_dim % BLOCK == 0


def take_gain(norm: nn.RMSNorm) -> Tensor | None:
    """Removes the gain of a norm and returns it, for the matrices behind the norm to take over."""
    gain, norm.weight = norm.weight, None  # type: ignore[assignment]
    return gain


def choose_format(forms: Sequence[Format] = FORMATS) -> Format:
    """The first of `forms` whose products are exact on this machine. Raises OperatorsError if there is none."""
    reasons = []
    for form in forms:
        try:
            if _is_exact(form):
                return form
            reasons.append("this machine's 8-bit products are not exact")
        except (RuntimeError, AttributeError) as error:
            reasons.append(f"this machine's torch has no 8-bit product ({type(error).__name__})")
    raise OperatorsError(reasons[0])


def _is_exact(form: Format) -> bool:
    """True if products are exact for the largest numbers too, and if a row's are the same alone and beside others."""
    generator = torch.Generator().manual_seed(0)
    weight = torch.randint(-LEVELS, LEVELS + 1, (272, 256), generator=generator).float()
    if form.in_pairs:
        weight[:, 1::2] = weight[:, 1::2].sign() * (LEVELS - weight[:, ::2].abs())
    largest = LEVELS / 2 if form.in_pairs else LEVELS  # both halves of a pair are rounded up
    weight[:2] = torch.tensor([[largest], [-largest]])
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
