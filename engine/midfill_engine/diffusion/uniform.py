"""Fills for models with uniform noise, whose unsettled positions hold random tokens instead of masks.

After every forward pass the sampler picks the proposals that stay, and all others are drawn again (DiffusionGemma;
EB-Sampler, arXiv 2505.24857). Text behind a hole is part of the canvas, so that the model sees it.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from midfill_engine.diffusion.canvas import Canvas
from midfill_engine.diffusion.plan import Plan
from midfill_engine.errors import RequestError
from midfill_engine.loading.canvas_model import CanvasModel, CanvasPass
from midfill_engine.models.choice import Choice, choose
from midfill_engine.models.sequence import Array
from midfill_engine.samplers import Decision, Proposals, StepState
from midfill_engine.wire import ErrorCode

ENDLESS: Final = 1024  # without a quota: the best guesses are taken at the end


@dataclass
class UniformRow:
    """One alternative; `past` is the context's KV cache. Raises RequestError if the canvas has no room."""

    plan: Plan
    canvas: Canvas
    generator: torch.Generator
    past: Any
    step: int = 0
    is_done: bool = False
    _scores: Tensor | None = None
    _before: Array | None = None

    def __post_init__(self) -> None:
        assert isinstance(self.plan.runtime.loaded, CanvasModel)
        self.model = self.plan.runtime.loaded
        self.sampler = self.plan.sampler()
        self.num_steps = min(self.plan.request.steps or self.model.num_steps, self.model.num_steps)
        lengths = list(self.canvas.lengths)
        behind = texts_behind(self.plan.texts, lengths, self.model.canvas_length)
        line: list[int] = []
        hole_places: list[int] = []
        for length, text in zip(lengths, behind, strict=True):
            hole_places += range(len(line), len(line) + length)
            line += [0] * length + text
        # The canvas with zeros in place of the holes' tokens, and where these are.
        self._line = torch.tensor(line)
        self._hole_places = torch.tensor(hole_places, dtype=torch.int64)
        self.is_done = not bool(self.canvas.masked.any())
        self._fillable = self.canvas.allowed.any(dim=0).nonzero().flatten()

    def open_pass(self) -> CanvasPass:
        self.step += 1
        drawn = torch.randint(len(self._fillable), (len(self._hole_places),), generator=self.generator)
        noise = self._fillable[drawn]
        line = self._line.clone()
        line[self._hole_places] = torch.from_numpy(np.where(self.canvas.masked, noise.numpy(), self.canvas.ids))
        return CanvasPass(line, self.past, self._scores)

    def absorb(self, scores: Tensor) -> None:
        """`scores` [T, V] are the result of the pass."""
        temperature = self.model.temperature(self.step)
        self._scores = scores / temperature
        scores = scores[self._hole_places.to(scores.device)]
        drawn = choose(scores, self._choice(temperature))
        best = choose(scores, self._choice(0.0))
        assert drawn.entropy is not None
        canvas = self.canvas
        free = ~canvas.anchored
        proposed = Proposals.of(drawn)
        state = StepState(proposed, canvas.ids, free, canvas.anchored, int(free.sum()), 1, ENDLESS, self.plan.quality)
        canvas.masked = free.copy()
        canvas.apply(Decision(self.sampler.decide(state).settle), proposed)
        canvas.guesses = best.ids.numpy()
        canvas.guessed = best.confidence.numpy()
        is_stable = self._before is not None and bool((self._before == canvas.guesses)[free].all())
        is_sure = float(drawn.entropy[torch.from_numpy(free)].mean()) < self.model.stop_entropy
        self._before = canvas.guesses
        if self.step >= self.num_steps or (is_stable and is_sure):
            canvas.masked = free.copy()
            canvas.apply(Decision(free), Proposals.of(best))
            self.is_done = True

    def _choice(self, temperature: float) -> Choice:
        return Choice(
            allowed=self.canvas.allowed,
            rule_of=torch.from_numpy(self.canvas.rule_of),
            temperature=temperature,
            is_scaled=temperature > 0,
            generator=self.generator,
            needs_entropy=temperature > 0,
        )


def texts_behind(pieces: list[list[int]], hole_lengths: list[int], canvas_length: int) -> list[list[int]]:
    """`pieces` without the first, the last one truncated to the canvas. Raises RequestError if they do not fit."""
    *between, last = pieces[1:]
    room = canvas_length - sum(hole_lengths) - sum(len(piece) for piece in between)
    if room < 0:
        message = f"the holes and what stands between them take more than the {canvas_length} tokens of a canvas"
        raise RequestError(ErrorCode.TOO_LARGE, message, "send a request for each hole")
    return [*between, last[:room]]
