"""Matrix products and embeddings in int8 on a CPU: weights with one scale a column, rows with one scale a row.

torch's own dynamic quantization has one activation scale for a whole call, so a row's bits would depend on other rows.
"""

import warnings
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor, nn

from midfill_engine.models.operators import OperatorsError, PackedOperators, is_same_alone
from midfill_engine.models.transformer import Embedding, Transformer

ROW_LEVELS: Final = 127
ZERO: Final = 128  # zero point of unsigned rows: on x86 signed ones took 1,000 times as long
WIDENED_ROWS: Final = 64  # at once, so that they fit into the CPU's cache: a third of the time


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
        return rows.round_().add_(ZERO).to(torch.uint8)

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


class Int8Embedding(Embedding):
    """Looks up rows of int8 `weight` [V, D] with one scale a row, `scales` [V]; returns them in fp32."""

    scales: Tensor

    def __init__(self, weight: Tensor) -> None:
        """Quantizes `weight` [V, D]."""
        values, scales = quantize_rows(weight, ROW_LEVELS)
        super().__init__(len(values), values.shape[1], _weight=values, _freeze=True)
        self.register_buffer("scales", scales)

    def forward(self, ids: Tensor) -> Tensor:
        return super().forward(ids) * self.scales[ids][..., None]


def quantize_rows(weight: Tensor, levels: int) -> tuple[Tensor, Tensor]:
    """`weight` [N, D] as integers from -levels to levels, and the scale of each row [N]. Widens a part at a time."""
    scales, values = torch.empty(len(weight)), torch.empty(weight.shape, dtype=torch.int8)
    for start in range(0, len(weight), WIDENED_ROWS):
        part = slice(start, start + WIDENED_ROWS)
        wide = weight[part].float()
        scales[part] = wide.abs().amax(dim=1).clamp(min=1e-12) / levels
        values[part] = (wide / scales[part, None]).round_()
    return values, scales


@dataclass(frozen=True)
class Format:
    """Weights as integers from -levels to levels, and the library that multiplies them."""

    levels: int
    weight: type[OneDnnWeight] | type[FbgemmWeight]

    def lay(self, weight: Tensor) -> OneDnnWeight | FbgemmWeight:
        """Packs `weight` [N, D]."""
        return self.weight.of(*quantize_rows(weight, self.levels))

    def narrow(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """`x` [R, D] as `multiply` takes it, and the scale of each row [R, 1]."""
        largest = torch.maximum(x.amax(dim=1, keepdim=True), -x.amin(dim=1, keepdim=True)).float().clamp(min=1e-12)
        return self.weight.round(x * (ROW_LEVELS / largest)), largest / ROW_LEVELS


# from the finest; the last two are for processors without VNNI, which add two products in 16 bits
FORMATS: Final = (Format(127, OneDnnWeight), Format(63, FbgemmWeight), Format(63, OneDnnWeight))


class Int8Operators(PackedOperators):
    """Torch's operators, but packed weights are multiplied in int8."""

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        """Raises OperatorsError where the machine cannot compute so."""
        super().__init__(device, dtype)
        if device.type != "cpu":
            raise OperatorsError("torch's int8 weights are for CPUs; a GPU has kernels-int8")
        self._format = choose_format()
        self.row_tile = 1  # integer sums do not depend on the number of rows; experts are not packed
        self._narrowed: tuple[Tensor, tuple[Tensor, Tensor]] | None = None  # q, k and v have the same input

    def lay(self, weight: Tensor) -> OneDnnWeight | FbgemmWeight:
        return self._format.lay(weight)

    def pack(self, module: nn.Module) -> None:
        """Packs the matrices, and stores the embedding in int8."""
        super().pack(module)
        for part in [part for part in module.modules() if isinstance(part, Transformer)]:
            weight = part.embedding.weight
            part.embedding = Int8Embedding(weight)
            if id(weight) in self._packed:
                self._packed[id(part.embedding.weight)] = self._packed.pop(id(weight))

    def product(self, x: Tensor, packed: OneDnnWeight | FbgemmWeight, bias: Tensor | None) -> Tensor:
        narrowed = self._narrowed
        if narrowed is None or narrowed[0] is not x:
            narrowed = self._narrowed = x, self._format.narrow(x)
        rows, scales = narrowed[1]
        product = packed.multiply(rows).mul_(scales)
        return (product if bias is None else product.add_(bias)).to(x.dtype)


def choose_format() -> Format:
    """The finest format whose products are exact on this machine. Raises OperatorsError if none is."""
    reasons = []
    for found in FORMATS:
        try:
            if _adds_up(found):
                return found
            reasons.append("this machine's 8-bit products are not exact")
        except (RuntimeError, AttributeError) as error:
            reasons.append(f"this machine's torch has no 8-bit product ({type(error).__name__})")
    raise OperatorsError(reasons[0])


def _adds_up(form: Format) -> bool:
    """True if products are exact at the extremes, and the same alone and beside other rows."""
    levels, generator = form.levels, torch.Generator().manual_seed(0)
    weight = torch.randint(-levels, levels + 1, (272, 256), generator=generator).float()
    weight[:2], weight[:, 0] = torch.tensor([[levels], [-levels]]), levels  # every column has the scale 1
    x = torch.randint(-ROW_LEVELS, ROW_LEVELS + 1, (320, 256), generator=generator).float()
    x[:16], x[:, 0] = ROW_LEVELS, ROW_LEVELS
    packed = form.lay(weight)

    def multiply(rows: Tensor) -> Tensor:
        return packed.multiply(form.narrow(rows)[0])

    is_exact = torch.equal(multiply(x), (x.double() @ weight.double().t()).float())
    return is_exact and is_same_alone(multiply, x, (1, 5, 16, 33, 128))
