"""Products in 8-bit whole numbers on a CPU: weights one scale a column, rows one scale a row. Knows matrices, no model.

One activation scale for a whole call, as torch's own dynamic quantization has, would make a row's bits depend on its
neighbours; whole numbers add up to the same whatever stands beside them. The product is oneDNN's, through torch.
"""

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from midfill_engine.models.operators import OperatorsError
from midfill_engine.models.packing import PackedOperators

ROW_LEVELS: Final = 127
ZERO: Final = 128  # rows are stored unsigned, which x86 multiplies at full speed: signed ones took 1,000 times as long
WEIGHT_LEVELS: Final = (127, 63)
WIDENED_ROWS: Final = 64  # they stay in the cache: a large matrix in a third of the time


@dataclass(frozen=True)
class PackedWeight:
    """`values` in oneDNN's own layout, `scales` [N] of its columns."""

    values: Tensor
    scales: Tensor
    zeros: Tensor

    @classmethod
    def of(cls, weight: Tensor, levels: int) -> "PackedWeight":
        """`weight` [N, D] in whole numbers from -levels to levels. Widens a part at a time."""
        scales, whole = torch.empty(len(weight)), torch.empty(weight.shape, dtype=torch.int8)
        for start in range(0, len(weight), WIDENED_ROWS):
            part = slice(start, start + WIDENED_ROWS)
            wide = weight[part].float()
            scales[part] = wide.abs().amax(dim=1).clamp(min=1e-12) / levels
            whole[part] = (wide / scales[part, None]).round_()
        packed = torch.ops.onednn.qlinear_prepack(whole, None)
        return cls(packed, scales, torch.zeros(len(scales), dtype=torch.int64))

    def product(self, rows: Tensor, scales: Tensor) -> Tensor:
        """Of what `narrow` returns, fp32 [R, N]."""
        product: Tensor = torch.ops.onednn.qlinear_pointwise(
            rows, 1.0, ZERO, self.values, self.scales, self.zeros, None, 1.0, 0, torch.float32, "none", [], ""
        )
        return product.mul_(scales)


def narrow(x: Tensor) -> tuple[Tensor, Tensor]:
    """`x` [R, D] as whole numbers around ZERO, and the scale of each row [R, 1]."""
    largest = x.abs().amax(dim=1, keepdim=True).float().clamp(min=1e-12)
    return (x * (ROW_LEVELS / largest)).round_().add_(ZERO).to(torch.uint8), largest / ROW_LEVELS


class Int8Operators(PackedOperators[PackedWeight]):
    """Torch's operators, but for weights that were packed: their products are of whole numbers."""

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        """Raises OperatorsError where the machine cannot compute so."""
        super().__init__(device, dtype)
        if device.type != "cpu":
            raise OperatorsError("torch-int8 is for CPUs; a GPU has kernels-int8")
        self._levels = choose_levels()
        self.row_tile = 1  # whole numbers add up to the same beside any number of rows; experts have other products
        self._narrowed: tuple[Tensor, tuple[Tensor, Tensor]] | None = None  # queries, keys, values read the same

    def lay(self, weight: Tensor) -> PackedWeight:
        return PackedWeight.of(weight, self._levels)

    def product(self, x: Tensor, packed: PackedWeight, bias: Tensor | None) -> Tensor:
        narrowed = self._narrowed
        if narrowed is None or narrowed[0] is not x:
            narrowed = self._narrowed = x, narrow(x)
        product = packed.product(*narrowed[1])
        return (product if bias is None else product.add_(bias)).to(x.dtype)


def choose_levels() -> int:
    """How fine weights may be. Processors without VNNI add two products in 16 bits, which holds 7-bit weights only.

    Raises OperatorsError where no product is right, or a row depends on its neighbours.
    """
    try:
        found = next((levels for levels in WEIGHT_LEVELS if _adds_up(levels)), None)
    except (RuntimeError, AttributeError) as error:
        raise OperatorsError(f"this machine's torch has no 8-bit product ({type(error).__name__})") from error
    if found is None:
        raise OperatorsError("this machine's 8-bit products are not exact")
    return found


def _adds_up(levels: int) -> bool:
    """Exact at the extremes, and the same alone and in company."""
    generator = torch.Generator().manual_seed(0)
    weight = torch.randint(-levels, levels + 1, (272, 256), generator=generator).float()
    weight[:2], weight[:, 0] = torch.tensor([[levels], [-levels]]), levels  # every column has the scale 1
    x = torch.randint(-ROW_LEVELS, ROW_LEVELS + 1, (320, 256), generator=generator).float()
    x[:16], x[:, 0] = ROW_LEVELS, ROW_LEVELS
    packed = PackedWeight.of(weight, levels)
    whole = packed.product(*narrow(x))
    is_exact = torch.equal(whole, (x.double() @ weight.double().t()).float())
    return is_exact and all(torch.equal(packed.product(*narrow(x[-rows:])), whole[-rows:]) for rows in (5, 16, 33, 128))
