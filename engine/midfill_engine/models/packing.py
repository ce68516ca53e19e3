"""Operators for weights that are packed once at load: the common part, and bf16 in oneDNN's layout."""

from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from midfill_engine.models.moe import ROW_TILE, MixtureOfExperts
from midfill_engine.models.operators import OperatorsError, Span, TorchOperators
from midfill_engine.models.transformer import MLP, Attention, Transformer

LEFT: Final = 256  # numbers of a packed matrix that stay, by which weights are told apart


class PackedOperators(TorchOperators):
    """Torch's operators, but for weights that were packed."""

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        super().__init__(device, dtype)
        self._dtype = dtype
        self._packed: dict[int, Any] = {}

    def lay(self, weight: Tensor) -> Any:
        """`weight` [N, D] in the layout of `product`."""
        raise NotImplementedError

    def product(self, x: Tensor, packed: Any, bias: Tensor | None) -> Tensor:
        """`x` [R, D] -> [R, N] in its type. A row's bits do not depend on the others."""
        raise NotImplementedError

    def pack(self, module: nn.Module) -> None:
        """Packs the matrices of attention and MLPs, and the head; experts stay. An embedding that is also the head is
        packed in a copy. Parameters that are not loaded yet are skipped.
        """
        for part in module.modules():
            if isinstance(part, MixtureOfExperts):
                self.row_tile = ROW_TILE
            elif isinstance(part, Attention | MLP):
                for linear in part.children():
                    if isinstance(linear, nn.Linear):
                        self._replace(linear)
            elif isinstance(part, Transformer):
                self._pack_head(part)

    def _pack_head(self, transformer: Transformer) -> None:
        if transformer.head is not None:
            self._replace(transformer.head)
        else:
            weight = transformer.embedding.weight
            self._packed[id(weight)] = self.lay(weight)

    def _replace(self, linear: nn.Linear) -> None:
        if not linear.weight.is_meta:
            packed = self.lay(linear.weight)
            linear.weight = nn.Parameter(linear.weight.flatten()[:LEFT].to(self._dtype, copy=True), requires_grad=False)
            self._packed[id(linear.weight)] = packed

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None, spans: list[Span]) -> Tensor:
        packed = self._packed.get(id(weight))
        return super().linear(x, weight, bias, spans) if packed is None else self.product(x, packed, bias)


class LaidOperators(PackedOperators):
    """bf16 in oneDNN's layout, which torch's linear recreates in every call. The operators have private names."""

    def __init__(self) -> None:
        """Raises OperatorsError if there is no such product, or its results depend on the other rows."""
        super().__init__(torch.device("cpu"), torch.bfloat16)
        generator = torch.Generator().manual_seed(0)
        weight, x = (torch.randn(size, 256, generator=generator).bfloat16() for size in (272, 320))
        try:
            whole = self.product(x, self.lay(weight), None)
            parts = [self.product(x[-rows:], self.lay(weight), None) for rows in (16, 32, 80, 128)]
        except (RuntimeError, AttributeError, NotImplementedError) as error:
            raise OperatorsError(f"this machine's torch lays no bf16 weights out ({type(error).__name__})") from error
        near = torch.allclose(whole.float(), F.linear(x, weight).float(), rtol=0.02, atol=0.02)
        if not near or not all(torch.equal(part, whole[-len(part) :]) for part in parts):
            raise OperatorsError("this machine's laid out products depend on the other rows")

    def lay(self, weight: Tensor) -> Tensor:
        laid: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight.to(torch.bfloat16), None)
        return laid

    def product(self, x: Tensor, packed: Tensor, bias: Tensor | None) -> Tensor:
        product: Tensor = torch.ops.mkldnn._linear_pointwise(x, packed, bias, "none", [], "")
        return product
