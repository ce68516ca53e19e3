"""A loaded model with all that is computed once for it. Knows checkpoints and devices; no requests, no HTTP."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import torch

from midfill_engine import checkpoint
from midfill_engine.caches import ContextStore
from midfill_engine.checkpoint import CheckpointError, LoadedModel
from midfill_engine.device import DeviceError, choose_device, choose_dtype
from midfill_engine.errors import StartError
from midfill_engine.models.registry import FAMILIES, Family
from midfill_engine.vocabulary import Vocabulary
from midfill_engine.wire import ErrorCode, ModelInfo

WEIGHTS: Final = Path(__file__).parent / "weights"
EXIT_NO_MODEL: Final = 3


@dataclass(frozen=True)
class Runtime:
    """`names` are what requests may call the model; the first is its id."""

    loaded: LoadedModel
    family: Family
    vocabulary: Vocabulary
    names: tuple[str, ...]
    contexts: ContextStore = field(default_factory=ContextStore)

    @classmethod
    def of(cls, loaded: LoadedModel, *aliases: str) -> "Runtime":
        family = FAMILIES.find(checkpoint.FAMILY)
        tokenizer = loaded.tokenizer
        pieces = [tokenizer.token_bytes(index) for index in range(tokenizer.vocab_size)]
        vocabulary = Vocabulary(pieces, family.special_ids, family.delete_id)
        return cls(loaded, family, vocabulary, (loaded.config.name, *aliases))

    @property
    def device(self) -> torch.device:
        return next(self.loaded.model.parameters()).device

    def free_memory(self) -> None:
        """Drops what is only kept to be faster next time."""
        self.contexts.clear()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    @property
    def info(self) -> ModelInfo:
        return ModelInfo(
            id=self.names[0],
            family=self.family.name,
            parameters=self.loaded.parameters,
            device=str(self.device),
            dtype=str(next(self.loaded.model.parameters()).dtype).removeprefix("torch."),
            max_context_tokens=self.loaded.config.max_context,
            max_hole_tokens=self.loaded.config.max_hole,
        )


def known_models() -> list[str]:
    """The models that ship with the package."""
    return sorted(config.parent.name for config in WEIGHTS.glob("*/config.json"))


def find_model(name: str) -> Path:
    """The checkpoint folder of a shipped model or of a path. Raises StartError."""
    if name in known_models():
        return WEIGHTS / name
    if Path(name).is_dir():
        return Path(name)
    known = ", ".join(known_models()) or "none"
    message = f"There is no model named {name!r} and no folder of that name; shipped models: {known}."
    raise StartError(ErrorCode.UNKNOWN_MODEL, message, "name a shipped model or a checkpoint folder", EXIT_NO_MODEL)


def load_runtime(name: str, device: str = "auto") -> Runtime:
    """Loads a shipped model or a checkpoint folder. Raises StartError."""
    folder = find_model(name)
    try:
        chosen = choose_device(device)
        return Runtime.of(checkpoint.load(folder, chosen, choose_dtype(chosen)), name, checkpoint.FAMILY)
    except DeviceError as error:
        raise StartError(ErrorCode.BAD_REQUEST, str(error), "use --device auto", EXIT_NO_MODEL) from error
    except CheckpointError as error:
        next_step = "use a folder with config.json, tokenizer.json and model.safetensors"
        raise StartError(ErrorCode.UNKNOWN_MODEL, str(error), next_step, EXIT_NO_MODEL) from error
