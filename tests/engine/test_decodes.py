"""At temperature 0 a decode is the authors' own, token for token: what their sampling code wrote is recorded."""

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.engine import reference_decodes, tiny
from torch import Tensor

from midfill_engine.loading.canvas_model import CanvasModel
from midfill_engine.loading.runtime import Runtime, load_runtime
from midfill_engine.models import choice
from midfill_engine.requests.seeds import seeded


@pytest.mark.parametrize("name", reference_decodes.recorded_decodes())
@pytest.mark.parametrize("every", [8, pytest.param(1, marks=pytest.mark.soak)])
def test_a_decode_is_the_authors(name: str, every: int, tmp_path: Path) -> None:
    found = reference_decodes.compare(name, tmp_path, every)
    assert found.num_cases >= 20 / every
    assert found.num_same == found.num_cases


def open_gemma(folder: Path, sharp: float) -> Runtime:
    """A tiny DiffusionGemma whose scores are `sharp` times as far apart; ids that no fill may contain score 0."""
    tiny.make_canvas(folder)
    tensors = load_file(folder / "model.safetensors")
    (name,) = (name for name in tensors if name.endswith("decoder.embed_tokens.weight"))
    allowed = load_runtime(str(folder), "cpu", dtype="fp32").vocabulary.allowed()
    tensors[name] *= sharp
    tensors[name][len(allowed) :] = 0
    tensors[name][: len(allowed)][~allowed] = 0
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return load_runtime(str(folder), "cpu", dtype="fp32")


def round_temperature(model: CanvasModel, step: int) -> float:
    left = torch.tensor(model.num_steps - step + 1, dtype=torch.int32)
    return float(model.t_min + (model.t_max - model.t_min) * (left / model.num_steps))


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")  # the library imports what torch gave up
@pytest.mark.parametrize("sharp", [2.5, 4.0])
def test_a_decode_of_diffusion_gemma_is_the_librarys(
    sharp: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole canvases with nothing behind them: both draw the same noise, and for a token take the likeliest.

    Temperatures are rounded to fp32 as the library rounds them: in random weights a rounding grows tenfold a step.
    """
    library: Any = pytest.importorskip("transformers", minversion="5.8")
    generation: Any = pytest.importorskip("transformers.models.diffusion_gemma.generation_diffusion_gemma")
    runtime = open_gemma(tmp_path, sharp)
    own = library.DiffusionGemmaForBlockDiffusion.from_pretrained(tmp_path, dtype=torch.float32).eval()
    fillable, rng = runtime.vocabulary.allowed().nonzero().flatten(), random.Random(16)
    monkeypatch.setattr(choice, "_gumbel", lambda scores, chosen: torch.zeros_like(scores))
    monkeypatch.setattr(CanvasModel, "temperature", round_temperature)
    monkeypatch.setattr(torch, "multinomial", lambda probs, num_samples: probs.argmax(dim=-1, keepdim=True))
    for seed in range(6):
        prefix, length = "".join(rng.choices("abcxyz=()\n ", k=rng.randint(2, 40))), rng.randint(3, 32)
        noise = seeded(seed, 0)

        def draw(sampler: Any, batch_size: int, device: Any, length: int = length, noise: Any = noise) -> Tensor:
            return fillable[torch.randint(len(fillable), (length,), generator=noise)][None]

        monkeypatch.setattr(generation.EntropyBoundSampler, "initialize_canvas", draw)
        own.config.canvas_length = length
        asked = torch.tensor([[*runtime.tokens.opening(None), *prefix.encode()]])
        theirs = own.generate(asked, max_new_tokens=length, max_denoising_steps=16).sequences[0, asked.shape[1] :]
        loaded = replace(runtime.loaded, canvas_length=length, num_steps=16)
        case = {"prefix": prefix, "suffix": "", "max_tokens": length}
        record = {"options": {"seed": seed}, "lengths": "fixed"}
        assert reference_decodes.decode(replace(runtime, loaded=loaded), case, record) == theirs.tolist()
