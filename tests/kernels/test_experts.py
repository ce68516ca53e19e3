import pytest
import torch
from tests.kernels.compare import assert_close

from midfill_kernels.experts import BLOCK_ROWS, Experts, assign, mix_experts, mix_experts_reference


def draw(num_experts: int, dim: int, width: int, dtype: torch.dtype, device: torch.device) -> Experts:
    def matrices(*shape: int) -> torch.Tensor:
        drawn: torch.Tensor = torch.randn(num_experts, *shape, device=device) / shape[-1] ** 0.5
        return drawn.to(dtype)

    return Experts(matrices(width, dim), matrices(width, dim), matrices(dim, width))


def choose(
    num_rows: int, num_experts: int, num_choices: int, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """Different experts for each row, and their weights."""
    scores = torch.rand(num_rows, num_experts, device=device)
    scores[:, 0] += 0.5  # many rows choose the first one, so that it has several blocks
    weights, chosen = scores.topk(num_choices, dim=1)
    return chosen, weights


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("num_rows", "num_experts", "num_choices"), [(1, 6, 2), (37, 5, 3), (4, 40, 2), (20, 1, 1)])
def test_mix_experts(
    num_rows: int, num_experts: int, num_choices: int, dtype: torch.dtype, device: torch.device
) -> None:
    experts = draw(num_experts, 48, 24, dtype, device)
    x = torch.randn(num_rows, 48, device=device).to(dtype)
    chosen, weights = choose(num_rows, num_experts, num_choices, device)
    found = mix_experts(x, experts, chosen, weights)
    assert found.shape == (num_choices, num_rows, 48)
    assert_close(found, mix_experts_reference(x, experts, chosen, weights), dtype)


def test_a_row_is_the_same_alone_and_in_a_batch(device: torch.device) -> None:
    experts = draw(5, 48, 24, torch.float32, device)
    x = torch.randn(33, 48, device=device)
    chosen, weights = choose(33, 5, 2, device)
    together = mix_experts(x, experts, chosen, weights)
    alone = mix_experts(x[20:21].contiguous(), experts, chosen[20:21], weights[20:21])
    assert torch.equal(together[:, 20:21], alone)


@pytest.mark.parametrize(("num_rows", "num_experts", "num_choices"), [(1, 6, 2), (37, 5, 3), (3, 40, 4), (64, 2, 2)])
def test_every_assignment_has_a_slot_of_its_expert(num_rows: int, num_experts: int, num_choices: int) -> None:
    chosen, _ = choose(num_rows, num_experts, num_choices, torch.device("cpu"))
    assignments = assign(chosen, num_experts)
    slots = assignments.slots.view(-1, BLOCK_ROWS)
    seen = []
    for block, expert in zip(slots.tolist(), assignments.experts.tolist(), strict=True):
        real = [slot for slot in block if slot < chosen.numel()]
        assert bool(real) == (expert < num_experts)
        assert all(int(chosen.flatten()[slot]) == expert for slot in real)
        seen += real
    assert sorted(seen) == list(range(chosen.numel()))


def test_the_layout_waits_for_no_device() -> None:
    """Sizes follow from shapes alone, which a meta tensor has too."""
    chosen = torch.empty(7, 3, dtype=torch.int64, device="meta")
    assignments = assign(chosen, 10)
    assert len(assignments.slots) == len(assignments.experts) * BLOCK_ROWS == 11 * BLOCK_ROWS
