"""Samplers, one file each, found by name."""

from typing import Final

from midfill_engine.registry import Registry
from midfill_engine.samplers.base import Credit, Decision, Proposals, Sampler, StepState
from midfill_engine.samplers.threshold import Threshold
from midfill_engine.samplers.topk import TopK

SAMPLERS: Final[Registry[type[Sampler]]] = Registry("sampler", {"threshold": Threshold, "topk": TopK})

__all__ = ["SAMPLERS", "Credit", "Decision", "Proposals", "Sampler", "StepState"]
