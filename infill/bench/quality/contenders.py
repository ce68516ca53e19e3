"""Two kinds of models behind one interface, in one process: the engine's diffusion and the autoregressive baseline.

Both fill greedily, on as many threads, with the same context limit and from the same tokens, and each fill pays for its
context. Knows gaps and models; neither scores nor measures time.
"""

import hashlib
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from bench.quality.complete import Completion, Length, bounds_of
from bench.quality.report import hash_weights
from bench.quality.suite import Task
from midfill_engine.denoising.denoise import denoise, drain
from midfill_engine.loading.runtime import Runtime
from midfill_engine.wire import HoleSegment, InfillRequest, Segment, TextSegment
from training.baseline import Baseline
from training.evaluate import Gap, as_example, gap_nats, true_tokens

NUM_SAMPLES = 8


class Contender(Protocol):
    name: str

    def fill(self, task: Task, length: Length) -> Completion:
        """A refusal where the gap is larger than the model fills."""
        ...

    def nats(self, task: Task, sees_suffix: bool) -> float | None:
        """What the middle costs given its number of tokens; None where it is larger than the model fills."""
        ...


class Diffusion:
    """A checkpoint of the embedded family as the engine fills."""

    def __init__(self, runtime: Runtime, name: str, quality: float | None) -> None:
        """`quality` None is the engine's default."""
        self.name, self.quality, self.runtime = name, quality, runtime

    def fill(self, task: Task, length: Length) -> Completion:
        model = self.runtime.embedded
        num_true, most = true_tokens(model.tokenizer, gap_of(task)), model.config.max_hole
        if length == "oracle" and num_true > most:
            return Completion("", refusal=f"the gap takes {num_true} tokens, the model fills {most}")
        hole = HoleSegment(hole=bounds_of(length, num_true))
        segments: list[Segment] = [TextSegment(text=task.prefix), hole, TextSegment(text=task.suffix)]
        request = InfillRequest(segments=segments, tag=task.language, temperature=0, quality=self.quality)
        self.runtime.contexts.clear()
        return Completion(drain(denoise(self.runtime, request)).holes[0].text)

    def nats(self, task: Task, sees_suffix: bool) -> float | None:
        """An upper bound, by sampling (see `training.evaluate`)."""
        gap = gap_of(task, sees_suffix)
        example = as_example(self.runtime, gap, self.runtime.embedded.config.max_context)
        if example is None:
            return None
        seed = int.from_bytes(hashlib.sha256(task.id.encode()).digest()[:4], "big")
        return gap_nats(self.runtime.embedded.model, example, np.random.default_rng(seed), NUM_SAMPLES)


class Autoregressive:
    """A checkpoint of `training train --objective fim`."""

    def __init__(self, baseline: Baseline, name: str = "FIM baseline") -> None:
        self.name, self.baseline = name, baseline

    def fill(self, task: Task, length: Length) -> Completion:
        gap = gap_of(task)
        count = true_tokens(self.baseline.tokenizer, gap) if length == "oracle" else length
        return Completion(self.baseline.fill(gap, None if isinstance(count, str) else count))

    def nats(self, task: Task, sees_suffix: bool) -> float | None:
        return self.baseline.nats(gap_of(task, sees_suffix), knows_length=True)


@dataclass(frozen=True)
class Maker:
    """Where a contender's weights come from. `tokens` were computed in training; None where the folder does not say."""

    parameters: int
    weights_sha256: str
    tokens: int | None


def maker_of(folder: Path, parameters: int) -> Maker:
    state, config = folder / "state.json", json.loads((folder / "config.json").read_text(encoding="utf-8"))
    said = json.loads(state.read_text(encoding="utf-8")) if state.exists() else config.get("training", {})
    return Maker(parameters, hash_weights(folder), said.get("tokens"))


def gap_of(task: Task, sees_suffix: bool = True) -> Gap:
    return Gap(task.language, task.prefix, task.middle, task.suffix if sees_suffix else "")


def bits_of(nats: float) -> float:
    return nats / math.log(2)
