"""A loaded model with everything that is computed once for it. Knows checkpoints and devices; no requests, no HTTP."""

import hashlib
import logging
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

import torch

from midfill_engine.caches.stores import ContextStore, PrefixStore
from midfill_engine.checkpoint_files import CheckpointError, CheckpointFiles
from midfill_engine.errors import StartError, fetch_failed, unknown_model
from midfill_engine.families import find_family
from midfill_engine.families.diffusiongemma import DIFFUSION_GEMMA
from midfill_engine.families.embedded import EMBEDDED
from midfill_engine.loading import canvas_model, checkpoints
from midfill_engine.loading.adapter import find_base, is_adapter, open_files
from midfill_engine.loading.canvas_model import CanvasModel
from midfill_engine.loading.catalog import WORKSPACE_BYTES
from midfill_engine.loading.checkpoints import LoadedModel
from midfill_engine.loading.device import choose_device, choose_dtype, free_bytes, is_measured, prefix_bytes
from midfill_engine.loading.gguf_files import SUFFIX, GgufFiles
from midfill_engine.loading.memory import total_bytes
from midfill_engine.loading.pace import Pace, measure_pace
from midfill_engine.loading.packaged import PACKAGED, find_packaged
from midfill_engine.loading.stock import find_cached
from midfill_engine.models.family import Family, SpecialTokens
from midfill_engine.models.int4 import Int4Operators
from midfill_engine.models.int8 import Int8Operators, StoredRows
from midfill_engine.models.operators import KEPT_VALUES, LaidOperators, OperatorsError, PackedOperators, TorchOperators
from midfill_engine.models.packed import Pass, Result, run_packed
from midfill_engine.models.transformer import Transformer
from midfill_engine.registry import UnknownName
from midfill_engine.starting import is_hub_id
from midfill_engine.tokens.vocabulary import Vocabulary
from midfill_engine.wire import ErrorCode, ModelIds, ModelInfo

if TYPE_CHECKING:
    from midfill_engine.models.fused_runner import FusedRunner

logger = logging.getLogger(__name__)

WEIGHTS: Final = Path(__file__).parent.parent / "weights"
ADAPTER: Final = "-adapter"  # suffix of the folder of the adapter that ships for a packaged model
INT4_SHARE: Final = 0.4  # of the memory of bf16 that int4 takes, because the embedding stays in bf16

Loaded = LoadedModel | CanvasModel


