"""Settles every position that is confident enough, at least one a step (Fast-dLLM, arXiv 2505.22618, section 3.3)."""

from midfill_engine.samplers.base import Decision, Sampler, StepState


def threshold_of(quality: float) -> float:
    """The dial: 0.5 at quality 0 and 1 at quality 1, which settles one position a step."""
    return 0.5 + 0.5 * quality


class Threshold(Sampler):
    def decide(self, state: StepState) -> Decision:
        is_sure = state.proposals.confidence >= threshold_of(state.quality)
        return Decision(state.masked & is_sure | state.best(state.quota))
