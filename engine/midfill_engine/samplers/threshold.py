"""Settles every position that is confident enough, at least one a step (Fast-dLLM, arXiv 2505.22618, section 3.3)."""

from midfill_engine.samplers.base import Decision, Sampler, StepState


class Threshold(Sampler):
    def decide(self, state: StepState) -> Decision:
        is_sure = state.proposals.confidence >= state.threshold
        return Decision(state.masked & is_sure | state.best(state.quota))
