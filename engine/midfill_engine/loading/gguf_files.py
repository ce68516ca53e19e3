"""Reads a GGUF file as if it were the folder of JSON and safetensors that it was made from. Knows llama.cpp's names.

It reads four of llama.cpp's architectures: the diffusion models `dream` and `llada`, the causal models `llama` and
`qwen2`. For LLaDA and Llama the converter puts the two numbers of each rotary pair of queries and keys side by side,
which is undone here. The `gguf` package dequantizes tensors as they are read.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from midfill_engine.checkpoint_files import CheckpointError, CheckpointFiles
from midfill_engine.families.causal import CAUSAL
from midfill_engine.families.dream import DREAM
from midfill_engine.families.llada import LLADA
from midfill_engine.models.int8 import StoredRows
from midfill_engine.tokens.tokenizer import PLAIN_BYTES, QWEN_PIECES, describe_bpe, split_at

SUFFIX: Final = ".gguf"
# The file's keys, without the architecture's prefix, and Llama's keys of a config.json, which all families read.
SHAPE: Final = {
    "embedding_length": "hidden_size",
    "block_count": "num_hidden_layers",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "feed_forward_length": "intermediate_size",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "rope.freq_base": "rope_theta",
    "context_length": "max_position_embeddings",
}
FAMILY: Final = {"dream": DREAM, "llama": CAUSAL, "qwen2": CAUSAL, "llada": LLADA}
MODEL_TYPE: Final = {"dream": DREAM.model_types[0]}  # where config.json's model_type is not the architecture's name
IS_SHIFTED: Final = {"dream": True, "llada": False}  # whether the state before a position scores it
PAIRED: Final = re.compile(r"blk\.\d+\.attn_([qk])\.(weight|bias)")  # tensors with rotary pairs side by side
PAIRED_IN: Final = ("llada", "llama")  # the architectures that have such tensors
ROLES: Final = {"bos": "bos", "eos": "eos", "pad": "padding", "mask": "mask"}  # and llama.cpp's names of these roles
MASKS: Final = ("<|mask|>", "<|mdm_mask|>")  # tokens that are the mask if the file does not name it
NORMAL, CONTROL, USER_DEFINED = 1, 3, 4  # llama.cpp's types of tokens
# The patterns of pre-tokenizers by llama.cpp's names, as its vocabulary code defines them.
BAILING_PIECES: Final = (
    r"'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]|\s+(?!\S)|\s+"
)
PIECES: Final = {"qwen2": QWEN_PIECES, "deepseek-r1-qwen": QWEN_PIECES} | dict.fromkeys(
    ("bailingmoe", "bailingmoe2", "llada-moe"), BAILING_PIECES
)
GPT2_PIECES: Final = {**PLAIN_BYTES, "use_regex": True}
WIDENED_ROWS: Final = 128  # rows of a tensor that are dequantized at once
SINGLE_DIGITS: Final = {"type": "Digits", "individual_digits": True}
# Pre-tokenizers that split like GPT-2 once digits are separated.
WITH_SINGLE_DIGITS: Final = ("smollm", "starcoder", "refact", "command-r", "codeshell")


@dataclass(frozen=True)
class GgufFiles(CheckpointFiles):
    """A GGUF file as checkpoint files; `folder` is the file itself. A tokenizer.json beside it takes precedence."""

    @cached_property
    def _library(self) -> Any:
        return import_module("gguf")  # imported when needed, because it is slow

    @cached_property
    def _reader(self) -> Any:
        try:
            return make_reader(self._library.GGUFReader)(self.folder)
        except OSError as error:
            raise CheckpointError(f"The file {self.folder} cannot be read ({error.strerror}).") from error
        except (ValueError, IndexError, KeyError, OverflowError, MemoryError) as error:
            raise CheckpointError(f"The file {self.folder} is no GGUF file, or not all of one.") from error

    def release(self) -> None:
        for cached in ("_reader", "_stored", "_tokens", "_token_types", "tokenizer"):
            self.__dict__.pop(cached, None)

    def value(self, key: str) -> Any:
        """The value of a key of the file, None if it is missing."""
        field = self._reader.fields.get(key)
        value = None if field is None else field.contents()
        return float(f"{value:.7g}") if isinstance(value, float) else value  # the decimal number that fp32 came from

    @cached_property
    def architecture(self) -> str:
        """llama.cpp's name of the model's architecture. Raises CheckpointError if no family here computes it."""
        architecture = str(self.value("general.architecture"))
        if architecture not in FAMILY:
            known = ", ".join(FAMILY)
            message = f"The file {self.folder} holds a model of llama.cpp's architecture {architecture!r}"
            raise CheckpointError(f"{message}, which is not computed here; known: {known}.")
        self._refuse_unsupported(architecture)
        return architecture

    def _refuse_unsupported(self, architecture: str) -> None:
        """Raises CheckpointError if the file's settings are not those that the family computes."""
        stored_shift, family_shift = self.value("diffusion.shift_logits"), IS_SHIFTED.get(architecture)
        scaling = self.value(f"{architecture}.rope.scaling.type")
        reasons = {
            f"scores that are {'' if stored_shift else 'not '}shifted": stored_shift not in (None, family_shift),
            "causal attention": family_shift is not None and self.value(f"{architecture}.attention.causal") is True,
            "scaled rotary positions": scaling not in (None, "none"),
            "only a part of a model; join the parts with llama-gguf-split": (self.value("split.count") or 1) > 1,
        }
        for reason, applies in reasons.items():
            if applies:
                raise CheckpointError(f"The file {self.folder} is not supported: it has {reason}.")

    @cached_property
    def config(self) -> dict[str, Any]:
        """The config.json of the checkpoint that the file was made from."""
        architecture = self.architecture
        values = {"model_type": MODEL_TYPE.get(architecture, architecture), "vocab_size": len(self._tokens)}
        values |= {llama_key: self.value(f"{architecture}.{key}") for key, llama_key in SHAPE.items()}
        values |= {f"{role}_token_id": token_id for role, token_id in self._roles.items()}
        return {key: value for key, value in values.items() if value is not None}

    @cached_property
    def _tokens(self) -> list[str]:
        return self.value("tokenizer.ggml.tokens") or []

    @cached_property
    def _roles(self) -> dict[str, int]:
        """The token id of each role that the file names."""
        ids = {role: self.value(f"tokenizer.ggml.{name}_token_id") for role, name in ROLES.items()}
        if ids["mask"] is None:
            ids["mask"] = next((self.added_tokens[text] for text in MASKS if text in self.added_tokens), None)
        return {role: int(token_id) for role, token_id in ids.items() if token_id is not None}

    def _json(self, name: str) -> dict[str, Any]:
        return {}

    @cached_property
    def added_tokens(self) -> dict[str, int]:
        types = enumerate(self._token_types)
        return {self._tokens[token_id]: token_id for token_id, kind in types if kind in (CONTROL, USER_DEFINED)}

    @cached_property
    def _token_types(self) -> list[int]:
        return self.value("tokenizer.ggml.token_type") or [NORMAL] * len(self._tokens)

    @cached_property
    def tokenizer_config(self) -> dict[str, Any]:
        named = {f"{role}_token": self._tokens[token_id] for role, token_id in self._roles.items()}
        return {**named, "add_bos_token": bool(self.value("tokenizer.ggml.add_bos_token"))}

    @cached_property
    def tokenizer(self) -> dict[str, Any]:
        """The tokenizer.json beside the file, or the file's tokenizer as one. Raises CheckpointError."""
        beside = CheckpointFiles(self.folder.parent).tokenizer
        if beside:
            return beside
        model, pieces = self.value("tokenizer.ggml.model"), self.value("tokenizer.ggml.pre")
        if model != "gpt2" or pieces not in (*PIECES, *WITH_SINGLE_DIGITS):
            message = f"The file {self.folder} has an unknown tokenizer ({model}, {pieces})"
            raise CheckpointError(f"{message}: put the tokenizer.json of its original model beside it.")
        types = self._token_types
        vocabulary = {text: token_id for token_id, text in enumerate(self._tokens) if types[token_id] == NORMAL}
        steps = [SINGLE_DIGITS, GPT2_PIECES] if pieces in WITH_SINGLE_DIGITS else split_at(PIECES[pieces])
        return describe_bpe(vocabulary, self.value("tokenizer.ggml.merges") or [], steps)

    @cached_property
    def _stored(self) -> Mapping[str, Any]:
        """The file's tensors by the names that they have in the family's checkpoints."""
        architectures = self._library.MODEL_ARCH_NAMES.items()
        architecture = next(key for key, name in architectures if name == self.architecture)
        num_layers = int(self.value(f"{self.architecture}.block_count") or 0)
        name_map = self._library.get_tensor_name_map(architecture, num_layers)
        patterns = FAMILY[self.architecture].tensors.values()
        names = {pattern.replace("{i}", str(layer)) for pattern in patterns for layer in range(num_layers)}
        name_of = {name_map.get_name(name, try_suffixes=(".weight", ".bias")): name for name in names}
        return {name_of.get(tensor.name, tensor.name): tensor for tensor in self._reader.tensors}

    def _find_shards(self) -> Mapping[str, Path]:
        return dict.fromkeys(self._stored, self.folder)

    def _read(self, names: list[str]) -> dict[str, Tensor]:
        return {name: self._widen(self._stored[name]) for name in names}

    def find_rows(self, name: str) -> StoredRows | None:
        """A tensor's rows in the file, if they can be read one by one: in Q8_0, unchanged, not on Windows."""
        tensor = self._stored.get(name)
        if tensor is None or tensor.tensor_type.name != "Q8_0" or name in self.merges or not hasattr(os, "pread"):
            return None
        width, count = map(int, tensor.shape)
        return StoredRows(self.folder, os.open(self.folder, os.O_RDONLY), int(tensor.data_offset), count, width)

    def _widen(self, tensor: Any, rows: int = WIDENED_ROWS) -> Tensor:
        """A tensor in fp32. Dequantizes `rows` at a time, because that takes several copies of them."""
        value = torch.empty(*map(int, reversed(tensor.shape)))
        try:
            size = rows if value.dim() > 1 else max(len(value), len(tensor.data))  # all of a vector
            for start in range(0, len(value), size):
                part = slice(start, start + size)
                row = tensor.data[part].reshape(1, -1)  # as one row, because of several the library takes 16 at a time
                value.numpy()[part] = self._library.dequantize(row, tensor.tensor_type).reshape(value[part].shape)
        except NotImplementedError as error:
            raise CheckpointError(f"The weights in {self.folder} are of a type that is not read: {error}.") from error
        paired = PAIRED.fullmatch(tensor.name) if self.architecture in PAIRED_IN else None
        if paired is None:
            return value
        heads = self.value(f"{self.architecture}.attention.head_count")
        if paired.group(1) == "k":
            heads = self.value(f"{self.architecture}.attention.head_count_kv") or heads
        pairs = value.view(heads, -1, 2, *value.shape[1:])  # from neighbors [H, E/2, 2] to halves [H, 2, E/2]
        return pairs.transpose(1, 2).reshape(value.shape)


