"""Weights of a linear layer [N, K], as stored or in symmetric int8: value = stored * scale."""

from dataclasses import dataclass
from typing import Final, Literal

import torch
from torch import Tensor

Format = Literal["plain", "int8"]
FORMATS: Final[tuple[Format, ...]] = ("plain", "int8")
INT8_MAX: Final = 127.0
TINY: Final = 1e-12


@dataclass(frozen=True)
class Weight:
    """A matrix [N, K] of a linear layer: x [M, K] becomes x @ weight.T [M, N]. `scale` [N] fp32 is absent for plain."""

    data: Tensor
    scale: Tensor | None = None

    @property
    def shape(self) -> tuple[int, int]:
        return self.data.shape[0], self.data.shape[1]

    def dequantize(self) -> Tensor:
        """[N, K] in fp32."""
        return self.data.float() if self.scale is None else self.data.float() * self.scale[:, None]


def pack(matrix: Tensor, format: Format) -> Weight:
    if format == "plain":
        return Weight(matrix.contiguous())
    wide = matrix.float()
    scale = wide.abs().amax(dim=1).clamp(min=TINY) / INT8_MAX
    return Weight((wide / scale[:, None]).round().to(torch.int8), scale)
