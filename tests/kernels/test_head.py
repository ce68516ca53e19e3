import pytest
import torch

from midfill_kernels.head import (
    STATE_SIZE,
    Rules,
    TokenPredictions,
    choose_head_tile,
    predict_tokens,
    predict_tokens_reference,
)
from midfill_kernels.launch import is_interpreted
from midfill_kernels.matmul import Tile

TILE = Tile(cols=32, rows=16, inner=64, splits=3)


def draw(
    num_rows: int, num_columns: int, dtype: torch.dtype, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randn(num_rows, 64, device=device).to(dtype)
    return x, (torch.randn(num_columns, 64, device=device) / 4).to(dtype)


def assert_same(found: TokenPredictions, expected: TokenPredictions) -> None:
    assert torch.equal(found.ids, expected.ids)
    for name in ("probability", "entropy"):
        torch.testing.assert_close(getattr(found, name), getattr(expected, name), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("num_rows", "num_columns"), [(1, 40), (5, 333), (19, 97)])
def test_proposed_tokens_agree_with_the_reference(
    num_rows: int, num_columns: int, dtype: torch.dtype, device: torch.device
) -> None:
    x, weight = draw(num_rows, num_columns, dtype, device)
    assert_same(predict_tokens(x, weight, tile=TILE), predict_tokens_reference(x, weight))


def test_rules_forbid_columns_row_by_row(device: torch.device) -> None:
    x, weight = draw(6, 100, torch.float32, device)
    allowed = torch.rand(3, 100, device=device) < 0.5
    allowed[:, :3] = True
    allowed[2] = False
    allowed[2, 17] = True
    rules = Rules(allowed, torch.tensor([0, 1, 2, 0, 1, 2], dtype=torch.int32, device=device))
    found = predict_tokens(x, weight, rules=rules, tile=TILE)
    assert_same(found, predict_tokens_reference(x, weight, rules))
    assert found.ids[2] == 17 and found.probability[2] == 1 and found.entropy[2] == 0


def test_among_equals_the_lowest_column_wins(device: torch.device) -> None:
    weight = torch.zeros(100, 64, device=device)
    found = predict_tokens(torch.randn(3, 64, device=device), weight, tile=TILE)
    assert found.ids.tolist() == [0, 0, 0]
    torch.testing.assert_close(found.entropy, torch.full((3,), 100.0, device=device).log())


@pytest.mark.parametrize("shift", [-3e4, 3e4])
def test_large_scores_keep_their_digits(shift: float, device: torch.device) -> None:
    x, weight = draw(4, 70, torch.float32, device)
    shifted = torch.cat((x, torch.full((4, 64), shift / 64, device=device)), dim=1)
    wide = torch.cat((weight, torch.ones(70, 64, device=device)), dim=1)
    found = predict_tokens(shifted, wide, tile=TILE)
    expected = predict_tokens_reference(x, weight)
    torch.testing.assert_close(found.entropy, expected.entropy, rtol=0.02, atol=0.02)
    torch.testing.assert_close(found.probability, expected.probability, rtol=0.05, atol=0.02)


def test_a_row_is_the_same_alone_and_in_a_batch(device: torch.device) -> None:
    x, weight = draw(33, 100, torch.float32 if is_interpreted() else torch.bfloat16, device)
    # As in test_matmul: the interpreter's order of sums changes with the tile's width and the place in it.
    tile, row = (choose_head_tile(weight, 33), 0) if is_interpreted() else (None, 20)
    together = predict_tokens(x, weight, tile=tile)
    alone = predict_tokens(x[row : row + 1].contiguous(), weight, tile=tile)
    for name in ("ids", "probability", "entropy"):
        assert torch.equal(getattr(together, name)[row : row + 1], getattr(alone, name))


def test_no_scores_are_held(device: torch.device) -> None:
    """What 16 x 256 rows of 152,064 columns take beside weights and hidden states: at most 32 MB."""
    weight = torch.empty(152_064, 3_584, device="meta", dtype=torch.bfloat16)
    tile = choose_head_tile(weight, 4096)
    assert (STATE_SIZE + 1) * 4 * tile.splits * 4096 <= 32e6
