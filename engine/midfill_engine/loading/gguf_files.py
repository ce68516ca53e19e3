"""Presents a GGUF file as the folder of JSON and safetensors that it was made from. Knows llama.cpp's names.

Of llama.cpp's architectures `dream` and `llada` are diffusion models, `llama` and `qwen2` causal ones. For LLaDA and
Llama the converter puts rotary pairs of queries and keys next to each other, which is undone here. The `gguf` package
dequantizes tensors as they are read.
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
# Llama's keys of a config.json, which all families read, by the file's keys (without the architecture's prefix).
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
KIND: Final = {"dream": DREAM.model_types[0]}  # if config.json uses another name
IS_SHIFTED: Final = {"dream": True, "llada": False}
TURNED: Final = re.compile(r"blk\.\d+\.attn_([qk])\.(weight|bias)")
TURNED_IN: Final = ("llada", "llama")
ROLES: Final = {"bos": "bos", "eos": "eos", "pad": "padding", "mask": "mask"}  # by llama.cpp's names
MASKS: Final = ("<|mask|>", "<|mdm_mask|>")  # if the file does not name the token
NORMAL, CONTROL, USER_DEFINED = 1, 3, 4
# Pre-tokenizers by llama.cpp's names, as its vocabulary code defines them.
BAILING_PIECES: Final = (
    r"'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]|\s+(?!\S)|\s+"
)
PIECES: Final = {"qwen2": QWEN_PIECES, "deepseek-r1-qwen": QWEN_PIECES} | dict.fromkeys(
    ("bailingmoe", "bailingmoe2", "llada-moe"), BAILING_PIECES
)
GPT2_PIECES: Final = {**PLAIN_BYTES, "use_regex": True}
WIDENED_ROWS: Final = 128
SINGLE_DIGITS: Final = {"type": "Digits", "individual_digits": True}
# Pre-tokenizers that split like GPT-2 once digits are separated.
WITH_SINGLE_DIGITS: Final = ("smollm", "starcoder", "refact", "command-r", "codeshell")


@dataclass(frozen=True)
class GgufFiles(CheckpointFiles):
    """Presents a GGUF file as checkpoint files. tokenizer.json or tokenizer_config.json beside it take precedence."""

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
        for held in ("_reader", "_stored", "_tokens", "_kinds", "tokenizer"):
            self.__dict__.pop(held, None)

    def value(self, key: str) -> Any:
        """The value of a key, None if missing."""
        field = self._reader.fields.get(key)
        found = None if field is None else field.contents()
        return float(f"{found:.7g}") if isinstance(found, float) else found  # fp32 of a decimal number

    @cached_property
    def architecture(self) -> str:
        """Raises CheckpointError for architectures that no family here computes."""
        found = str(self.value("general.architecture"))
        if found not in FAMILY:
            known = ", ".join(FAMILY)
            message = f"The file {self.folder} holds a model of llama.cpp's architecture {found!r}"
            raise CheckpointError(f"{message}, which is not computed here; known: {known}.")
        self._refuse_unsupported(found)
        return found

    def _refuse_unsupported(self, architecture: str) -> None:
        shifts, is_shifted = self.value("diffusion.shift_logits"), IS_SHIFTED.get(architecture)
        scaling = self.value(f"{architecture}.rope.scaling.type")
        reasons = {
            f"scores that are {'' if shifts else 'not '}shifted": shifts not in (None, is_shifted),
            "causal attention": is_shifted is not None and self.value(f"{architecture}.attention.causal") is True,
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
        found = {"model_type": KIND.get(architecture, architecture), "vocab_size": len(self._tokens)}
        found |= {theirs: self.value(f"{architecture}.{key}") for key, theirs in SHAPE.items()}
        found |= {f"{role}_token_id": number for role, number in self._roles.items()}
        return {key: value for key, value in found.items() if value is not None}

    @cached_property
    def _tokens(self) -> list[str]:
        return self.value("tokenizer.ggml.tokens") or []

    @cached_property
    def _roles(self) -> dict[str, int]:
        said = {role: self.value(f"tokenizer.ggml.{name}_token_id") for role, name in ROLES.items()}
        if said["mask"] is None:
            said["mask"] = next((self.added_tokens[text] for text in MASKS if text in self.added_tokens), None)
        return {role: int(number) for role, number in said.items() if number is not None}

    def _json(self, name: str) -> dict[str, Any]:
        return {}

    @cached_property
    def added_tokens(self) -> dict[str, int]:
        kinds = enumerate(self._kinds)
        return {self._tokens[number]: number for number, kind in kinds if kind in (CONTROL, USER_DEFINED)}

    @cached_property
    def _kinds(self) -> list[int]:
        return self.value("tokenizer.ggml.token_type") or [NORMAL] * len(self._tokens)

    @cached_property
    def tokenizer_config(self) -> dict[str, Any]:
        return {f"{role}_token": self._tokens[number] for role, number in self._roles.items()}

    @cached_property
    def tokenizer(self) -> dict[str, Any]:
        """The file's tokenizer as a tokenizer.json. Raises CheckpointError if its pre-tokenizer is unknown."""
        beside = CheckpointFiles(self.folder.parent).tokenizer
        if beside:
            return beside
        kind, pieces = self.value("tokenizer.ggml.model"), self.value("tokenizer.ggml.pre")
        if kind != "gpt2" or pieces not in (*PIECES, *WITH_SINGLE_DIGITS):
            message = f"The file {self.folder} has an unknown tokenizer ({kind}, {pieces})"
            raise CheckpointError(f"{message}: put the tokenizer.json of its original model beside it.")
        vocabulary = {text: number for number, text in enumerate(self._tokens) if self._kinds[number] == NORMAL}
        cut = [SINGLE_DIGITS, GPT2_PIECES] if pieces in WITH_SINGLE_DIGITS else split_at(PIECES[pieces])
        return describe_bpe(vocabulary, self.value("tokenizer.ggml.merges") or [], cut)

    @cached_property
    def _stored(self) -> Mapping[str, Any]:
        """The file's tensors under the names of the family's checkpoints."""
        architectures = self._library.MODEL_ARCH_NAMES.items()
        architecture = next(key for key, name in architectures if name == self.architecture)
        num_layers = int(self.value(f"{self.architecture}.block_count") or 0)
        theirs = self._library.get_tensor_name_map(architecture, num_layers)
        stored = FAMILY[self.architecture].tensors.values()
        names = {name.replace("{i}", str(layer)) for name in stored for layer in range(num_layers)}
        ours = {theirs.get_name(name, try_suffixes=(".weight", ".bias")): name for name in names}
        return {ours.get(tensor.name, tensor.name): tensor for tensor in self._reader.tensors}

    def _find_shards(self) -> Mapping[str, Path]:
        return dict.fromkeys(self._stored, self.folder)

    def _read(self, names: list[str]) -> dict[str, Tensor]:
        return {name: self._widen(self._stored[name]) for name in names}

    def find_rows(self, name: str) -> StoredRows | None:
        """A tensor's rows in the file, if they can be read by themselves; Windows cannot."""
        tensor = self._stored.get(name)
        if tensor is None or tensor.tensor_type.name != "Q8_0" or name in self.merges or not hasattr(os, "pread"):
            return None
        width, count = map(int, tensor.shape)
        return StoredRows(self.folder, os.open(self.folder, os.O_RDONLY), int(tensor.data_offset), count, width)

    def _widen(self, tensor: Any, rows: int = WIDENED_ROWS) -> Tensor:
        """A tensor in fp32. Dequantizes `rows` at a time, which takes several copies of them."""
        value = torch.empty(*map(int, reversed(tensor.shape)))
        try:
            size = rows if value.dim() > 1 else max(len(value), len(tensor.data))  # a vector's data are one row
            for start in range(0, len(value), size):
                part = slice(start, start + size)
                row = tensor.data[part].reshape(1, -1)  # of many rows the library takes 16 at a time
                value.numpy()[part] = self._library.dequantize(row, tensor.tensor_type).reshape(value[part].shape)
        except NotImplementedError as error:
            raise CheckpointError(f"The weights in {self.folder} are of a type that is not read: {error}.") from error
        turned = TURNED.fullmatch(tensor.name) if self.architecture in TURNED_IN else None
        if turned is None:
            return value
        count = self.value(f"{self.architecture}.attention.head_count")
        heads = count if turned.group(1) == "q" else self.value(f"{self.architecture}.attention.head_count_kv") or count
        pairs = value.view(heads, -1, 2, *value.shape[1:])  # from neighbours [H, E/2, 2] to halves [H, 2, E/2]
        return pairs.transpose(1, 2).reshape(value.shape)


