"""Mixtures of experts (LLaDA-MoE, LLaDA2.x, SDAR-MoE): routing, expert matrices. Knows rows of hidden states only."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# Every product has a multiple of this many rows, because otherwise a row can round differently in another batch.
ROW_TILE = 16


@dataclass(frozen=True)
class MoEConfig:
    """Each row goes through `num_chosen` of the `num_experts`. `router` is the function that turns its scores into
    weights. A row chooses from its `num_chosen_groups` best groups only (LLaDA2.x, report section 2.1). `shared_dim` is
    the width of the expert that every row goes through, 0 for none.
    """

    num_experts: int
    num_chosen: int
    expert_dim: int
    router: Literal["softmax", "sigmoid"] = "softmax"
    renormalize: bool = False
    scale: float = 1.0
    num_groups: int = 1
    num_chosen_groups: int = 1
    shared_dim: int = 0
    router_bias: bool = False


Mix = Callable[["MixtureOfExperts", Tensor, Tensor, Tensor], Tensor]


class MixtureOfExperts(nn.Module):
    """`gate`, `up` [X, F, D] and `down` [X, D, F] hold the matrices of X experts of width F."""

    def __init__(self, dim: int, config: MoEConfig) -> None:
        super().__init__()
        self.config = config
        num_experts, width = config.num_experts, config.expert_dim
        self.router = nn.Linear(dim, num_experts, bias=False)
        self.selection_bias = nn.Parameter(torch.zeros(num_experts)) if config.router_bias else None
        self.gate = nn.Parameter(torch.empty(num_experts, width, dim))
        self.up = nn.Parameter(torch.empty(num_experts, width, dim))
        self.down = nn.Parameter(torch.empty(num_experts, dim, width))
        self.shared: nn.ModuleDict | None = None
        if config.shared_dim:
            gate = nn.Linear(dim, config.shared_dim, bias=False)
            up = nn.Linear(dim, config.shared_dim, bias=False)
            down = nn.Linear(config.shared_dim, dim, bias=False)
            self.shared = nn.ModuleDict({"gate": gate, "up": up, "down": down})

    def forward(self, x: Tensor, mix: Mix) -> Tensor:
        """Maps `x` [..., D] to [..., D]. `mix` computes what the method `mix` does."""
        rows = x.reshape(-1, x.shape[-1])  # [R, D]
        chosen, weights = self.route(F.linear(rows.float(), self.router.weight.float()), rows.dtype)
        mixed = mix(self, rows, chosen, weights)
        if self.shared is not None:
            mixed = mixed + self.shared["down"](F.silu(self.shared["gate"](rows)) * self.shared["up"](rows))
        return mixed.view_as(x)

    def mix(self, rows: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
        """For `rows` [R, D] the sum [R, D] of the outputs of the `chosen` [R, k] experts times their `weights`."""
        mixed = torch.zeros_like(rows)
        by_expert = chosen.flatten().argsort(stable=True)  # choices of all rows; one expert's are in the rows' order
        counts = torch.bincount(chosen.flatten(), minlength=self.config.num_experts).tolist()  # the only wait
        for expert, choices in enumerate(torch.split(by_expert, counts)):
            if len(choices):
                where = choices // chosen.shape[1]
                out = self.expert(pad_rows(rows[where]), expert)[: len(where)]
                mixed.index_add_(0, where, out * weights.flatten()[choices, None])
        return mixed

    def expert(self, rows: Tensor, index: int) -> Tensor:
        """The output [R, D] of the expert `index` for `rows` [R, D]."""
        hidden = F.silu(F.linear(rows, self.gate[index])) * F.linear(rows, self.up[index])
        return F.linear(hidden, self.down[index])

    def route(self, logits: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """For the router's `logits` [R, X] in fp32 the chosen experts [R, k] and their weights [R, k] in `dtype`."""
        config = self.config
        scores = logits.softmax(dim=-1) if config.router == "softmax" else logits.sigmoid()
        ranked = scores
        if self.selection_bias is not None:
            ranked = scores + self.selection_bias.float()
        if config.num_groups > 1:
            ranked = self._within_groups(ranked)
        chosen = ranked.topk(config.num_chosen, dim=-1, sorted=True).indices
        weights = scores.gather(1, chosen)
        if config.renormalize:
            weights = weights / (weights.sum(dim=-1, keepdim=True) + 1e-20)
        return chosen, (weights * config.scale).to(dtype)

    def _within_groups(self, ranked: Tensor) -> Tensor:
        """Scores [R, X], minus infinity outside the groups whose two best experts have the highest sums."""
        num_groups = self.config.num_groups
        groups = ranked.view(len(ranked), num_groups, ranked.shape[1] // num_groups)  # [R, G, X/G]
        sums = groups.topk(2, dim=-1).values.sum(dim=-1)  # [R, G]
        best = sums.topk(self.config.num_chosen_groups, dim=-1).indices
        is_best = torch.zeros_like(sums, dtype=torch.bool).scatter(1, best, True)
        return groups.masked_fill(~is_best[..., None], -torch.inf).view_as(ranked)


def pad_rows(rows: Tensor, tile: int = ROW_TILE) -> Tensor:
    """`rows` [R, D] with zero rows behind, up to the next multiple of `tile`."""
    missing = -len(rows) % tile
    return F.pad(rows, (0, 0, 0, missing)) if missing else rows
