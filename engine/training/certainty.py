"""Fits how often fills without drafts are right, from how likely the model finds them. Knows lines and the engine.

A logistic curve (Platt 1999) over the likelihood of the fill read from the left, and the ln number of its tokens, with
a penalty on both: few such fills of a small model are right.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final
from unittest.mock import patch

import torch

from midfill_engine.denoising.denoise import denoise, drain
from midfill_engine.loading.runtime import load_runtime
from midfill_engine.models import choice
from midfill_engine.wire import HoleSegment, HoleSpec, InfillRequest, Segment, TextSegment
from training.drafts import Line, read_lines
from training.evaluate import likeness

PENALTY: Final = 0.003
PLAIN: Final = (0.0, 1.0, 0.0)  # the curve that shows a likelihood as it is
NUM_CHARACTERS: Final = 6000  # of either side, more than the model sees


def fit(lines: Path, model: str, limit: int | None, gate: float = choice.SURE) -> tuple[float, ...]:
    """Offset, weight of the likelihood in nats, weight of ln(number of tokens); the share that was right, and how
    similar fills were.

    `gate` is the model's own probability from which on nothing is mixed in.
    """
    with patch.object(choice, "SURE", gate):
        rows = torch.tensor(list(fill_lines(model, read_lines(lines, limit))), dtype=torch.float64)
    columns, is_right = torch.column_stack((torch.ones(len(rows)), rows[:, :2])), rows[:, 2]
    shares = rows[:, 2:].mean(0).tolist()
    curve = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([curve], max_iter=200, line_search_fn="strong_wolfe")

    def loss() -> torch.Tensor:
        optimizer.zero_grad()
        value = torch.nn.functional.binary_cross_entropy_with_logits(columns @ curve, is_right)
        value = value + PENALTY * curve[1:].square().sum()
        value.backward()  # type: ignore[no-untyped-call]
        return value

    optimizer.step(loss)  # type: ignore[no-untyped-call]
    return tuple(round(value, 4) for value in (*curve.tolist(), *shares))


def fill_lines(model: str, lines: list[Line]) -> Iterator[tuple[float, float, float, float]]:
    """Of every fill that has a token: its likelihood, ln number of tokens, whether it is right, how similar."""
    runtime = load_runtime(model, "cpu")
    runtime = replace(runtime, family=replace(runtime.family, certainty=PLAIN))
    for line in lines:
        before, after = line.prefix[-NUM_CHARACTERS:], line.suffix[:NUM_CHARACTERS]
        segments: list[Segment] = [TextSegment(text=before), HoleSegment(hole=HoleSpec()), TextSegment(text=after)]
        (hole,) = drain(denoise(runtime, InfillRequest(segments=segments, experts=["copying"]))).holes
        if hole.confidence and hole.certainty:
            likelihood = math.log(hole.certainty / (1 - hole.certainty))
            text, wanted = hole.text.strip(), line.middle.strip()
            yield likelihood, math.log(len(hole.confidence)), float(text == wanted), likeness(text, wanted)