@dataclass(frozen=True)
class Runtime:
    """A loaded model with all that its fills need. `names` are those in requests, its id first. `fused` runs the passes
    if kernels are used.
    """

    loaded: Loaded
    family: Family
    tokens: SpecialTokens
    vocabulary: Vocabulary
    operators: TorchOperators
    names: tuple[str, ...]
    contexts: ContextStore = field(default_factory=ContextStore)
    prefixes: PrefixStore = field(default_factory=PrefixStore)
    fused: "FusedRunner | None" = None

    @classmethod
    def of(
        cls,
        loaded: Loaded,
        *aliases: str,
        family: Family = EMBEDDED,
        operators: TorchOperators | None = None,
        kernels: bool = False,
        falls_back: bool = False,
    ) -> "Runtime":
        """The runtime of a loaded model. With `kernels` Midfill's kernels run its passes, or torch if they do not work
        and `falls_back`. Raises CheckpointError if special ids are unknown, OperatorsError if the kernels do not work.
        """
        tokens = family.tokens(loaded.files)
        tokenizer = loaded.tokenizer
        pieces = [tokenizer.token_bytes(index) for index in range(tokenizer.vocab_size)]
        vocabulary = Vocabulary(pieces, tokens.special_ids, tokens.delete_ids, tokens.expand_id)
        operators = operators or TorchOperators(loaded.embedding_weight.device, loaded.dtype)
        is_causal = family.attention == "causal"
        fused = None
        if kernels:
            open_runner = try_fused if falls_back else open_fused
            fused = open_runner(loaded.model.transformer, operators, is_causal=is_causal)
        prefixes = PrefixStore(prefix_bytes(loaded.embedding_weight.device))
        names = (loaded.config.name, *aliases)
        return cls(loaded, family, tokens, vocabulary, operators, names, prefixes=prefixes, fused=fused)

    @property
    def device(self) -> torch.device:
        return self.loaded.embedding_weight.device

    @property
    def dtype(self) -> torch.dtype:
        return self.loaded.dtype

    @property
    def reads_stacks(self) -> bool:
        """True if the passes of prompts, trees and beams have stacks of keys and values, which kernels read."""
        return self.fused is not None

    def run(self, passes: list[Pass]) -> list[Result]:
        """Runs all passes in one forward pass."""
        if not passes:
            return []
        if isinstance(self.loaded, CanvasModel):  # another library computes it, one pass at a time
            return [self.loaded.run(pass_) for pass_ in passes]  # type: ignore[arg-type]
        if self.fused is not None:
            return self.fused.run(passes)
        return run_packed(self.loaded.model.transformer, passes, self.operators)

    def launch(self, passes: list[Pass]) -> Callable[[], list[Result]]:
        """Begins what `run` does. The returned function waits for the results; call it before any other pass runs."""
        if self.fused is None or not passes:
            return partial(self.run, passes)
        return self.fused.launch(passes)

    def free_memory(self) -> None:
        """Drops everything that is kept across requests except the model."""
        self.contexts.clear()
        self.prefixes.clear()
        if self.fused is not None:
            self.fused.free_memory()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    @property
    def info(self) -> ModelInfo:
        tokens = self.tokens
        return ModelInfo(
            id=self.names[0],
            family=self.family.name,
            parameters=self.loaded.num_parameters,
            device=str(self.device),
            dtype=str(self.dtype).removeprefix("torch."),
            max_context_tokens=self.loaded.config.max_context,
            max_hole_tokens=self.loaded.config.max_hole,
            sees_suffix=self.family.sees_suffix,
            keeps=self.family.keeps,
            heeds=self.family.heeds,
            weights=self._weights_digest,
            ids=ModelIds(
                before=tokens.opening(None),
                behind=list(tokens.closing),
                mask=tokens.mask_id if tokens.mask_id >= 0 else None,
                ends=list(tokens.delete_ids),
                expand=tokens.expand_id,
            ),
        )

    @cached_property
    def pace(self) -> Pace:
        """What a forward pass costs on this machine, measured when it is first needed."""
        assert isinstance(self.loaded, LoadedModel)
        return measure_pace(self.loaded.model.transformer, self.operators, self.run, self.reads_stacks)

    @cached_property
    def _weights_digest(self) -> str:
        """A hash of the first rows of the embedding and of the beginning of every tensor. Training changes it."""
        digest = hashlib.sha256(self.loaded.embedding_weight[:64].to(self.dtype).float().cpu().numpy().tobytes())
        for value in self.loaded.model.parameters():
            first_rows = value[:KEPT_VALUES] if value.dim() else value  # flatten would copy an embedding in a file
            digest.update(first_rows.flatten()[:KEPT_VALUES].to(self.dtype).float().cpu().numpy().tobytes())
        return digest.hexdigest()[:16]


def open_fused(transformer: Transformer, operators: TorchOperators, *, is_causal: bool = False) -> "FusedRunner | None":
    """The runner with kernels, checked on a GPU; None if they do not support the model. Raises OperatorsError."""
    device = transformer.embedding.weight.device
    if find_spec("triton") is None:
        raise OperatorsError("the kernels need the package triton, which is not installed")
    if device.type != "cuda" and os.environ.get("TRITON_INTERPRET") != "1":
        raise OperatorsError(f"the kernels need a GPU, and the model is on the device {device.type!r}")
    from midfill_engine.models.fused_runner import FusedRunner, why_not_fused  # needs Triton

    reason = why_not_fused(transformer.config)
    if reason is not None:
        logger.info("torch computes the steps: %s", reason)
        return None
    fused = FusedRunner(transformer, operators)
    if device.type == "cuda":
        fused.check(is_causal=is_causal)
    return fused


