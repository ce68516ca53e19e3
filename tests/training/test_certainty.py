"""How sure fills without drafts are: the curve that is fitted, and the fills that it is fitted on."""

import math
from collections.abc import Generator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from midfill_engine.loading import checkpoint
from midfill_engine.loading.checkpoint import make_random
from midfill_engine.wire import InfillResponse, StepEvent
from training import certainty
from training.drafts import Line


@pytest.mark.parametrize("curve", [(0.5, 1.5, -0.8), (-1.0, 0.6, 0.4)])
def test_a_known_curve_is_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, curve: tuple[float, float, float]
) -> None:
    generator = torch.Generator().manual_seed(0)

    def fill_lines(model: str, lines: list[Line]) -> Iterator[tuple[float, float, float, float]]:
        for _ in range(6000):
            mean, size, chance = torch.rand(3, generator=generator).tolist()
            mean, size = -4 * mean, 3 * size
            score = curve[0] + curve[1] * mean + curve[2] * size
            yield mean, size, float(chance < 1 / (1 + math.exp(-score))), 0.5

    (tmp_path / "lines").write_text("")
    monkeypatch.setattr(certainty, "fill_lines", fill_lines)
    monkeypatch.setattr(certainty, "PENALTY", 0.0)
    *found, share, similar = certainty.fit(tmp_path / "lines", "any", None)
    assert 0 < share < 1 and similar == 0.5
    assert found == pytest.approx(curve, abs=0.2)
    monkeypatch.setattr(certainty, "PENALTY", 1.0)
    *penalised, _, _ = certainty.fit(tmp_path / "lines", "any", None)
    assert sum(map(abs, penalised[1:])) < 0.5 * sum(map(abs, found[1:]))


@pytest.mark.parametrize("seed", [0, 1])
def test_fills_are_told_with_their_tokens_and_whether_they_are_right(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, seed: int
) -> None:
    model, texts, drain = str(tmp_path), list[str](), certainty.drain
    make_random(tmp_path, seed=seed)
    loaded = checkpoint.load(tmp_path)
    loaded.model.config = replace(loaded.config, causal=True)
    checkpoint.save(tmp_path, loaded.model, loaded.tokenizer, "float32")

    def remember(steps: Generator[StepEvent, None, InfillResponse]) -> InfillResponse:
        response = drain(steps)
        texts.append(response.holes[0].text)
        return response

    monkeypatch.setattr(certainty, "drain", remember)
    wrong = Line("p", "a = 1\n", "?", "\nb = 2\n")
    ((likelihood, size, is_right, likeness),) = certainty.fill_lines(model, [wrong])
    assert likelihood < 0 <= size and is_right == 0.0 and likeness < 1
    right = Line("p", wrong.prefix, f" {texts[0].strip()} ", wrong.suffix)
    assert list(certainty.fill_lines(model, [right])) == [(likelihood, size, 1.0, 1.0)]
