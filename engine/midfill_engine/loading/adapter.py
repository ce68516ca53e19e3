"""Merges a LoRA adapter in PEFT's format into its base checkpoint, tensor by tensor as they are read.

A matrix W becomes W + s B A, where s is alpha / r (Hu et al., arXiv 2106.09685) or alpha / sqrt(r) (rsLoRA, arXiv
2312.03732). Other kinds of adapters are refused. Beyond PEFT's format A and B may be int8 with a scale for each row in
NAME.scale, and the configuration may name the SHA-256 of the base's file and of the adapter's.
"""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from midfill_engine.checkpoint_files import ROW_SCALE, CheckpointError, CheckpointFiles, dequantize, open_tensors
from midfill_engine.errors import unknown_model
from midfill_engine.loading.gguf_files import SUFFIX, GgufFiles
from midfill_engine.loading.packaged import PACKAGED, find_packaged, hash_file
from midfill_engine.loading.stock import find_cached
from midfill_engine.starting import is_hub_id

CONFIG: Final = "adapter_config.json"
WEIGHTS: Final = "adapter_model.safetensors"
WRAPPED: Final = "base_model.model."  # what PEFT puts before the names of all tensors
BASE_SHA256, WEIGHTS_SHA256 = "base_sha256", "weights_sha256"
PAIRS: Final = {"A.weight": "B.weight", "embedding_A": "embedding_B"}  # the ends of the names of A and its B
SUPPORTED: Final = frozenset(
    {"peft_type", "r", "lora_alpha", "use_rslora", "rank_pattern", "alpha_pattern", "init_lora_weights", "bias"}
    | {"base_model_name_or_path", "revision", BASE_SHA256, WEIGHTS_SHA256}
)
# Keys for training only, and keys that the tensors imply. As in PEFT, fan_in_fan_out does not matter to torch's Linear.
IGNORED: Final = frozenset(
    {"task_type", "auto_mapping", "peft_version", "inference_mode", "target_modules", "exclude_modules"}
    | {"lora_dropout", "fan_in_fan_out", "modules_to_save", "layers_to_transform", "layers_pattern", "loftq_config"}
    | {"megatron_core", "eva_config", "qalora_group_size", "ensure_weight_tying", "runtime_config"}
)
# The values of init_lora_weights that leave the base weights as they are.
INITIALIZATIONS: Final = (True, False, None, "gaussian", "orthogonal", "eva")


@dataclass(frozen=True)
class LowRank:
    """A low-rank change of a matrix: the stored names of A [r, in] (`down`) and B [out, r] (`up`), and s (`scale`). An
    embedding's A is [r, rows] and its B [width, r].
    """

    down: str
    up: str
    scale: float
    is_embedding: bool


@dataclass(frozen=True)
class Adapter:
    """An adapter and its changes, by the names of the base's tensors: `low_rank` changes, and for `replaced` tensors
    the stored names of those that replace them.
    """

    folder: Path
    base_sha256: str | None
    low_rank: Mapping[str, LowRank]
    replaced: Mapping[str, str]

    @classmethod
    def read(cls, folder: Path) -> "Adapter":
        """The adapter in `folder`. Raises CheckpointError if it is damaged or not supported."""
        config = _read_config(folder)
        if not (folder / WEIGHTS).is_file():
            raise CheckpointError(f"The adapter at {folder} has no {WEIGHTS}; pickled weights could run code.")
        if config.get(WEIGHTS_SHA256) is not None and config[WEIGHTS_SHA256] != hash_file(folder / WEIGHTS):
            raise CheckpointError(f"{folder / WEIGHTS} is damaged: its SHA-256 is not the one in {CONFIG}.")
        with open_tensors(folder / WEIGHTS) as tensors:
            stored = [name for name in tensors.keys() if not name.endswith(ROW_SCALE)]
            shapes = {name: tuple(tensors.get_slice(name).get_shape()) for name in stored}
        parts: dict[str, dict[str, str]] = {}  # by module, the stored names by their ends
        replaced: dict[str, str] = {}
        for name in shapes:
            if not name.startswith(WRAPPED):
                raise CheckpointError(f"The adapter at {folder} has {name}, which is not named as PEFT names tensors.")
            module, _, part = name.removeprefix(WRAPPED).rpartition(".lora_")
            if module:
                parts.setdefault(module, {})[part] = name
            else:
                replaced[re.sub(r"\.(modules_to_save|base_layer)\.", ".", part)] = name
        if not shapes:
            raise CheckpointError(f"The adapter at {folder} has no tensors.")
        low_rank = {f"{module}.weight": _pair(module, names, config, shapes, folder) for module, names in parts.items()}
        return cls(folder, config.get(BASE_SHA256), low_rank, replaced)

    def merge(self, name: str, value: Tensor | None) -> Tensor:
        """The base's tensor with the adapter's change, added in fp32. `value` is None if the adapter replaces it."""
        change = self.low_rank.get(name)
        with open_tensors(self.folder / WEIGHTS) as tensors:
            base = tensors.get_tensor(self.replaced[name]) if name in self.replaced else value
            assert base is not None
            if change is None:
                return base
            down, up = read_wide(tensors, change.down), read_wide(tensors, change.up)
        if change.is_embedding:
            down, up = up.T, down.T
        if (up.shape[0], down.shape[1]) != tuple(base.shape):
            message = f"The adapter at {self.folder} changes {name} as one of {up.shape[0]} by {down.shape[1]}"
            raise CheckpointError(f"{message}, and its base has {tuple(base.shape)}: it was made for another base.")
        return torch.addmm(base.float(), up, down, alpha=change.scale)


