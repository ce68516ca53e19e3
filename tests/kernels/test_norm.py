import pytest
import torch
from tests.kernels.compare import assert_close

from midfill_kernels.norm import add_rms_norm, add_rms_norm_reference


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("num_parts", "num_rows", "dim"), [(1, 1, 7), (3, 5, 64), (2, 3, 100)])
def test_add_rms_norm(num_parts: int, num_rows: int, dim: int, dtype: torch.dtype, device: torch.device) -> None:
    parts = torch.randn(num_parts, num_rows, dim, device=device)
    residual = torch.randn(num_rows, dim, device=device).to(dtype)
    gain = torch.randn(dim, device=device).to(dtype)
    stream, normed = add_rms_norm(parts, residual, gain, 1e-6)
    expected_stream, expected_normed = add_rms_norm_reference(parts, residual, gain, 1e-6)
    assert stream.dtype == normed.dtype == dtype
    assert_close(stream, expected_stream, dtype)
    assert_close(normed, expected_normed, dtype)


def test_norm_alone(device: torch.device) -> None:
    x = torch.randn(1, 4, 24, device=device)
    stream, normed = add_rms_norm(x, None, None, 1e-5)
    assert torch.equal(stream, x[0])
    assert_close(normed, torch.nn.functional.rms_norm(x[0], (24,), eps=1e-5), torch.float32)
