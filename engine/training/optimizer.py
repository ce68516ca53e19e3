"""Muon for matrices, Adam for the rest, and the schedule of their rates. Knows parameters, no data and no loss."""

from collections import defaultdict
from collections.abc import Iterable

import torch
from torch import Tensor, nn

# The quintic whose iteration brings singular values near 1 (Jordan et al., Muon, 2024).
NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)


class Muon(torch.optim.Optimizer):
    """Momentum whose update is orthogonalised (Jordan et al. 2024), matrices of one shape stacked, cautious decay."""

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        lr: float,
        momentum: float = 0.95,
        decay: float = 0.1,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__(list(parameters), {"lr": lr, "momentum": momentum, "decay": decay})
        self.dtype = dtype

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            by_shape: dict[torch.Size, list[Tensor]] = defaultdict(list)
            for parameter in group["params"]:
                if parameter.grad is not None:
                    by_shape[parameter.shape].append(parameter)
            for parameters in by_shape.values():
                self._step_stack(parameters, group["lr"], group["momentum"], group["decay"])

    def _step_stack(self, parameters: list[Tensor], lr: float, momentum: float, decay: float) -> None:
        gradients = torch.stack([parameter.grad for parameter in parameters if parameter.grad is not None])  # [N, R, C]
        state = self.state[parameters[0]]
        buffer = state.setdefault("momentum", torch.zeros_like(gradients))
        buffer.lerp_(gradients, 1 - momentum)
        update = orthogonalize(gradients.lerp(buffer, momentum).to(self.dtype)).to(gradients.dtype)
        rows, columns = update.shape[-2:]
        rate = lr * max(1.0, rows / columns) ** 0.5
        values = torch.stack(parameters)
        values.addcmul_(values, (update * values > 0).to(values.dtype), value=-lr * decay)
        values.sub_(update, alpha=rate)
        torch._foreach_copy_(parameters, list(values))


def orthogonalize(matrices: Tensor, num_iterations: int = 5) -> Tensor:
    """Roughly the nearest semi-orthogonal matrices to `matrices` [N, R, C]: singular values end near 0.7 to 1.2."""
    a, b, c = NEWTON_SCHULZ
    tall = matrices.shape[-2] > matrices.shape[-1]
    x = matrices.mT if tall else matrices
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(num_iterations):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x


# The length head reads 2D normed inputs at once: at the embedding's rate its scores jump by a nat a step.
LENGTH_HEAD_SCALE = 0.1


def make_optimizers(
    model: nn.Module, muon_lr: float, adam_lr: float, dtype: torch.dtype = torch.float32
) -> list[torch.optim.Optimizer]:
    """Muon, in `dtype`, for the blocks' matrices; Adam for the embedding (which is the head) and all else.

    Every group's rate at factor 1 is in its `full_lr`.
    """
    named = dict(model.named_parameters())
    matrices = [value for name, value in named.items() if ".blocks." in name and value.dim() == 2]
    length_head = [value for name, value in named.items() if name.startswith("length_head.")]
    taken = {id(value) for value in (*matrices, *length_head)}
    others = [value for value in named.values() if id(value) not in taken]
    groups = [{"params": others, "lr": adam_lr}, {"params": length_head, "lr": adam_lr * LENGTH_HEAD_SCALE}]
    optimizers = [
        Muon(matrices, muon_lr, dtype=dtype),
        torch.optim.Adam(groups, betas=(0.9, 0.95), eps=1e-10, fused=True),
    ]
    for group in (group for optimizer in optimizers for group in optimizer.param_groups):
        group["full_lr"] = group["lr"]
    return optimizers


def set_rates(optimizers: list[torch.optim.Optimizer], factor: float) -> None:
    for group in (group for optimizer in optimizers for group in optimizer.param_groups):
        group["lr"] = group["full_lr"] * factor


def rate_factor(step: int, elapsed: float, warmup_steps: int, cooldown: float, final: float = 0.05) -> float:
    """Warm-up, constant, linear cooldown to `final`. `elapsed` in [0, 1] is how much of the run's time has gone."""
    warm = min(1.0, (step + 1) / warmup_steps)
    left = min(1.0, max(0.0, 1 - elapsed) / cooldown) if cooldown > 0 else 1.0
    return warm * (final + (1 - final) * left)


def momentum_at(step: int, num_steps: int = 300) -> float:
    """Muon's momentum rises from 0.85 to 0.95 over the first steps."""
    return 0.85 + 0.10 * min(1.0, step / num_steps)


class Average:
    """An exponential moving average of a model's parameters, in fp32, whose memory grows with the steps at first."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay, self.num_updates = decay, 0
        self.values = {name: value.detach().clone().float() for name, value in model.named_parameters()}

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        self.num_updates += 1
        decay = min(self.decay, (1 + self.num_updates) / (10 + self.num_updates))
        current = [value.float() for value in model.parameters()]
        torch._foreach_lerp_(list(self.values.values()), current, 1 - decay)
