"""Samplers, one file each, found by name."""

from collections.abc import Callable
from typing import Final

from midfill_engine.registry import Registry
from midfill_engine.samplers.base import Decision, Proposals, Sampler, StepState
from midfill_engine.samplers.dream import Dream
from midfill_engine.samplers.editing import Editing
from midfill_engine.samplers.entropy import Entropy
from midfill_engine.samplers.entropy_bound import EntropyBound
from midfill_engine.samplers.factor import Factor
from midfill_engine.samplers.guided import PREFIX, Guided
from midfill_engine.samplers.hierarchy import Hierarchy
from midfill_engine.samplers.p2 import P2
from midfill_engine.samplers.pipeline import Pipeline
from midfill_engine.samplers.seededblocks import SeededBlocks
from midfill_engine.samplers.subblocks import SubBlocks
from midfill_engine.samplers.threshold import Threshold
from midfill_engine.samplers.topk import TopK
from midfill_engine.samplers.wino import Wino

SAMPLERS: Final[Registry[type[Sampler]]] = Registry(
    "sampler",
    {
        "threshold": Threshold,
        "factor": Factor,
        "entropy-bound": EntropyBound,
        "hierarchy": Hierarchy,
        "pipeline": Pipeline,
        "sub-blocks": SubBlocks,
        "seeded-blocks": SeededBlocks,
        "editing": Editing,
        "wino": Wino,
        "p2": P2,
        "dream": Dream,
        "entropy": Entropy,
        "topk": TopK,
    },
)


def find_sampler(name: str) -> Callable[[], Sampler]:
    """Makes the sampler of a name; `guided:NAME` wraps another one. Raises UnknownName."""
    if name.startswith(PREFIX):
        inner = SAMPLERS.find(name.removeprefix(PREFIX))
        return lambda: Guided(inner())
    return SAMPLERS.find(name)


__all__ = ["SAMPLERS", "Decision", "Proposals", "Sampler", "StepState", "find_sampler"]