def try_fused(transformer: Transformer, operators: TorchOperators, *, is_causal: bool = False) -> "FusedRunner | None":
    """The runner of `open_fused`, or None if the kernels do not work on this machine."""
    try:
        return open_fused(transformer, operators, is_causal=is_causal)
    except Exception as error:  # noqa: BLE001 - compilers and drivers raise errors of many classes; torch needs neither
        logger.warning("torch computes the steps, because the kernels do not work here: %s", error)
        return None


def find_model(name: str, weights: Path = WEIGHTS) -> Path:
    """The checkpoint's folder or file for a name: of a model that ships in `weights` or is packaged, a path, or a hub
    id. Raises StartError if it is not on this machine.
    """
    shipped = sorted(config.parent.name for config in weights.glob("*/config.json"))
    if name.removeprefix("midfill-") in shipped:  # as `midfill models` prints it
        return weights / name.removeprefix("midfill-")
    if name in PACKAGED:
        base = find_packaged(PACKAGED[name])
        adapter = weights / f"{name}{ADAPTER}"
        return adapter if is_adapter(adapter) else base
    if Path(name).is_dir() or (name.endswith(SUFFIX) and Path(name).is_file()):
        return Path(name)
    if is_hub_id(name):
        folder = find_cached(name)
        if folder is None:
            raise unknown_model(f"{name} is not on this machine", f"run `midfill models get {name}`")
        return folder
    known = ", ".join(shipped) or "none"
    message = f"There is no model named {name!r} and no folder or GGUF file of that name; shipped models: {known}."
    raise unknown_model(message, "name a shipped model, a checkpoint folder or OWNER/NAME on the hub")


def open_checkpoint(
    folder: Path, device: torch.device, dtype: torch.dtype, name: str, operators: str = "torch", weights: str = "stored"
) -> Runtime:
    """Loads the checkpoint or the adapter in `folder`. Raises CheckpointError, StartError, OperatorsError.

    `operators`: torch, kernels, or auto, which is kernels in bf16 on GPUs that they were measured on, if they work.
    """
    files = open_files(folder)
    family = find_family(files)
    if files.merges and family in (EMBEDDED, DIFFUSION_GEMMA):
        raise CheckpointError(f"Adapters are not merged into models of the family {family.name!r}.")
    kernels = operators == "kernels"
    if kernels and weights != "stored":
        raise OperatorsError("the kernels multiply weights as they are stored")
    if weights == "stored" and operators == "auto":
        kernels = dtype == torch.bfloat16 and is_measured(device)
    embedding = None
    if weights == "int8" and isinstance(files, GgufFiles):
        embedding = files.find_rows(family.tensors["embedding.weight"])
    chosen = choose_operators(weights, device, dtype, embedding, finds_grids=isinstance(files, GgufFiles))
    if family.attention == "canvas":
        if operators == "kernels" or weights != "stored":
            raise OperatorsError(f"models of the family {family.name!r} are computed by another library")
        return Runtime.of(canvas_model.load(folder, device, dtype), name, family.name, family=family)
    stored_bytes = sum(path.stat().st_size for path in {*files.shards.values()})
    # Another layout gains little for small products; and the system can drop mapped pages, but not repacked weights.
    if isinstance(chosen, LaidOperators) and (family is EMBEDDED or stored_bytes > free_bytes(device)):
        chosen = TorchOperators(device, dtype)
    pack = chosen.pack if isinstance(chosen, PackedOperators) else None
    if family is EMBEDDED:
        loaded = checkpoints.load_embedded(folder, device, dtype)
        if pack is not None:
            pack(loaded.model)
    else:
        loaded = checkpoints.load(files, family, device, dtype, pack)
        files.release()
    is_auto = operators == "auto"
    return Runtime.of(loaded, name, family.name, family=family, operators=chosen, kernels=kernels, falls_back=is_auto)


