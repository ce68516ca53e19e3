"""Matrix products with weights in 4 bits: 32 neighbors of a row share a scale and an offset in bf16.

The products are torch's, which torchao's int4 weights use too. They run on NVIDIA GPUs of compute capability 8.0 and
more, and on CPUs with the same numbers. A weight takes 5 bits. States and the embedding are in bf16.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor, nn

from midfill_engine.models.operators import CHECKED_ROWS, OperatorsError, PackedOperators, is_same_alone, pile
from midfill_engine.models.transformer import Transformer

GROUP: Final = 32  # weights of a row that share a scale and an offset
LEVELS: Final = 15  # the highest level
MIDDLE: Final = 8  # the level that stands for the offset
WIDTH_TILE: Final = 64  # a packed matrix has a multiple of so many rows
TILES: Final = (8, 4, 2)  # how many tiles of 16 weights a GPU's thread can read at once
WIDENED: Final = 2**22  # weights that are widened at once
GRID_ERROR: Final = 0.05  # the most, as root mean square in levels, of weights that were stored in 4 bits before


@dataclass(frozen=True)
class Levels:
    """A matrix [N, D] in 4 bits: `levels` [N, D] from 0 to LEVELS, and `scalings` [D / GROUP, N, 2] in bf16, the scale
    s and the offset z of each group of a row. A level q stands for the weight (q - MIDDLE) s + z.
    """

    levels: Tensor
    scalings: Tensor

    @classmethod
    def of(cls, weight: Tensor, device: torch.device, *, finds_grids: bool = False) -> "Levels":
        """Rounds `weight` [N, D], a part at a time. With `finds_grids` weights that were stored in 4 bits before stay
        at the levels that they had there.
        """
        num_rows, dim = weight.shape
        levels = torch.empty(num_rows, dim, dtype=torch.uint8, device=device)
        scalings = torch.empty(dim // GROUP, num_rows, 2, dtype=torch.bfloat16, device=device)
        size = max(WIDENED // dim, 1)
        for start in range(0, num_rows, size):
            part = slice(start, start + size)
            groups = weight[part].to(device).float().view(-1, dim // GROUP, GROUP)
            scales, offsets = _find_scales(groups, finds_grids)
            rounded = ((groups - offsets) / scales + MIDDLE).round_().clamp_(0, LEVELS)
            levels[part] = rounded.flatten(1)
            scalings[:, part] = torch.cat((scales, offsets), dim=2).transpose(0, 1)
        return cls(levels, scalings)

    def widen(self) -> Tensor:
        """The matrix [N, D] in fp32."""
        scales, offsets = self.scalings.float().transpose(0, 1).unsqueeze(2).unbind(3)
        groups = self.levels.view(len(self.levels), -1, GROUP)
        return ((groups - float(MIDDLE)) * scales + offsets).flatten(1)


def _find_scales(groups: Tensor, finds_grids: bool) -> tuple[Tensor, Tensor]:
    """Scales and offsets [R, D / GROUP, 1] of `groups` [R, D / GROUP, GROUP], as bf16 rounds them."""
    low, high = groups.amin(2, keepdim=True), groups.amax(2, keepdim=True)
    scales = (high - low) / LEVELS
    if finds_grids:
        grids = _find_grids(groups, low, high)
        scales = torch.where(grids > 0, grids, scales)
    scales = scales.clamp(min=torch.finfo(torch.bfloat16).tiny).bfloat16().float()
    offsets = (low + MIDDLE * scales).bfloat16().float()
    return scales, offsets


def _find_grids(groups: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """The scale [R, D / GROUP, 1] of each group whose weights are on at most LEVELS + 1 even levels, otherwise 0."""
    spans = high - low
    gaps = groups.sort(dim=2).values.diff(dim=2)
    is_gap = gaps > spans / (2 * LEVELS)
    smallest_gaps = torch.where(is_gap, gaps, spans).amin(2, keepdim=True)
    num_steps = (spans / smallest_gaps.clamp(min=1e-30)).round().clamp(1, LEVELS)
    scales = spans / num_steps
    levels = (groups - low) / scales.clamp(min=1e-30)
    errors = (levels - levels.round()).square().mean(2, keepdim=True).sqrt()
    return torch.where(errors < GRID_ERROR, scales, 0.0)


@dataclass(frozen=True)
class Int4Weight:
    """A packed matrix: `values` in the layout of the device's product, the `scalings` of its groups, and `width`, its
    number of rows without those that pad it to tiles.
    """

    values: Tensor
    scalings: Tensor
    width: int

    @classmethod
    def of(cls, matrix: Levels) -> "Int4Weight":
        width, dim = matrix.levels.shape
        padding = -width % WIDTH_TILE
        levels = nn.functional.pad(matrix.levels, (0, 0, 0, padding))
        scalings = nn.functional.pad(matrix.scalings, (0, 0, 0, padding))
        if levels.device.type == "cpu":
            size = max(WIDENED // dim // WIDTH_TILE, 1) * WIDTH_TILE
            lay = torch.ops.aten._convert_weight_to_int4pack_for_cpu
            parts = [lay(levels[start : start + size].int(), TILES[-1]) for start in range(0, len(levels), size)]
            return cls(pile(parts), scalings, width)
        tiles = next(tiles for tiles in TILES if dim % (16 * tiles) == 0)
        pairs = levels[:, ::2] << 4 | levels[:, 1::2]
        return cls(torch.ops.aten._convert_weight_to_int4pack(pairs, tiles), scalings, width)

    def multiply(self, x: Tensor) -> Tensor:
        """`x` [R, D] in bf16 -> [R, `width`]."""
        multiply = torch.ops.aten._weight_int4pack_mm
        if x.device.type == "cpu":
            multiply = torch.ops.aten._weight_int4pack_mm_for_cpu
        product: Tensor = multiply(x.contiguous(), self.values, GROUP, self.scalings)
        return product[:, : self.width]


class Int4Operators(PackedOperators):
    """Torch's operators in bf16, but packed weights have 4 bits. A head that is also the embedding stays in bf16."""

    packs_tied_head = False

    def __init__(self, device: torch.device, *, finds_grids: bool = False) -> None:
        """`finds_grids`: the weights may come from a file with 4 bits. Raises OperatorsError if the machine has no such
        product, or if its results depend on the other rows.
        """
        super().__init__(device, torch.bfloat16)
        self._finds_grids = finds_grids
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(320, 128, generator=generator).to(device, torch.bfloat16)
        matrix = Levels.of(torch.randn(272, 128, generator=generator), device)
        try:
            packed = Int4Weight.of(matrix)
            product = packed.multiply(x).float()
            expected = x.float() @ matrix.widen().t()
            is_near = bool((product - expected).norm() < 0.01 * expected.norm())
            is_good = is_near and is_same_alone(packed.multiply, x, CHECKED_ROWS)
        except (RuntimeError, AttributeError, NotImplementedError) as error:
            message = f"the device {device.type!r} has no product with 4-bit weights here ({type(error).__name__})"
            raise OperatorsError(message) from error
        if not is_good:
            raise OperatorsError(f"products with 4-bit weights on the device {device.type!r} are not exact")

    def lay(self, weights: Sequence[Tensor]) -> Int4Weight:
        """Packs the `weights` as one. Raises OperatorsError if their rows cannot be divided into groups."""
        dim = weights[0].shape[1]
        if dim % GROUP:
            raise OperatorsError(f"4-bit weights need rows of a multiple of {GROUP} numbers, and some have {dim}")
        parts = [Levels.of(weight, self.device, finds_grids=self._finds_grids) for weight in weights]
        matrix = Levels(pile([part.levels for part in parts]), torch.cat([part.scalings for part in parts], dim=1))
        return Int4Weight.of(matrix)

    def pack(self, module: nn.Module) -> None:
        super().pack(module)
        for transformer in [part for part in module.modules() if isinstance(part, Transformer)]:
            embedding = transformer.embedding.weight.to(self.device, torch.bfloat16)
            transformer.embedding.weight = nn.Parameter(embedding, requires_grad=False)

    def product(self, x: Tensor, packed: Int4Weight, bias: Tensor | None) -> Tensor:
        product = packed.multiply(x)
        return product if bias is None else product + bias
