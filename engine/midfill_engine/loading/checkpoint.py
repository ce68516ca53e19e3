"""Reads checkpoint folders of the embedded model: config.json, tokenizer.json, model.safetensors."""

import hashlib
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from midfill_engine.checkpoint_files import CheckpointError, CheckpointFiles
from midfill_engine.families.embedded import Embedded
from midfill_engine.loading.hub import LoadedModel
from midfill_engine.models.family import ModelConfig
from midfill_engine.models.transformer import TransformerConfig
from midfill_engine.tokens.tokenizer import read_embedded_tokenizer

FAMILY: Final = "embedded"
SCALE_SUFFIX: Final = ".scale"


def load(folder: Path, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32) -> LoadedModel:
    """Loads `folder` in evaluation mode. Raises CheckpointError; opens only safetensors and JSON."""
    files = CheckpointFiles(folder)
    config, tokenizer_sha256 = _read_config(files)
    tokenizer = read_embedded_tokenizer(folder / "tokenizer.json")
    stored = files.read(list(files.shards))
    if hashlib.sha256(tokenizer.serialized.encode()).hexdigest() != tokenizer_sha256:
        raise CheckpointError(f"The tokenizer in {folder} is not the one its weights were trained with.")
    if tokenizer.vocab_size != config.transformer.vocab_size:
        raise CheckpointError(f"The tokenizer in {folder} has {tokenizer.vocab_size} tokens, not the config's number.")
    with torch.device("meta"):
        model = Embedded(config)
    try:
        model.load_state_dict(dequantize(stored), assign=True)
    except RuntimeError as error:
        raise CheckpointError(f"The weights in {folder} do not fit their config.json.") from error
    model = model.to(device=device, dtype=dtype).eval().requires_grad_(False)
    return LoadedModel(model, tokenizer, config, sum(part.numel() for part in model.parameters()), files)


def dequantize(stored: dict[str, Tensor]) -> dict[str, Tensor]:
    """Matrices [R, C] stored as int8 with a scale a row, [R] at `NAME.scale`, and all other tensors, in fp32."""
    tensors = {name: value.float() for name, value in stored.items() if not name.endswith(SCALE_SUFFIX)}
    for name, value in tensors.items():
        if name + SCALE_SUFFIX in stored:
            tensors[name] = value * stored[name + SCALE_SUFFIX][:, None]
    return tensors


def _read_config(files: CheckpointFiles) -> tuple[ModelConfig, str]:
    path, values = files.folder / "config.json", dict(files.config)
    try:
        family, tokenizer_sha256 = values.pop("family"), values.pop("tokenizer_sha256")
        values.pop("training", None)
        config = ModelConfig(TransformerConfig(**values.pop("transformer")), **values)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{path} is not the configuration of an embedded checkpoint: {error}") from error
    if family != FAMILY:
        raise CheckpointError(f"{path} is of the family {family!r}, not {FAMILY!r}.")
    return config, tokenizer_sha256