def make_reader(reader: type[Any]) -> type[Any]:
    """The `gguf` package's `reader`, over a plain view of its file and with arrays read at once: slices of a memmap
    took two thirds of the time to read tensors, and arrays item by item a third of the time to load SmolLM2.
    """
    kinds = import_module("gguf").GGUFValueType

    def keep(self: Any, mapped: np.ndarray[Any, Any]) -> None:
        """Sets `data`, which the library maps, to a plain view of it."""
        self._plain = mapped.view(np.ndarray)

    def read_parts(self: Any, start: int, kind: int) -> Any:
        """The size in bytes of the value at `start`, its parts, the indices of its items among them, and its types. An
        array begins with 4 bytes of its items' type and 8 of their number, a string with 8 of its length.
        """
        read_by_library = reader._get_field_parts
        if kind != kinds.ARRAY or self.byte_order != "I":
            return read_by_library(self, start, kind)
        view, offset = memoryview(self._plain), start + 12
        item_kind = kinds(int.from_bytes(view[start : start + 4], "little"))
        count = int.from_bytes(view[start + 4 : offset], "little")
        scalar, parts = self.gguf_scalar_to_np.get(item_kind), list[Any]()
        if not count or (scalar is None and item_kind != kinds.STRING):
            return read_by_library(self, start, kind)
        if scalar is not None:
            parts.append(self._get(offset, scalar, count))
            offset += count * parts[0].itemsize
        else:
            while len(parts) < count and offset < len(view):
                end = offset + 8 + int.from_bytes(view[offset : offset + 8], "little")
                parts.append(view[offset + 8 : end])
                offset = end
        if offset > len(view) or (scalar is None and len(parts) < count):
            raise IndexError("the array is longer than the file")
        return offset - start, parts, range(len(parts)), [kinds.ARRAY, item_kind]

    members = {"data": property(lambda self: self._plain, keep), "_get_field_parts": read_parts}
    return type("PlainReader", (reader,), members)
