import pytest
import torch
from tests.kernels.compare import assert_close

from midfill_kernels.rotary import Heads, norm_rotate_store, norm_rotate_store_reference, rotary_tables


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("heads", "rotated", "has_gain", "has_bias"),
    [
        (Heads(query=3, key_value=1, width=16), 16, False, True),
        (Heads(query=4, key_value=2, width=8, norm=True), 8, True, False),
        (Heads(query=4, key_value=4, width=8, norm=True), 8, False, False),
        (Heads(query=4, key_value=2, width=16, norm=True), 8, True, True),
        (Heads(query=2, key_value=1, width=16), 12, False, False),
    ],
)
def test_norm_rotate_store(
    heads: Heads, rotated: int, has_gain: bool, has_bias: bool, dtype: torch.dtype, device: torch.device
) -> None:
    """Also where only the first dimensions of a head are `rotated`."""
    num_rows = 5
    parts = torch.randn(2, num_rows, heads.columns, device=device)
    bias = torch.randn(heads.columns, device=device) if has_bias else None
    gains = (torch.randn(heads.width, device=device), torch.randn(heads.width, device=device)) if has_gain else None
    tables = rotary_tables(torch.randint(0, 5000, (num_rows,), device=device), rotated, 10_000.0)
    keys, values = (torch.full((num_rows, heads.key_value, heads.width), torch.nan).to(device, dtype) for _ in "kv")

    q = norm_rotate_store(parts, heads, tables, keys, values, bias=bias, gains=gains)

    expected_q, expected_k, expected_v = norm_rotate_store_reference(parts, heads, tables, bias=bias, gains=gains)
    assert q.dtype == dtype
    assert_close(q, expected_q, dtype)
    assert_close(keys, expected_k, dtype)
    assert_close(values, expected_v, dtype)