def load_runtime(
    name: str, device: str = "auto", operators: str = "auto", dtype: str = "auto", weights: str | None = None
) -> Runtime:
    """Loads the model that `name` means to `find_model`. Raises StartError.

    `weights` None means int8 for a packaged model on a CPU with exact integer products, otherwise weights as stored.
    """
    folder = find_model(name)
    dtype_name = "bf16" if weights == "int4" and dtype == "auto" else dtype
    try:
        chosen_device = choose_device(device)
        chosen_dtype = choose_dtype(chosen_device, dtype_name)
        load = partial(open_checkpoint, folder, chosen_device, chosen_dtype, name, operators)
        if weights is None and name in PACKAGED and chosen_device.type == "cpu" and operators != "kernels":
            with suppress(OperatorsError):
                return load("int8")
        return load(weights or "stored")
    except OperatorsError as error:
        message = f"The model cannot run with these options: {error}."
        raise StartError(ErrorCode.BAD_REQUEST, message, "use --operators torch and --weights stored") from error
    except (CheckpointError, UnknownName) as error:
        next_step = "use a checkpoint with config.json, tokenizer files and safetensors of a known family"
        raise unknown_model(str(error), next_step) from error


def check_fits(
    folder: Path, weights_bytes: int, device: str = "auto", *, force: bool = False, memory_bytes: int | None = None
) -> None:
    """Raises StartError if the model in `folder`, whose `weights_bytes` are not fetched yet, cannot be loaded, or
    without `force` if it does not fit into the device's memory (`memory_bytes`, measured if None).
    """
    files = CheckpointFiles(folder)
    try:
        if is_adapter(folder):
            find_base(folder)  # raises an error if it is not on this machine
            return
        family = find_family(files)
        if family.attention not in ("canvas", "context_frozen"):
            checkpoints.read_sizes(files, family)
    except (CheckpointError, UnknownName) as error:
        next_step = "see `midfill models list --published` for those that can be loaded"
        raise unknown_model(f"It was not fetched: {error}", next_step) from error
    chosen_device = choose_device(device)
    stored_dtype = files.config.get("dtype") or files.config.get("torch_dtype")
    num_weights = weights_bytes // (4 if stored_dtype == "float32" else 2)
    needed = num_weights * choose_dtype(chosen_device).itemsize + WORKSPACE_BYTES
    needed_int4 = INT4_SHARE * num_weights * torch.bfloat16.itemsize + WORKSPACE_BYTES
    if memory_bytes is None:
        memory_bytes = torch.cuda.mem_get_info(chosen_device)[1] if chosen_device.type == "cuda" else total_bytes()
    if needed > memory_bytes and not force:
        message = f"It takes {needed / 1e9:.1f} GB of memory, and {chosen_device} has {memory_bytes / 1e9:.1f} GB"
        next_step = "choose a smaller model, or give --force to fetch it all the same"
        if needed_int4 <= memory_bytes and chosen_device.type != "mps":
            narrow = f"`midfill config weights int4`, with which it takes {needed_int4 / 1e9:.1f} GB"
            next_step = f"give --force to fetch it all the same, and then {narrow}; or choose a smaller model"
        raise fetch_failed(message, next_step)


def choose_operators(
    weights: str,
    device: torch.device,
    dtype: torch.dtype,
    embedding: StoredRows | None = None,
    *,
    finds_grids: bool = False,
) -> TorchOperators:
    """Operators for weights as they are `stored`, in `int8` or in `int4`. int8 can read the `embedding` from its file;
    int4 with `finds_grids` leaves weights as they are that were stored in 4 bits. Raises OperatorsError.
    """
    if weights == "int8":
        return Int8Operators(device, dtype, embedding)
    if weights == "int4":
        if dtype != torch.bfloat16:
            raise OperatorsError("4-bit weights are multiplied in bf16 alone")
        return Int4Operators(device, finds_grids=finds_grids)
    if weights != "stored":
        raise OperatorsError(f"there are no weights in {weights!r}; known: stored, int8, int4")
    if device.type == "cpu" and dtype == torch.bfloat16:
        try:
            return LaidOperators()
        except OperatorsError as error:
            logger.info("weights stay as they are: %s", error)
    return TorchOperators(device, dtype)
