"""Tiny random checkpoints of every family in its published format: `python -m tests.engine.tiny FAMILY FOLDER`.

`examples.json` has each family's config.json, shrunk; what its generation_config.json and tokenizer_config.json say of
special tokens; and its added tokens.
"""

import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

import tokenizers as library
import torch
from safetensors.torch import save_file
from torch import Tensor

from midfill_engine.checkpoint_files import CheckpointFiles
from midfill_engine.families import FAMILIES, find_family
from midfill_engine.families.diffusiongemma import DIFFUSION_GEMMA
from midfill_engine.families.embedded import EMBEDDED, Embedded
from midfill_engine.loading import canvas_model, checkpoints
from midfill_engine.loading.checkpoints import fused_rows, source_of
from midfill_engine.loading.runtime import Runtime, load_runtime
from midfill_engine.models.family import Family, ModelConfig
from midfill_engine.models.transformer import Transformer, TransformerConfig
from midfill_engine.tokens import tokenizer as tokenizers
from midfill_engine.tokens.tokenizer import SPECIAL_TOKENS

LAYERS: Final = {"dream": "num_hidden_layers", "llada": "n_layers"}
EXAMPLES: Final[dict[str, dict[str, Any]]] = json.loads(
    Path(__file__).with_name("examples.json").read_text(encoding="utf-8")
)


def config_of(family: str, **changes: Any) -> dict[str, Any]:
    """The family's tiny config.json, with `changes`."""
    return {**EXAMPLES[family]["config"], **changes}


def added_tokens_of(family: str) -> list[str]:
    return list(EXAMPLES[family]["added_tokens"])


def make_random(
    folder: Path,
    family: Family,
    *,
    config: Mapping[str, Any] | None = None,
    added_tokens: Sequence[str] | None = None,
) -> None:
    """Writes a checkpoint of `family`, shaped like its example or `config`. The bytes are the same on every machine."""
    values = EXAMPLES[family.name]["config"] if config is None else config
    folder.mkdir(parents=True, exist_ok=True)
    _write_json(folder / "config.json", dict(values))
    _write_json(folder / "generation_config.json", EXAMPLES[family.name].get("generation", {}))
    write_tokenizer(folder, family.name, added_tokens)
    whole = replace(family.shape(values), tied_head=values.get("tie_word_embeddings") is True)
    with torch.device("meta"):
        shapes = {name: tuple(value.shape) for name, value in Transformer(whole).state_dict().items()}
    stored: dict[str, Tensor] = {}
    for name, shape in sorted(shapes.items()):
        source, value = source_of(name, family.tensors, whole), _scatter(name, shape)
        if source.rows is not None:
            rows = stored.setdefault(source.names[0], torch.zeros(fused_rows("v", whole)[1], whole.dim))
            rows[slice(*source.rows)] = value
        else:
            stored.update(zip(source.names, value if source.is_stack else [value], strict=True))
    save_file({name: value.contiguous() for name, value in stored.items()}, folder / "model.safetensors")


def make_embedded(folder: Path, *, seed: int = 0, dim: int = 64, num_layers: int = 2) -> None:
    """Writes a checkpoint of the embedded family with one token per byte."""
    tokenizer = build_tokenizer([])
    transformer = TransformerConfig(
        vocab_size=tokenizer.vocab_size,
        dim=dim,
        num_layers=num_layers,
        num_heads=2,
        num_kv_heads=2,
        head_dim=dim // 2,
        mlp_dim=2 * dim,
    )
    model = Embedded(ModelConfig(transformer, "random", max_context=512, max_hole=128, hole_span=128))
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=parameter.shape[-1] ** -0.5, generator=generator)
    save_embedded(folder, model, tokenizer)


# What one token may come from: a line break and its indent, a word or a run of marks with the one space before it, ...
PIECES = r"\n *| ?[^\W\d]\w*| ?\d{1,2}| ?[^\s\w]+|\t+| +(?= )|\s"


