"""Samplers, one file each, found by name."""

from typing import Final

from midfill_engine.registry import Registry
from midfill_engine.samplers.base import Decision, Proposals, Sampler, StepState
from midfill_engine.samplers.dream import Dream
from midfill_engine.samplers.editing import Editing
from midfill_engine.samplers.entropy import Entropy
from midfill_engine.samplers.entropy_bound import EntropyBound
from midfill_engine.samplers.p2 import P2
from midfill_engine.samplers.pipeline import Pipeline
from midfill_engine.samplers.seededblocks import SeededBlocks
from midfill_engine.samplers.subblocks import SubBlocks
from midfill_engine.samplers.threshold import Threshold
from midfill_engine.samplers.topk import TopK

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


__all__ = ["SAMPLERS", "Decision", "Proposals", "Sampler", "StepState"]
