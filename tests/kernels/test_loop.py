import pytest
import torch
from torch import Tensor

from midfill_kernels.loop import StepLoop, choose_bucket


class Countdown:
    """Sequences that are done after 3 and after 5 steps, on fixed memory."""

    def __init__(self, device: torch.device) -> None:
        self.left: Tensor = torch.tensor([3, 5], device=device)
        self.done: Tensor = torch.zeros(2, dtype=torch.bool, device=device)

    def step(self) -> None:
        self.left.sub_((self.left > 0).long())
        self.done.copy_(self.left == 0)

    def restore(self) -> None:
        self.left.copy_(torch.tensor([3, 5]))
        self.done.zero_()


def test_loop_ends_one_step_after_the_last_is_done(device: torch.device) -> None:
    countdown = Countdown(device)
    loop = StepLoop(countdown.step, countdown.done)
    loop.capture(countdown.restore)
    assert loop.run(max_steps=100) == 6
    assert countdown.left.tolist() == [0, 0]


def test_loop_runs_again_from_new_contents(device: torch.device) -> None:
    countdown = Countdown(device)
    loop = StepLoop(countdown.step, countdown.done)
    loop.capture(countdown.restore)
    loop.run(max_steps=100)
    countdown.restore()
    assert loop.run(max_steps=100) == 6


def test_loop_keeps_the_bound_and_can_be_stopped(device: torch.device) -> None:
    countdown = Countdown(device)
    loop = StepLoop(countdown.step, countdown.done)
    assert loop.run(max_steps=2) == 2 and countdown.left.tolist() == [1, 3]
    seen: list[int] = []
    assert loop.run(100, lambda step: bool(seen.append(step) or step < 2)) == 2
    assert seen == [1, 2]


@pytest.mark.parametrize(("num_rows", "bucket"), [(1, 32), (32, 32), (33, 64), (200, 256), (1024, 1024)])
def test_buckets(num_rows: int, bucket: int) -> None:
    assert choose_bucket(num_rows) == bucket


def test_buckets_end() -> None:
    with pytest.raises(ValueError, match="at most 1024 rows, not 1025"):
        choose_bucket(1025)
