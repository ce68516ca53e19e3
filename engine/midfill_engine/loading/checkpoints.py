"""Loads the weights of checkpoints of every family; executes nothing in them. Knows tensor names, no ids."""

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Final

import torch
from torch import Tensor, nn

from midfill_engine.checkpoint_files import ROW_SCALE, CheckpointError, CheckpointFiles, dequantize
from midfill_engine.families.embedded import EMBEDDED, Embedded
from midfill_engine.models.family import Family, Model, ModelConfig
from midfill_engine.models.transformer import TransformerConfig
from midfill_engine.tokens.tokenizer import Tokenizer, read_embedded_tokenizer, read_hub_tokenizer

NUM_LOADERS: Final = 2  # threads that load layers
LAYER: Final = re.compile(r"^blocks\.(\d+)\.")  # begins our names of a layer's tensors
# Buffers that implementations compute at load and some checkpoints store.
DERIVED: Final = re.compile(r"\.(inv_freq|rotary_emb\.(cos|sin)_cached|masked_bias)$")


@dataclass(frozen=True)
class LoadedModel:
    """A model in memory, with its tokenizer."""

    model: Model
    tokenizer: Tokenizer
    config: ModelConfig
    num_parameters: int
    files: CheckpointFiles

    @property
    def embedding_weight(self) -> Tensor:
        """On the model's device; its type may differ from `dtype`."""
        return self.model.transformer.embedding.weight

    @property
    def dtype(self) -> torch.dtype:
        return self.model.transformer.dtype


def load(
    files: CheckpointFiles,
    family: Family,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    shrink: Callable[[nn.Module], None] | None = None,
) -> LoadedModel:
    """Loads a checkpoint in evaluation mode. Raises CheckpointError.

    Two threads load a layer each at a time, so that memory never holds all weights twice. `shrink` packs the loaded
    matrices of a module in place: those of the transformer before any layer is loaded, then those of each layer.
    """
    config = read_config(files, family)
    tokenizer = read_hub_tokenizer(files, config.transformer.vocab_size)  # before the weights, which take minutes
    with torch.device("meta"):
        model = Model(config)
    shapes = {name: tuple(value.shape) for name, value in model.transformer.state_dict().items()}
    sources = {name: source_of(name, family.tensors, config.transformer) for name in shapes}
    used = {stored_name for source in sources.values() for stored_name in source.names}
    refuse_unmergeable(files, family, config, used)
    refuse_unread_tensors(files, used)

    def load_layer(layer: int) -> None:
        """Loads the tensors of a layer; -1 means those outside of all layers."""
        names = [name for name in shapes if _layer_of(name) == layer]
        stored = files.read_plain(sorted({stored_name for name in names for stored_name in sources[name].names}))
        for name in names:
            value = sources[name].assemble(stored)
            if tuple(value.shape) != shapes[name]:
                origin = f"{sources[name].names[0]} in {files.folder}"
                raise CheckpointError(f"{name}, from {origin}, has the shape {tuple(value.shape)}, not {shapes[name]}.")
            # `shrink` packs from the stored values. The embedding stays whole, so a wider one is narrowed first.
            is_wider = name == "embedding.weight" and value.itemsize > dtype.itemsize
            stays_as_stored = shrink is not None and value.dim() == 2 and not is_wider
            _assign(model.transformer, name, value if stays_as_stored else value.to(device, dtype))
        del stored, value
        if shrink is None:
            return
        module_name = "" if layer < 0 else f"blocks.{layer}"
        module = model.transformer.get_submodule(module_name)
        shrink(module)
        parameters = dict(module.named_parameters(module_name))
        # Packed matrices are cut or gone. A packed tied head is found by the embedding's weight, which must stay.
        for name in names:
            if name in parameters and parameters[name].shape == shapes[name] and name != "embedding.weight":
                _assign(model.transformer, name, parameters[name].to(device, dtype))

    with ThreadPoolExecutor(NUM_LOADERS) as pool, _single_threaded():
        load_layer(-1)  # first, while `shrink` skips the layers, which are still on "meta"
        list(pool.map(load_layer, range(config.transformer.num_layers)))
    model = model.eval().requires_grad_(False)
    return LoadedModel(model, tokenizer, config, sum(map(prod, shapes.values())), files)


@contextmanager
def _single_threaded() -> Iterator[None]:
    """Inside the `with` block each torch operator uses one thread, because two lose a fifth on one layer."""
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(num_threads)


