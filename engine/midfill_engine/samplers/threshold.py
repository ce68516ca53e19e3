"""Settles every position that is confident enough, at least one a step (Fast-dLLM, arXiv 2505.22618, section 3.3)."""

from midfill_engine.samplers.base import Decision, StepState


class Threshold:
    """The threshold is 0.5 at quality 0 and 1 at quality 1, which settles one position a step."""

    needs_entropy = False
    needs_margin = False

    def count_steps(self, num_masked: int, quality: float) -> int:
        return num_masked

    def decide(self, state: StepState) -> Decision:
        threshold = 0.5 + 0.5 * state.quality
        is_sure = state.proposals.confidence >= threshold
        return Decision(state.masked & (is_sure | (state.rank() < state.quota[:, None])))
