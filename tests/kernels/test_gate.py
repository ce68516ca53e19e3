import pytest
import torch
from tests.kernels.compare import assert_close

from midfill_kernels.gate import Activation, activate, activate_reference


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("activation", ["swiglu", "relu2"])
@pytest.mark.parametrize(("num_parts", "num_rows", "columns"), [(1, 3, 10), (2, 5, 66), (1, 1, 2300)])
def test_activate(
    num_parts: int, num_rows: int, columns: int, activation: Activation, dtype: torch.dtype, device: torch.device
) -> None:
    parts = torch.randn(num_parts, num_rows, columns, device=device)
    found = activate(parts, activation, dtype)
    assert found.dtype == dtype
    assert_close(found, activate_reference(parts, activation), dtype)
