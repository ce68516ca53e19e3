"""Computes with weights that are rounded to bf16 once a step, not in every operation. Knows parameters; no loss."""

import copy

import torch

from midfill_engine.families.embedded import Embedded


class Rounding:
    """`computed` is what forwards go through: `model` itself, or its copy in bf16."""

    def __init__(self, model: Embedded, bf16: bool) -> None:
        self.model = model
        self.computed = rounded(model) if bf16 else model

    @property
    def dtype(self) -> torch.dtype:
        return self.computed.length_head.weight.dtype

    @torch.no_grad()
    def round(self) -> None:
        if self.computed is not self.model:
            torch._foreach_copy_(list(self.computed.parameters()), list(self.model.parameters()))

    def collect(self) -> None:
        """Adds the rounded weights' gradients to those of the weights, in whose type they are."""
        if self.computed is self.model:
            return
        for value, made in zip(self.model.parameters(), self.computed.parameters(), strict=True):
            if made.grad is not None:
                value.grad = made.grad.to(value.dtype) if value.grad is None else value.grad.add_(made.grad)
            made.grad = None


def rounded(model: Embedded) -> Embedded:
    """A copy to compute with, in bf16; its embedding, whose rows sum many gradients, stays and gives bf16."""
    made = copy.deepcopy(model).bfloat16()
    made.transformer.embedding.float()
    made.transformer.embedding.register_forward_hook(lambda module, ids, rows: rows.bfloat16())
    return made
