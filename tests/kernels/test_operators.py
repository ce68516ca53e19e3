"""The operators of a packed step out of the kernels: as torch's, and sparing with memory."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from midfill_engine.models import kernel_operators
from midfill_engine.models.kernel_operators import KernelOperators
from midfill_engine.models.operator_choice import choose_operators
from midfill_engine.models.operators import OperatorsError, Span, TorchOperators
from midfill_engine.models.packed import Pass, run_packed
from midfill_engine.models.transformer import Transformer, TransformerConfig


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


def test_the_last_layer_of_some_rows_is_as_torchs(device: torch.device) -> None:
    """Of two passes, one of which wants nothing but keys and values."""
    torch.manual_seed(0)
    config = TransformerConfig(
        vocab_size=40, dim=32, num_layers=2, num_heads=2, num_kv_heads=1, head_dim=16, mlp_dim=32, mlp="swiglu"
    )
    transformer = Transformer(config).eval().to(device)
    ids = torch.arange(20)
    passes = [Pass(ids, ids, wanted, keeps=True) for wanted in (ids[:0], ids[3:8])]
    found, expected = (
        run_packed(transformer, passes, operators(device, torch.float32))
        for operators in (KernelOperators, TorchOperators)
    )
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.hidden, other.hidden, rtol=1e-3, atol=1e-3)
        torch.testing.assert_close(one.own, other.own, rtol=1e-3, atol=1e-3)


def test_kernels_need_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(OperatorsError, match="need a GPU"):
        choose_operators("kernels", torch.device("cpu"), torch.float32)
