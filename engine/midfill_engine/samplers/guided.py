"""Settles what its sampler would, and all that a small autoregressive model would have written too.

Guided diffusion (FlashDLM, arXiv 2505.21467): the supervisor reads the proposals from left to right and agrees up to
the first that it finds too unlikely. There the authors write its token; here the sampler goes on, because it alone
sees the text behind the hole for certain.
"""

from torch import Tensor

from midfill_engine.samplers.base import Decision, Sampler, StepState

PREFIX = "guided:"


class Guided(Sampler):
    """A wrapper: everything but the additional positions is the inner sampler's."""

    needs_guide = True

    def __init__(self, inner: Sampler) -> None:
        self.inner = inner
        self.needs_entropy = inner.needs_entropy
        self.is_scaled = inner.is_scaled
        self.needs_support = inner.needs_support
        self.takes_back = inner.takes_back
        self.revises = inner.revises

    @property
    def goes_on(self) -> bool:  # type: ignore[override]
        return self.inner.goes_on

    def count_steps(self, num_masked: int, quality: float) -> int:
        return self.inner.count_steps(num_masked, quality)

    def decide(self, state: StepState) -> Decision:
        decision = self.inner.decide(state)
        if state.proposals.agreed is None:
            return decision
        return Decision(decision.settle | state.proposals.agreed & state.masked, decision.remask, decision.edit)

    def reach(self, masked: Tensor) -> int:
        return self.inner.reach(masked)

    def move(self, order: list[int | None]) -> None:
        self.inner.move(order)
