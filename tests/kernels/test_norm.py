import pytest
import torch
from tests.kernels.compare import assert_close

from midfill_kernels.norm import add_rms_norm, add_rms_norm_fp8, add_rms_norm_reference
from midfill_kernels.quantize import quantize_rows, quantize_rows_reference


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


def test_norm_straight_to_fp8(device: torch.device) -> None:
    parts, residual = torch.randn(2, 3, 96, device=device), torch.randn(3, 96, device=device)
    stream, normed = add_rms_norm_fp8(parts, residual, None, 1e-6, group=32)
    expected_stream, expected = add_rms_norm_reference(parts, residual, None, 1e-6)
    assert_close(stream, expected_stream, torch.float32)
    assert_close(normed.scales, quantize_rows_reference(expected, 32).scales, torch.float32)
    assert_close(normed.dequantize(), expected, torch.float8_e4m3fn)


@pytest.mark.parametrize("num_rows", [1, 5])
def test_rows_to_fp8(num_rows: int, device: torch.device) -> None:
    x = torch.randn(num_rows, 192, device=device).to(torch.bfloat16) * 30
    x[0, :64] = 0
    found, expected = quantize_rows(x, 64), quantize_rows_reference(x, 64)
    assert_close(found.scales, expected.scales, torch.float32)
    assert_close(found.dequantize(), x.float(), torch.float8_e4m3fn)
    assert torch.equal(found.values.float()[0, :64], torch.zeros(64, device=device))