def build_tokenizer(merges: list[tuple[str, str]]) -> tokenizers.Tokenizer:
    """An embedded tokenizer of the specials, the 256 bytes and one token a merge (in byte-level characters)."""
    texts = (*SPECIAL_TOKENS, *sorted(tokenizers.byte_of_character()))
    vocabulary = {token: index for index, token in enumerate(texts)}
    for left, right in merges:
        vocabulary.setdefault(left + right, len(vocabulary))
    inner = library.Tokenizer(library.models.BPE(vocab=vocabulary, merges=merges))
    cut = library.pre_tokenizers.Split(library.Regex(PIECES), behavior="isolated")
    level = library.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.pre_tokenizer = library.pre_tokenizers.Sequence([cut, level])
    inner.decoder = library.decoders.ByteLevel()
    return tokenizers.Tokenizer(inner.to_str(), special=frozenset(range(len(SPECIAL_TOKENS))))


def decode(tokenizer: tokenizers.Tokenizer, ids: Sequence[int]) -> str:
    return b"".join(map(tokenizer.token_bytes, ids)).decode("utf-8", errors="replace")


def save_embedded(folder: Path, model: Embedded, tokenizer: tokenizers.Tokenizer) -> None:
    """Writes a checkpoint of the embedded family, with weights in fp32."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "family": EMBEDDED.name,
        "tokenizer_sha256": hashlib.sha256(tokenizer.serialized.encode()).hexdigest(),
        **asdict(model.config),
    }
    save_file(model.state_dict(), folder / "model.safetensors")
    (folder / "tokenizer.json").write_text(tokenizer.serialized, encoding="utf-8")
    _write_json(folder / "config.json", config)


def make_canvas(folder: Path) -> None:
    """Writes a checkpoint of DiffusionGemma."""
    config_class, model_class = canvas_model.import_classes()
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    config = config_of(DIFFUSION_GEMMA.name)
    model = model_class(config_class(**config))
    with torch.no_grad():  # weights initialized for training give nearly the same logits for every token
        for name, value in model.named_parameters():
            value.mul_(20.0 if value.dim() > 1 and "norm" not in name else 1.0)
    model.save_pretrained(folder)
    _write_json(folder / "config.json", config)
    write_tokenizer(folder, DIFFUSION_GEMMA.name)


def _write_json(path: Path, values: object) -> None:
    path.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")


def write_tokenizer(folder: Path, family: str, added_tokens: Sequence[str] | None = None) -> None:
    """One token per byte, the added tokens from id 300 on, and their roles."""
    flags = {"special": True, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    texts = added_tokens_of(family) if added_tokens is None else added_tokens
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": 300 + index, "content": text, **flags} for index, text in enumerate(texts)],
        "normalizer": None,
        "pre_tokenizer": level,
        "post_processor": None,
        "decoder": level,
        "model": {"type": "BPE", "vocab": tokenizers.byte_of_character(), "merges": []},
    }
    _write_json(folder / "tokenizer.json", tokenizer)
    _write_json(folder / "tokenizer_config.json", EXAMPLES[family].get("tokenizer", {}))


def _scatter(name: str, shape: tuple[int, ...]) -> Tensor:
    """Deterministic pseudo-random values: gains around 1, everything else with unit fan-in."""
    seed = sum((index + 1) * byte for index, byte in enumerate(name.encode()))
    places = torch.arange(int(torch.Size(shape).numel()), dtype=torch.int64)
    mixed = (places * 2654435761 + seed * 40503) % 2**32
    mixed = ((mixed ^ (mixed >> 15)) * 2246822519) % 2**32
    even = (mixed ^ (mixed >> 13)).double() / 2**31 - 1  # in [-1, 1)
    if name.endswith("norm.weight"):
        return (1 + 0.3 * even).float().view(shape)
    spread = (3 / shape[-1]) ** 0.5 if len(shape) > 1 else 0.3
    return (even * spread).float().view(shape)


def copy_checkpoint(name: str, folder: Path, **changes: Any) -> Path:
    """Writes a random checkpoint whose config.json has `changes`."""
    make_random(folder, FAMILIES.find(name))
    config = json.loads((folder / "config.json").read_text())
    config.update(changes)
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def load(folder: Path) -> checkpoints.LoadedModel:
    files = CheckpointFiles(folder)
    return checkpoints.load(files, find_family(files))


def open_model(family: str, num_layers: int, folder: Path) -> Runtime:
    found = FAMILIES.find(family)
    make_random(folder, found, config={**config_of(found.name), LAYERS[family]: num_layers})
    return load_runtime(str(folder), "cpu", dtype="fp32")


if __name__ == "__main__":
    make_random(Path(sys.argv[2]), FAMILIES.find(sys.argv[1]))