def read_config(files: CheckpointFiles, family: Family) -> ModelConfig:
    """The configuration of a checkpoint of a published family. Raises CheckpointError."""
    transformer, block_size = read_sizes(files, family)
    # A checkpoint may store a head although its configuration ties it (tiny-a2d), so the weights decide.
    transformer = replace(transformer, tied_head=family.tensors["head.weight"] not in files.shards)
    window = min(family.context_window, files.config.get("max_position_embeddings") or family.context_window)
    max_hole = min(family.max_hole, window // 4)  # leaves most of a short window to the context
    max_context = window - max_hole
    return ModelConfig(transformer, files.name, max_context=max_context, max_hole=max_hole, block_size=block_size)


def read_sizes(files: CheckpointFiles, family: Family) -> tuple[TransformerConfig, int]:
    """The transformer's sizes and its block size. Raises CheckpointError for unknown or unsupported configurations."""
    try:
        return family.shape(files.config), family.block_size(files.config)
    except CheckpointError:
        raise
    except (AttributeError, KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        message = f"The config.json in {files.folder} is not one of the family {family.name!r}: {error!r}."
        raise CheckpointError(message) from error


def refuse_unread_tensors(files: CheckpointFiles, used: set[str]) -> None:
    """Raises CheckpointError if a tensor is not used, because the authors' code may compute something with it."""
    unread = sorted(name for name in files.shards if name not in used and not DERIVED.search(name))
    if unread:
        more = f" and {len(unread) - 1} more" if len(unread) > 1 else ""
        raise CheckpointError(
            f"The weights in {files.folder} have the tensor {unread[0]}{more}, which its family does not compute: "
            "take a checkpoint of the published form."
        )


def refuse_unmergeable(files: CheckpointFiles, family: Family, config: ModelConfig, used: set[str]) -> None:
    """Raises CheckpointError if an adapter changes a tensor that the model lacks, or an embedding that is its head."""
    unknown = sorted(files.merges.keys() - used)
    if unknown:
        message = f"The adapter {files.name} changes {unknown[0]}, which its base at {files.folder} does not have."
        raise CheckpointError(message)
    # The change would also change the head.
    if config.transformer.tied_head and family.tensors["embedding.weight"] in files.merges:
        raise CheckpointError(f"The adapter {files.name} changes an embedding that is its base's head too.")


@dataclass(frozen=True)
class TensorSource:
    """Where one of our tensors comes from: a stored tensor, the `rows` of a fused one, or a stack of several."""

    names: tuple[str, ...]
    is_stack: bool = False
    rows: tuple[int, int] | None = None

    def assemble(self, stored: Mapping[str, Tensor]) -> Tensor:
        """Our tensor from the `stored` ones."""
        value = torch.stack([stored[name] for name in self.names]) if self.is_stack else stored[self.names[0]]
        return value if self.rows is None else value[slice(*self.rows)]


def source_of(name: str, tensors: Mapping[str, str], config: TransformerConfig) -> TensorSource:
    """The source of our tensor `name`, by the family's table `tensors`. Raises CheckpointError if it is not there."""
    pattern = LAYER.sub("blocks.{i}.", name)
    if pattern not in tensors:
        raise CheckpointError(f"The family has no name for the tensor {name}.")
    stored_pattern, _, row_group = tensors[pattern].partition("#")  # "NAME#q": rows of a fused matrix
    stored_name = stored_pattern.replace("{i}", str(_layer_of(name)))
    if "{e}" in stored_name:
        assert config.moe is not None
        names = tuple(stored_name.replace("{e}", str(expert)) for expert in range(config.moe.num_experts))
        return TensorSource(names, is_stack=True)
    return TensorSource((stored_name,), rows=fused_rows(row_group, config) if row_group else None)


def fused_rows(row_group: str, config: TransformerConfig) -> tuple[int, int]:
    """The first row of the queries "q", the keys "k" or the values "v" in a fused matrix, and the row behind them."""
    queries, keys = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    bounds = {"q": (0, queries), "k": (queries, queries + keys), "v": (queries + keys, queries + 2 * keys)}
    return bounds[row_group]


def _layer_of(name: str) -> int:
    """The index of the layer that our tensor `name` is in, -1 outside of all layers."""
    match = LAYER.match(name)
    return int(match[1]) if match else -1


def _assign(module: nn.Module, name: str, value: Tensor) -> None:
    owner, _, leaf = name.rpartition(".")
    setattr(module.get_submodule(owner), leaf, nn.Parameter(value, requires_grad=False))


def load_embedded(folder: Path, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32) -> LoadedModel:
    """Loads a folder of the embedded family in evaluation mode. Raises CheckpointError."""
    files = CheckpointFiles(folder)
    config, tokenizer_sha256 = _read_embedded_config(files)
    tokenizer = read_embedded_tokenizer(folder / "tokenizer.json")
    stored = files.read(list(files.shards))
    if hashlib.sha256(tokenizer.serialized.encode()).hexdigest() != tokenizer_sha256:
        raise CheckpointError(f"The tokenizer in {folder} is not the one its weights were trained with.")
    if tokenizer.vocab_size != config.transformer.vocab_size:
        raise CheckpointError(f"The tokenizer in {folder} has {tokenizer.vocab_size} tokens, not the config's number.")
    with torch.device("meta"):
        model = Embedded(config)
    try:
        names = [name for name in stored if not name.endswith(ROW_SCALE)]
        tensors = {name: dequantize(stored[name], stored.get(name + ROW_SCALE)) for name in names}
        model.load_state_dict(tensors, assign=True)
    except RuntimeError as error:
        raise CheckpointError(f"The weights in {folder} do not fit their config.json.") from error
    model = model.to(device=device, dtype=dtype).eval().requires_grad_(False)
    return LoadedModel(model, tokenizer, config, sum(parameter.numel() for parameter in model.parameters()), files)


def _read_embedded_config(files: CheckpointFiles) -> tuple[ModelConfig, str]:
    """The configuration, and the SHA-256 of the tokenizer of the training. Raises CheckpointError."""
    path, values = files.folder / "config.json", dict(files.config)
    try:
        family_name, tokenizer_sha256 = values.pop("family"), values.pop("tokenizer_sha256")
        values.pop("training", None)
        config = ModelConfig(TransformerConfig(**values.pop("transformer")), **values)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{path} is not the configuration of an embedded checkpoint: {error}") from error
    if family_name != EMBEDDED.name:
        raise CheckpointError(f"{path} is of the family {family_name!r}, not {EMBEDDED.name!r}.")
    return config, tokenizer_sha256
