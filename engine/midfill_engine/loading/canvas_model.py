"""Loads and runs DiffusionGemma with the transformers library, 5.8 or later (`DiffusionGemmaForBlockDiffusion`). The
library gets config.json and safetensors; it opens no other file of the checkpoint.
"""

from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn

from midfill_engine.checkpoint_files import CheckpointError, CheckpointFiles
from midfill_engine.families.diffusiongemma import DIFFUSION_GEMMA, read_shape
from midfill_engine.models.family import ModelConfig
from midfill_engine.tokens.tokenizer import Tokenizer, read_hub_tokenizer

DEFAULTS: Final = {"max_denoising_steps": 48, "t_min": 0.4, "t_max": 0.8, "confidence_threshold": 0.005}


@dataclass(frozen=True)
class CanvasPass:
    """What a pass computes. Without `past`, `ids` are the context, and the result is its KV cache. With it, `ids` [T]
    are a canvas behind that context, and the result are the canvas's logits [T, V] in fp32. `scores` [T, V] are the
    logits of the step before, which the model sees (self-conditioning).
    """

    ids: Tensor
    past: Any = None
    scores: Tensor | None = None


@dataclass(frozen=True)
class CanvasModel:
    """A loaded DiffusionGemma. `num_steps`, temperatures and `stop_entropy` come from its generation settings."""

    model: Any
    tokenizer: Tokenizer
    config: ModelConfig
    num_parameters: int
    files: CheckpointFiles
    canvas_length: int
    num_steps: int
    t_min: float
    t_max: float
    stop_entropy: float

    @property
    def embedding_weight(self) -> Tensor:
        """The embedding, which is on the model's device, in the model's type."""
        return self.model.model.decoder.embed_tokens.weight  # type: ignore[no-any-return]

    @property
    def dtype(self) -> torch.dtype:
        return self.embedding_weight.dtype

    @cached_property
    def _past_name(self) -> str:
        """The library's name for the context's KV cache: `cache` since version 5.24."""
        parameters = signature(getattr(self.model, "forward", self.model)).parameters
        return "cache" if "cache" in parameters else "past_key_values"

    @torch.inference_mode()
    def run(self, pass_: CanvasPass) -> Any:
        """The result of a pass, as CanvasPass describes it."""
        ids = pass_.ids.to(self.embedding_weight.device)[None]
        if pass_.past is None:
            return getattr(self.model.model.encoder(input_ids=ids), self._past_name)
        last_scores = None if pass_.scores is None else pass_.scores[None].to(self.dtype)
        past = {self._past_name: pass_.past}
        return self.model(decoder_input_ids=ids, self_conditioning_logits=last_scores, **past).logits[0].float()

    def temperature(self, step: int) -> float:
        """The temperature of a step, 1 to `num_steps`. It falls from `t_max` towards `t_min`."""
        return self.t_min + (self.t_max - self.t_min) * (self.num_steps - step + 1) / self.num_steps


def load(folder: Path, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32) -> CanvasModel:
    """Loads the checkpoint. Raises CheckpointError if it is no DiffusionGemma or the library is missing."""
    files = CheckpointFiles(folder)
    try:
        shape = read_shape(files.config)
        model = _build(files, dtype)
        stored = {key: value for key, value in files.generation.items() if value is not None}
        settings = {key: type(value)(stored.get(key, value)) for key, value in DEFAULTS.items()}
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(f"The checkpoint at {folder} is no DiffusionGemma: {error!r}.") from error
    model = model.to(device).eval().requires_grad_(False)
    canvas_length = int(files.config.get("canvas_length") or 256)
    max_context = DIFFUSION_GEMMA.context_window - canvas_length
    return CanvasModel(
        model=model,
        tokenizer=read_hub_tokenizer(files, shape.vocab_size),
        config=ModelConfig(shape, files.name, max_context, canvas_length // 2),
        num_parameters=sum(part.numel() for part in model.parameters()),
        files=files,
        canvas_length=canvas_length,
        num_steps=max(1, int(settings["max_denoising_steps"])),
        t_min=settings["t_min"],
        t_max=settings["t_max"],
        stop_entropy=settings["confidence_threshold"],
    )


def import_classes() -> tuple[Any, Any]:
    """The library's configuration and model classes. Raises CheckpointError if they are not installed."""
    try:
        library = import_module("transformers")  # not among the dependencies: only this family needs it
        return library.DiffusionGemmaConfig, library.DiffusionGemmaForBlockDiffusion
    except (ImportError, AttributeError) as error:
        message = "DiffusionGemma needs the transformers library, 5.8 or later: pip install 'transformers>=5.8'."
        raise CheckpointError(message) from error


def _build(files: CheckpointFiles, dtype: torch.dtype) -> nn.Module:
    """Raises CheckpointError if a tensor is missing or misshapen, because the library would initialize it at random."""
    config_class, model_class = import_classes()
    tensors = files.read_plain(list(files.shards))
    settings = {key: value for key, value in files.config.items() if key != "auto_map"}
    # No folder is given, so that the library opens no file of it, such as generation_config.json with names of classes.
    model, info = model_class.from_pretrained(
        None, config=config_class(**settings), state_dict=tensors, dtype=dtype, output_loading_info=True
    )
    wrong = sorted(map(str, (*info["missing_keys"], *info["mismatched_keys"])))
    if wrong:
        message = f"The weights in {files.folder} lack {wrong[0]} in its shape (and {len(wrong) - 1} more)."
        raise CheckpointError(message)
    return model  # type: ignore[no-any-return]
