"""Samplers by name. Variants of a sampler are in its module."""

from typing import Final

from midfill_engine.registry import Registry
from midfill_engine.samplers.base import Decision, Predictions, Sampler, StepState
from midfill_engine.samplers.entropy_bound import EntropyBound
from midfill_engine.samplers.p2 import P2
from midfill_engine.samplers.pipeline import Pipeline
from midfill_engine.samplers.scheduled import Dream, Entropy, TopK
from midfill_engine.samplers.threshold import Editing, SeededBlocks, SubBlocks, Threshold

SAMPLERS: Final[Registry[type[Sampler]]] = Registry(
    "sampler",
    {
        "threshold": Threshold,
        "entropy-bound": EntropyBound,
        "pipeline": Pipeline,
        "sub-blocks": SubBlocks,
        "seeded-blocks": SeededBlocks,
        "editing": Editing,
        "p2": P2,
        "dream": Dream,
        "entropy": Entropy,
        "topk": TopK,
    },
)

__all__ = ["SAMPLERS", "Decision", "Predictions", "Sampler", "StepState"]
