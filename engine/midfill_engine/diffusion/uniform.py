"""Fills for models with uniform noise, whose unsettled positions hold random tokens instead of masks.

After every forward pass the sampler picks the predictions that stay, and all other positions get new random tokens
(DiffusionGemma; EB-Sampler, arXiv 2505.24857). What the model calls its canvas is longer than the fill's canvas: it
also holds the text behind each hole, so that the model sees this text.
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
from midfill_engine.samplers import Decision, Predictions, StepState
from midfill_engine.wire import ErrorCode

ENDLESS: Final = 1024  # steps that the sampler is told, so that its quota is one position: the end takes the rest


@dataclass
class UniformDenoiser:
    """Denoises one alternative of a fill. `past` is the context's KV cache. Raises RequestError if the model's canvas
    has no room.
    """

    plan: Plan
    canvas: Canvas
    generator: torch.Generator
    past: Any
    step: int = 0
    is_done: bool = False
    _scores: Tensor | None = None  # of the last pass, which the next one gets
    _last_guesses: Array | None = None

    def __post_init__(self) -> None:
        assert isinstance(self.plan.runtime.loaded, CanvasModel)
        self.model = self.plan.runtime.loaded
        self.sampler = self.plan.sampler()
        self.num_steps = min(self.plan.request.steps or self.model.num_steps, self.model.num_steps)
        lengths = list(self.canvas.lengths)
        behind = texts_behind(self.plan.texts, lengths, self.model.canvas_length)
        ids: list[int] = []
        hole_indices: list[int] = []
        for length, text in zip(lengths, behind, strict=True):
            hole_indices += range(len(ids), len(ids) + length)
            ids += [0] * length + text
        # The holes and the texts behind them, with zeros in place of the holes' tokens; and the indices of these.
        self._ids = torch.tensor(ids)
        self._hole_indices = torch.tensor(hole_indices, dtype=torch.int64)
        self.is_done = not bool(self.canvas.masked.any())
        self._fillable = self.canvas.allowed.any(dim=0).nonzero().flatten()

    def open_pass(self) -> CanvasPass:
        self.step += 1
        drawn = torch.randint(len(self._fillable), (len(self._hole_indices),), generator=self.generator)
        noise = self._fillable[drawn]
        ids = self._ids.clone()
        ids[self._hole_indices] = torch.from_numpy(np.where(self.canvas.masked, noise.numpy(), self.canvas.ids))
        return CanvasPass(ids, self.past, self._scores)

    def absorb(self, scores: Tensor) -> None:
        """Finishes the step, of whose pass `scores` [T, V] are the result. The best tokens become the fill in the last
        step, or once they stay the same and the model is sure enough.
        """
        temperature = self.model.temperature(self.step)
        self._scores = scores / temperature
        hole_scores = scores[self._hole_indices.to(scores.device)]
        drawn = choose(hole_scores, self._choice(temperature))
        best = choose(hole_scores, self._choice(0.0))
        assert drawn.entropy is not None
        canvas = self.canvas
        free = ~canvas.anchored
        predicted = Predictions.of(drawn)
        state = StepState(predicted, canvas.ids, free, canvas.anchored, int(free.sum()), 1, ENDLESS, self.plan.quality)
        canvas.masked = free.copy()
        canvas.apply(Decision(self.sampler.decide(state).settle), predicted)
        canvas.guesses = best.ids.numpy()
        canvas.guess_confidence = best.confidence.numpy()
        is_stable = self._last_guesses is not None and bool((self._last_guesses == canvas.guesses)[free].all())
        is_sure = float(drawn.entropy[torch.from_numpy(free)].mean()) < self.model.stop_entropy
        self._last_guesses = canvas.guesses
        if self.step >= self.num_steps or (is_stable and is_sure):
            canvas.masked = free.copy()
            canvas.apply(Decision(free), Predictions.of(best))
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
    """The texts behind the holes; the last one is cut to the canvas. Raises RequestError if the others do not fit."""
    *between, last = pieces[1:]
    room = canvas_length - sum(hole_lengths) - sum(len(piece) for piece in between)
    if room < 0:
        message = f"the holes and what stands between them take more than the {canvas_length} tokens of a canvas"
        raise RequestError(ErrorCode.TOO_LARGE, message, "send a request for each hole")
    return [*between, last[:room]]
