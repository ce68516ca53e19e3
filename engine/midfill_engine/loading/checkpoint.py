"""Reads and writes checkpoint folders of the embedded model: config.json, tokenizer.json, model.safetensors. Knows no
training.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Literal

import torch
from huggingface_hub import split_torch_state_dict_into_shards
from safetensors.torch import save_file
from torch import Tensor

from midfill_engine.checkpoint_files import INDEX, CheckpointError, CheckpointFiles
from midfill_engine.families.embedded import Embedded, EmbeddedConfig
from midfill_engine.models.transformer import TransformerConfig
from midfill_engine.tokens import tokenizer as tokenizers
from midfill_engine.tokens.tokenizer import Tokenizer, TokenizerError

StoredDtype = Literal["int8", "float32", "bfloat16"]
FAMILY: Final = "embedded"
SCALE_SUFFIX: Final = ".scale"
MAX_PART_BYTES: Final = 15 * 2**20


@dataclass(frozen=True)
class LoadedModel:
    """The embedded model, ready to run, with its tokenizer and configuration."""

    model: Embedded
    tokenizer: Tokenizer
    config: EmbeddedConfig
    parameters: int

    @property
    def weight(self) -> Tensor:
        """The embedding's: it stands where the model runs, in its type."""
        return self.model.transformer.embedding.weight

    @property
    def dtype(self) -> torch.dtype:
        return self.weight.dtype


def save(folder: Path, model: Embedded, tokenizer: Tokenizer, dtype: StoredDtype = "int8") -> None:
    """Writes `folder`, with weights in parts of MAX_PART_BYTES. Each file is replaced atomically."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: value.detach().cpu() for name, value in model.state_dict().items()}
    stored = quantize(tensors) if dtype == "int8" else _cast(tensors, getattr(torch, dtype))
    config = {"family": FAMILY, "tokenizer_sha256": tokenizer.sha256, **asdict(model.config)}
    _write_weights(folder, stored)
    _replace(folder / "tokenizer.json", tokenizer.write)
    _replace_json(folder / "config.json", config)


def load(folder: Path, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32) -> LoadedModel:
    """Loads `folder` in evaluation mode. Raises CheckpointError; opens only safetensors and JSON."""
    config, tokenizer_sha256 = _read_config(folder / "config.json")
    try:
        tokenizer = Tokenizer.read(folder / "tokenizer.json")
    except TokenizerError as error:
        raise CheckpointError(str(error)) from error
    files = CheckpointFiles(folder)
    stored = files.read(list(files.shards))
    if tokenizer.sha256 != tokenizer_sha256:
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
    return LoadedModel(model, tokenizer, config, sum(parameter.numel() for parameter in model.parameters()))


def quantize(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Matrices [R, C] as symmetric int8 with one fp32 scale per row ([R] at `NAME.scale`); other tensors as fp32."""
    stored: dict[str, Tensor] = {}
    for name, value in tensors.items():
        value = value.float()
        if value.dim() == 2:
            scale = value.abs().amax(dim=1).clamp(min=1e-12) / 127
            stored[name + SCALE_SUFFIX] = scale
            value = (value / scale[:, None]).round().to(torch.int8)
        stored[name] = value.contiguous()
    return stored


def dequantize(stored: dict[str, Tensor]) -> dict[str, Tensor]:
    """The inverse of `quantize`, in fp32; tensors without a scale pass through as fp32."""
    tensors = {name: value.float() for name, value in stored.items() if not name.endswith(SCALE_SUFFIX)}
    for name, value in tensors.items():
        if name + SCALE_SUFFIX in stored:
            tensors[name] = value * stored[name + SCALE_SUFFIX][:, None]
    return tensors


def make_random(folder: Path, *, seed: int = 0, dim: int = 64, num_layers: int = 2) -> None:
    """Writes a tiny random checkpoint with one token per byte, for tests without a model."""
    tokenizer = tokenizers.build([])
    transformer = TransformerConfig(
        vocab_size=tokenizer.vocab_size,
        dim=dim,
        num_layers=num_layers,
        num_heads=2,
        num_kv_heads=2,
        head_dim=dim // 2,
        mlp_dim=2 * dim,
    )
    model = Embedded(EmbeddedConfig(transformer, hole_span=128, max_hole=128, name="random"))
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=parameter.shape[-1] ** -0.5, generator=generator)
    save(folder, model, tokenizer, "float32")


def _write_weights(folder: Path, stored: dict[str, Tensor]) -> None:
    """Writes one file, or several and their index; removes files of an earlier save."""
    split = split_torch_state_dict_into_shards(
        stored, filename_pattern="model{suffix}.safetensors", max_shard_size=MAX_PART_BYTES
    )
    for name, tensors in split.filename_to_tensors.items():
        part = {tensor: stored[tensor] for tensor in tensors}
        _replace(folder / name, lambda path, part=part: save_file(part, path))  # type: ignore[misc]
    if split.is_sharded:
        _replace_json(folder / INDEX, {"metadata": split.metadata, "weight_map": split.tensor_to_filename})
    kept = {*split.filename_to_tensors, *([INDEX] if split.is_sharded else [])}
    for path in folder.glob("model*.safetensors*"):
        if path.name not in kept:
            path.unlink()


def _replace(path: Path, write: Callable[[Path], object]) -> None:
    temporary = path.with_name("part")
    write(temporary)
    temporary.chmod(0o644)  # safetensors creates files with mode 0600
    temporary.replace(path)


def _replace_json(path: Path, values: Mapping[str, object]) -> None:
    text = json.dumps(values, indent=2) + "\n"
    _replace(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def _cast(tensors: dict[str, Tensor], dtype: torch.dtype) -> dict[str, Tensor]:
    return {name: value.to(dtype).contiguous() for name, value in tensors.items()}


def _read_config(path: Path) -> tuple[EmbeddedConfig, str]:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        family, tokenizer_sha256 = values.pop("family"), values.pop("tokenizer_sha256")
        config = EmbeddedConfig(TransformerConfig(**values.pop("transformer")), **values)
    except OSError as error:
        raise CheckpointError(f"There is no checkpoint at {path.parent}: it has no readable config.json.") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{path} is not the configuration of an embedded checkpoint: {error}") from error
    if family != FAMILY:
        raise CheckpointError(f"{path} is of the family {family!r}, not {FAMILY!r}.")
    return config, tokenizer_sha256
