"""The operators of a packed step out of the kernels: as torch's, and sparing with memory."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from midfill_engine.models import kernel_operators
from midfill_engine.models.kernel_operators import KernelOperators
from midfill_engine.models.operator_choice import choose_operators
from midfill_engine.models.operators import OperatorsError, Span


def test_a_wide_product_is_made_in_parts(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Never all rows' scores in fp32; the same numbers as in one."""
    matmul, seen = kernel_operators.matmul, list[int]()

    def spy(rows: Tensor, weight: object) -> Tensor:
        seen.append(len(rows))
        return matmul(rows, weight)  # type: ignore[arg-type]

    monkeypatch.setattr(kernel_operators, "matmul", spy)
    operators = KernelOperators(device, torch.float32)
    x, weight, bias = (torch.randn(shape, device=device) for shape in ((48, 16), (20, 16), (20,)))
    whole = operators.linear(x, weight, bias, [Span(0, 48, 48)])
    monkeypatch.setattr(kernel_operators, "MAX_WIDE", 40)
    monkeypatch.setattr(kernel_operators, "MIN_ROWS", 32)
    parts = operators.linear(x, weight, bias, [Span(0, 48, 48)])
    torch.testing.assert_close(parts, whole, rtol=1e-5, atol=1e-5)  # interpreted, products are numpy's
    assert seen == [48, 32, 16]
    torch.testing.assert_close(whole, F.linear(x, weight, bias), rtol=1e-4, atol=1e-4)


def test_kernels_need_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(OperatorsError, match="need a GPU"):
        choose_operators("kernels", torch.device("cpu"), torch.float32)
