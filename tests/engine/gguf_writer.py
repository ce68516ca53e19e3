"""Writes GGUF files of tiny checkpoints, as llama.cpp's converter does."""

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from safetensors.torch import load_file
from tests.engine import tiny
from torch import Tensor

from midfill_engine.checkpoint_files import CheckpointFiles
from midfill_engine.families import FAMILIES
from midfill_engine.families.llada import LLAMA_KEYS
from midfill_engine.loading.gguf_files import FAMILY, SHAPE
from midfill_engine.tokens.tokenizer import byte_of_character

LLAMA = {"hidden_size": 256, "intermediate_size": 512}
WIDE = {
    "llama": LLAMA,
    "qwen2": LLAMA | {"model_type": "qwen2"},
    "dream": LLAMA,
    "llada": {"d_model": 256, "mlp_hidden_size": 512, "n_kv_heads": 2},
}
TURNED = ("llada", "llama")
CAUSAL = ("llama", "qwen2")
Q8, Q4 = gguf.GGMLQuantizationType.Q8_0, gguf.GGMLQuantizationType.Q4_K


def make_folder(folder: Path, architecture: str, family: str | None) -> dict[str, Tensor]:
    chosen = FAMILIES.find(family or architecture)
    tiny.make_random(folder, chosen, config={**tiny.config_of(chosen.name), **WIDE[architecture]})
    return load_file(folder / "model.safetensors")


def turn(value: np.ndarray[Any, Any], heads: int) -> np.ndarray[Any, Any]:
    """As llama.cpp's converter does: rotary halves [H, 2, E/2] to neighbors."""
    return value.reshape(heads, 2, -1, *value.shape[1:]).swapaxes(1, 2).reshape(value.shape)


def encode(value: np.ndarray[Any, Any], kind: str, generator: np.random.Generator) -> tuple[Any, Any]:
    """The bytes of a matrix in a format and its type; Q4_K, which the package does not write, of random blocks."""
    if kind == "F16":
        return value.astype(np.float16), None
    if kind == "Q8_0":
        return gguf.quantize(value, Q8), Q8
    blocks = generator.integers(0, 256, (value.shape[0], value.shape[1] // 256, 144), dtype=np.uint8)
    scales = generator.uniform(1e-4, 1e-3, (*blocks.shape[:2], 2)).astype(np.float16)
    blocks[..., :4] = scales.view(np.uint8)
    return blocks.reshape(value.shape[0], -1), Q4


THEIRS = {
    "embedding.weight": "token_embd.weight",
    "final_norm.weight": "output_norm.weight",
    "head.weight": "output.weight",
    "blocks.{i}.attention_norm.weight": "blk.{i}.attn_norm.weight",
    "blocks.{i}.attention.out.weight": "blk.{i}.attn_output.weight",
    "blocks.{i}.mlp_norm.weight": "blk.{i}.ffn_norm.weight",
    **{
        f"blocks.{{i}}.attention.{part}.{kind}": f"blk.{{i}}.attn_{part}.{kind}"
        for part in "qkv"
        for kind in ("weight", "bias")
    },
    **{f"blocks.{{i}}.mlp.{part}.weight": f"blk.{{i}}.ffn_{part}.weight" for part in ("gate", "up", "down")},
}


def write_gguf(
    file: Path, folder: Path, stored: dict[str, Tensor], architecture: str, kind: str = "F16", **other: Any
) -> dict[str, Tensor]:
    """Writes what llama.cpp's converter writes of a folder; returns the values that the file holds, by stored name."""
    files = CheckpointFiles(folder)
    writer = gguf.GGUFWriter(file, other.get("named", architecture))
    own_keys = {theirs: ours for ours, theirs in LLAMA_KEYS.items()} if architecture == "llada" else {}
    config = {theirs: files.config.get(own_keys.get(theirs, theirs)) for theirs in SHAPE.values()}
    for key, theirs in SHAPE.items():
        value = config[theirs]
        if isinstance(value, int | float):
            add = writer.add_float32 if isinstance(value, float) else writer.add_uint32
            add(f"{architecture}.{key}", value)
    if architecture not in CAUSAL:
        writer.add_bool("diffusion.shift_logits", other.get("shifts", architecture == "dream"))
    _add_tokens(writer, files, int(files.config["vocab_size"]), other.get("pieces", "qwen2"))
    if "adds_bos" in other:
        writer.add_bos_token_id(3)
        writer.add_add_bos_token(other["adds_bos"])
    generator, held = np.random.default_rng(0), {}
    names, layers = FAMILY[architecture].tensors, int(files.config.get("num_hidden_layers") or files.config["n_layers"])
    for general, theirs in THEIRS.items():
        for layer in range(layers if "{i}" in theirs else 1):
            name = names.get(general, "").replace("{i}", str(layer))
            if name not in stored:
                continue
            value = stored[name].float().numpy()
            part = theirs.split(".")[2] if "attn_" in theirs else ""
            is_turned = architecture in TURNED and part in ("attn_q", "attn_k")
            count = "attention.head_count" if part == "attn_q" else "attention.head_count_kv"
            heads = config[SHAPE[count]] if is_turned else 0
            value = turn(value, heads) if is_turned else value
            data, dtype = encode(value, kind, generator) if value.ndim == 2 else (value, None)
            writer.add_tensor(theirs.replace("{i}", str(layer)), data, raw_dtype=dtype)
            plain = data.astype(np.float32) if dtype is None else gguf.dequantize(data, dtype)
            if is_turned:
                plain = plain.reshape(heads, -1, 2, *plain.shape[1:]).swapaxes(1, 2).reshape(plain.shape)
            held[name] = torch.from_numpy(np.ascontiguousarray(plain))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return held


def _add_tokens(writer: Any, files: CheckpointFiles, size: int, pieces: str) -> None:
    tokens, kinds = [f"[PAD{number}]" for number in range(size)], [5] * size
    for text, number in byte_of_character().items():
        tokens[number], kinds[number] = text, 1
    for text, number in files.added_tokens.items():
        tokens[number], kinds[number] = text, 3
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pieces)
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    for role in ("eos", "pad", "bos"):
        if (number := files.role_id(role)) is not None:
            getattr(writer, f"add_{role}_token_id")(number)
    if files.config["model_type"] == "Dream":  # LLaDA's converter left it out: the tokens tell
        writer.add_mask_token_id(files.number("mask_token_id"))