def make_reader(reader: type[Any]) -> type[Any]:
    """The `gguf` package's reader over a plain view of its file, with arrays read at once: slices of a memmap took two
    thirds of the time to read tensors, and arrays item by item a third of the time to load SmolLM2.
    """
    kinds = import_module("gguf").GGUFValueType

    def keep(self: Any, mapped: np.ndarray[Any, Any]) -> None:
        self._plain = mapped.view(np.ndarray)

    def read_parts(self: Any, start: int, kind: int) -> Any:
        """The size in bytes of the value at `start`, its parts, the indices of its items among them, and its types."""
        plain = reader._get_field_parts
        if kind != kinds.ARRAY or self.byte_order != "I":
            return plain(self, start, kind)
        view, at = memoryview(self._plain), start + 12
        item = kinds(int.from_bytes(view[start : start + 4], "little"))
        count = int.from_bytes(view[start + 4 : at], "little")
        scalar, parts = self.gguf_scalar_to_np.get(item), list[Any]()
        if not count or (scalar is None and item != kinds.STRING):
            return plain(self, start, kind)
        if scalar is not None:
            parts.append(self._get(at, scalar, count))
            at += count * parts[0].itemsize
        else:
            while len(parts) < count and at < len(view):
                end = at + 8 + int.from_bytes(view[at : at + 8], "little")
                parts.append(view[at + 8 : end])
                at = end
        if at > len(view) or (scalar is None and len(parts) < count):
            raise IndexError("the array is longer than the file")
        return at - start, parts, range(len(parts)), [kinds.ARRAY, item]

    members = {"data": property(lambda self: self._plain, keep), "_get_field_parts": read_parts}
    return type("PlainReader", (reader,), members)
