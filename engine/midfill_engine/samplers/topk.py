"""Settles equally many positions every step, the most confident first (LLaDA, arXiv 2502.09992, section 2.4)."""

from midfill_engine.samplers.base import Decision, StepState


class TopK:
    """Without a number of steps, quality q takes q steps a masked position: all at once near 0, one a step at 1."""

    needs_entropy = False
    needs_margin = False

    def count_steps(self, num_masked: int, quality: float) -> int:
        return max(1, round(num_masked * quality))

    def decide(self, state: StepState) -> Decision:
        return Decision(state.masked & (state.rank() < state.quota[:, None]))