def open_files(folder: Path) -> CheckpointFiles:
    """The files of a checkpoint, a GGUF file, or an adapter over its base. Raises CheckpointError, StartError."""
    if folder.suffix == SUFFIX and folder.is_file():
        return GgufFiles(folder)
    if not is_adapter(folder):
        return CheckpointFiles(folder)
    adapter = Adapter.read(folder)
    base = find_base(folder)
    if adapter.base_sha256 is not None and (not base.is_file() or hash_file(base) != adapter.base_sha256):
        raise CheckpointError(f"The adapter at {folder} was trained on another file than {base}: use it without.")
    return replace(
        open_files(base),
        merges={name: partial(adapter.merge, name) for name in (*adapter.low_rank, *adapter.replaced)},
        replaced=dict.fromkeys(adapter.replaced, folder / WEIGHTS),
        adapter_name=CheckpointFiles(folder).name,
    )


def is_adapter(folder: Path) -> bool:
    return (folder / CONFIG).is_file()


def find_base(adapter: Path) -> Path:
    """Where an adapter's base is: a packaged model, a folder beside the adapter's, or one in the hub's cache. Downloads
    nothing, and reads only the adapter's configuration. Of a path only the last part counts. Raises CheckpointError;
    StartError if the base is not here.
    """
    folder = Path(os.path.abspath(adapter))
    config = _read_config(adapter)
    named, revision = config["base_model_name_or_path"], config.get("revision")
    if named in PACKAGED:
        return find_packaged(PACKAGED[named])
    name = re.split(r"[\\/]", named.rstrip("\\/"))[-1]
    if name in ("", ".", ".."):
        raise CheckpointError(f"The adapter at {adapter} names its base {named!r}, which is no name.")
    base = folder.parent / name
    if base == folder or not base.is_dir():
        hub_id = f"{named}@{revision}" if revision else named
        cached = find_cached(hub_id) if is_hub_id(hub_id) else None
        if cached is None:
            message = f"The adapter at {adapter} was trained on {named!r}, which is not on this machine."
            fetch = f"run `midfill models get {hub_id}`, or " if is_hub_id(named) else ""
            next_step = f"{fetch}put the folder of that checkpoint beside the adapter's, under the name {name}"
            raise unknown_model(message, next_step)
        base = cached
    if is_adapter(base):
        raise CheckpointError(f"The adapter at {adapter} was trained on another adapter, {base}.")
    return base


def _read_config(folder: Path) -> dict[str, Any]:
    """The adapter's configuration. Raises CheckpointError if it asks for anything that is not computed here."""
    try:
        config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{folder / CONFIG} cannot be read: {error}") from error
    if not isinstance(config, dict) or config.get("peft_type") != "LORA":
        raise CheckpointError(f"The adapter at {folder} is no LoRA adapter, and no other kind is supported.")
    unsupported = [name for name, value in config.items() if value and name not in SUPPORTED | IGNORED]
    if config.get("init_lora_weights") not in INITIALIZATIONS:
        unsupported.append(f"init_lora_weights={config['init_lora_weights']!r}")
    patterns = [config.get(name) or {} for name in ("rank_pattern", "alpha_pattern")]
    unsupported += [repr(pattern) for table in patterns for pattern in table if not re.fullmatch(r"[\w.]+", pattern)]
    if unsupported:
        raise CheckpointError(f"The adapter at {folder} asks for {unsupported[0]}, which is not supported.")
    is_number = all(isinstance(config.get(name), int | float) for name in ("r", "lora_alpha"))
    is_text = isinstance(config.get("base_model_name_or_path"), str)
    if not is_number or not is_text or not isinstance(config.get("revision"), str | None):
        raise CheckpointError(f"{folder / CONFIG} does not say its rank, its alpha and its base.")
    return config


def read_wide(tensors: Any, name: str) -> Tensor:
    """A tensor of an adapter in fp32; rows of int8 are scaled."""
    value: Tensor = tensors.get_tensor(name)
    scale = tensors.get_tensor(name + ROW_SCALE) if value.dtype == torch.int8 else None
    return dequantize(value, scale)


def _pair(
    module: str,
    names: Mapping[str, str],
    config: Mapping[str, Any],
    shapes: Mapping[str, tuple[int, ...]],
    folder: Path,
) -> LowRank:
    """The change of a module whose tensors have the stored `names`, by their ends. Raises CheckpointError."""
    a_end = next((end for end in PAIRS if end in names), "")
    others = [name for end, name in names.items() if end not in (a_end, PAIRS.get(a_end))]
    if others:
        raise CheckpointError(f"The adapter at {folder} has {others[0]}, which is not merged.")
    down, up = names[a_end], names.get(PAIRS[a_end], "")
    down_shape, up_shape = shapes[down], shapes.get(up, ())
    if len(down_shape) != 2 or len(up_shape) != 2 or down_shape[0] != up_shape[1]:
        raise CheckpointError(f"The adapter at {folder} has no B that fits {down}.")
    rank = down_shape[0]
    if rank != _of_module(config.get("rank_pattern") or {}, module, config["r"]):
        raise CheckpointError(f"The adapter at {folder} has {down} of rank {rank}, which is not its configuration's.")
    alpha = _of_module(config.get("alpha_pattern") or {}, module, config["lora_alpha"])
    scale = float(alpha) / (rank**0.5 if config.get("use_rslora") else rank)
    return LowRank(down, up, scale, is_embedding=a_end == "embedding_A")


def _of_module(pattern: Mapping[str, Any], module: str, default: Any) -> Any:
    """The value of the first name in `pattern` with which the name `module` ends, otherwise `default`."""
    values = (value for name, value in pattern.items() if module == name or module.endswith(f".{name}"))
    return next(values, default)
