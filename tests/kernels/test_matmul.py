import pytest
import torch
from tests.kernels.compare import assert_close

from midfill_kernels.launch import is_interpreted
from midfill_kernels.matmul import (
    Tile,
    choose_tile,
    gated_matmul,
    gated_matmul_reference,
    matmul,
    matmul_reference,
)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("num_rows", "num_cols", "splits"), [(1, 40, 1), (19, 33, 2)])
def test_matmul(num_rows: int, num_cols: int, splits: int, dtype: torch.dtype, device: torch.device) -> None:
    x = torch.randn(num_rows, 256, device=device).to(dtype)
    weight = torch.randn(num_cols, 256, device=device).to(dtype)
    tile = Tile(cols=32, rows=16, inner=64, splits=splits)
    parts = matmul(x, weight, tile=tile)
    assert parts.shape == (splits, num_rows, num_cols)
    assert_close(parts.sum(dim=0), matmul_reference(x, weight), torch.float32)


def test_matmul_of_ragged_width(device: torch.device) -> None:
    x, weight = torch.randn(3, 50, device=device), torch.randn(20, 50, device=device)
    parts = matmul(x, weight, tile=Tile(cols=32, rows=16, inner=16, splits=2))
    assert_close(parts.sum(dim=0), matmul_reference(x, weight), torch.float32)


def test_gated_matmul(device: torch.device) -> None:
    x, weight = torch.randn(5, 128, device=device), torch.randn(2 * 40, 128, device=device)
    found = gated_matmul(x, weight, torch.float32, tile=Tile(cols=32, rows=16, inner=128, splits=1))
    assert_close(found, gated_matmul_reference(x, weight), torch.float32)


@pytest.mark.parametrize("shape", [(4608, 3584), (3584, 18944), (896, 4864)])
def test_order_of_sums_does_not_depend_on_the_rows(shape: tuple[int, int]) -> None:
    weight = torch.empty(shape, dtype=torch.bfloat16, device="meta")
    tiles = [choose_tile(weight, num_rows) for num_rows in (1, 16, 64, 300)]
    assert len({(tile.inner, tile.splits) for tile in tiles}) == 1


def test_a_row_is_the_same_alone_and_in_a_batch(device: torch.device) -> None:
    dtype = torch.float32 if is_interpreted() else torch.bfloat16
    x = torch.randn(33, 256, device=device).to(dtype)
    weight = torch.randn(24, 256, device=device).to(dtype)
    # The interpreter multiplies tiles through BLAS, whose order of sums changes with the width of the tile.
    tile, row = (choose_tile(weight, 33), 0) if is_interpreted() else (None, 20)
    together, alone = matmul(x, weight, tile=tile), matmul(x[row : row + 1].contiguous(), weight, tile=tile)
    assert torch.equal(together[:, row : row + 1], alone)
