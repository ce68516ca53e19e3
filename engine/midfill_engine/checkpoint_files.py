"""Reads a checkpoint's folder in the hub's layout: JSON and safetensors, never code or pickles. Knows no model."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

INDEX: Final = "model.safetensors.index.json"
ROW_SCALE: Final = ".scale"  # suffix of the name of the scales of an int8 tensor's rows
PLAIN_TYPES: Final = (torch.bfloat16, torch.float16, torch.float32, torch.float64)


class CheckpointError(ValueError):
    """A checkpoint cannot be used; the message is one sentence."""


@dataclass(frozen=True)
class CheckpointFiles:
    """The parsed files of `folder`. A missing file reads as empty; a broken one raises CheckpointError.

    An adapter sets `adapter_name`; `merges`, by the names of the tensors that it changes, functions from the stored
    tensor to the changed one; and `replaced`, by the names of the tensors that it brings whole, their files.
    """

    folder: Path
    merges: Mapping[str, Callable[[Tensor | None], Tensor]] = field(default_factory=dict)
    replaced: Mapping[str, Path] = field(default_factory=dict)
    adapter_name: str = ""

    @property
    def name(self) -> str:
        """The name of the adapter, of the repository in the hub's cache, of a GGUF file, or else of the folder."""
        folder = self.folder.absolute()  # because "." has no name
        if self.adapter_name:
            return self.adapter_name
        if folder.parent.name == "snapshots" and folder.parent.parent.name.startswith("models--"):
            return folder.parent.parent.name.rpartition("--")[2]
        return folder.stem if folder.suffix == ".gguf" else folder.name

    def release(self) -> None:
        """Frees memory once all tensors are read; nothing is to be freed here."""

    @cached_property
    def config(self) -> dict[str, Any]:
        """The values of config.json. Raises CheckpointError if there are none."""
        values = self._json("config.json")
        if not values:
            raise CheckpointError(f"There is no checkpoint at {self.folder}: it has no readable config.json.")
        return values

    @cached_property
    def generation(self) -> dict[str, Any]:
        return self._json("generation_config.json")

    @cached_property
    def tokenizer_config(self) -> dict[str, Any]:
        return self._json("tokenizer_config.json")

    @cached_property
    def tokenizer(self) -> dict[str, Any]:
        return self._json("tokenizer.json")

    @cached_property
    def added_tokens(self) -> dict[str, int]:
        """The id of every added token by its text, from whichever files have it."""
        decoder, listed = self.tokenizer_config.get("added_tokens_decoder", {}), self.tokenizer.get("added_tokens", [])
        ids = {token["content"]: int(token_id) for token_id, token in decoder.items()}
        ids |= self._json("added_tokens.json")
        return ids | {token["content"]: int(token["id"]) for token in listed}

    def number(self, *keys: str) -> int | None:
        """The first integer under one of `keys` in config.json or generation_config.json."""
        return next(iter(self.numbers(*keys)), None)

    def numbers(self, *keys: str) -> tuple[int, ...]:
        """All integers under `keys` in config.json and generation_config.json, single or in a list."""
        stored = [values.get(key) for values in (self.config, self.generation) for key in keys]
        lists = [value if isinstance(value, list) else [value] for value in stored]
        return tuple(dict.fromkeys(value for values in lists for value in values if isinstance(value, int)))

    def role_id(self, role: str) -> int | None:
        """The id of the role `bos`, `eos`, ...: the tokenizer's, else config.json's, which is wrong in Dream-v0."""
        key = f"{role}_token"
        token = self.tokenizer_config.get(key) or self._json("special_tokens_map.json").get(key)
        text = token.get("content") if isinstance(token, dict) else token
        token_id = self.added_tokens.get(text) if isinstance(text, str) else None
        return self.number(f"{role}_token_id") if token_id is None else token_id

    def token_id(self, *names: str) -> int | None:
        """The id of the first added token with one of these names: its text, or a role of tokenizer_config.json."""
        for name in names:
            token = self.tokenizer_config.get(name, name)
            text = token.get("content") if isinstance(token, dict) else token
            if text in self.added_tokens:
                return self.added_tokens[text]
        return None

    @cached_property
    def shards(self) -> Mapping[str, Path]:
        """The file of every tensor by the tensor's name. Raises CheckpointError."""
        return {**self._find_shards(), **self.replaced}

    def _find_shards(self) -> Mapping[str, Path]:
        """The file of every tensor that the folder has. Refuses pickled weights, because they can run code."""
        weight_map = self._json(INDEX).get("weight_map", {})
        if any(Path(name).name != name for name in weight_map.values()):
            raise CheckpointError(f"{self.folder / INDEX} names files outside its folder.")
        if weight_map:
            return {tensor: self.folder / name for tensor, name in weight_map.items()}
        files = sorted(self.folder.glob("*.safetensors"))
        if not files:
            has_pickles = any(self.folder.glob("*.bin")) or any(self.folder.glob("*.pt"))
            reason = "only pickled weights, which could run code" if has_pickles else "no safetensors"
            raise CheckpointError(f"The checkpoint at {self.folder} has {reason}.")
        shards: dict[str, Path] = {}
        for file in files:
            with open_tensors(file) as tensors:
                shards.update(dict.fromkeys(tensors.keys(), file))
        return shards

    def read(self, names: list[str]) -> dict[str, Tensor]:
        """The tensors of these names, with an adapter's changes; opens each file once. Raises CheckpointError."""
        missing = [name for name in names if name not in self.shards]
        if missing:
            raise CheckpointError(f"The weights in {self.folder} lack {missing[0]} (and {len(missing) - 1} more).")
        stored = self._read([name for name in names if name not in self.replaced])
        return stored | {name: self.merges[name](stored.get(name)) for name in names if name in self.merges}

    def _read(self, names: list[str]) -> dict[str, Tensor]:
        stored: dict[str, Tensor] = {}
        for file in sorted({self.shards[name] for name in names}):
            with open_tensors(file) as tensors:
                stored |= {name: tensors.get_tensor(name) for name in names if self.shards[name] == file}
        return stored

    def read_plain(self, names: list[str]) -> dict[str, Tensor]:
        """Like `read`; raises CheckpointError for quantized weights, which mean nothing without their scales."""
        is_quantized = self.config.get("quantization_config") is not None
        tensors = {} if is_quantized else self.read(names)
        if is_quantized or any(value.dtype not in PLAIN_TYPES for value in tensors.values()):
            message = f"The weights in {self.folder} are quantized, which is not read: take the original checkpoint."
            raise CheckpointError(message)
        return tensors

    def _json(self, name: str) -> dict[str, Any]:
        """The object in a JSON file, empty if the file is missing. Raises CheckpointError if it cannot be read."""
        try:
            values = json.loads((self.folder / name).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise CheckpointError(f"{self.folder / name} cannot be read: {error}") from error
        if not isinstance(values, dict):
            raise CheckpointError(f"{self.folder / name} is not a JSON object.")
        return values


def dequantize(value: Tensor, scale: Tensor | None) -> Tensor:
    """`value` in fp32. Rows of int8 [R, C] are multiplied by their `scale` [R]."""
    return value.float() if scale is None else value.float() * scale.view(-1, 1)


def open_tensors(file: Path) -> Any:
    """An open safetensors file. Raises CheckpointError if it cannot be read."""
    try:
        return safe_open(file, framework="pt")
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"The weights {file} cannot be read: {error}") from error
