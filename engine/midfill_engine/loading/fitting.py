"""Checks, before weights are downloaded, that the engine can load a checkpoint and that it fits into memory."""

from pathlib import Path
from typing import Final

import torch

from midfill_engine.checkpoint_files import CheckpointError, CheckpointFiles
from midfill_engine.errors import fetch_failed, unknown_model
from midfill_engine.families import find_family
from midfill_engine.loading.adapter import is_adapter, open_files
from midfill_engine.loading.device import choose_device, choose_dtype
from midfill_engine.loading.hub import read_shape
from midfill_engine.loading.memory import total_bytes
from midfill_engine.registry import UnknownName

WORKSPACE_BYTES: Final = 2**29  # KV caches, states and logits of a fill or two


def check_fits(folder: Path, weights_bytes: int, device: str = "auto", *, force: bool = False) -> None:
    """Checks a folder without its weights, which take `weights_bytes` on disk. Raises StartError."""
    if is_adapter(folder):
        open_files(folder)  # finds its base, which must be here
        return
    files = CheckpointFiles(folder)
    try:
        family = find_family(files)
        if family.attention not in ("canvas", "context_frozen"):
            read_shape(files, family)
    except (CheckpointError, UnknownName) as error:
        next_step = "see `midfill models list --published` for those that can be loaded"
        raise unknown_model(f"It was not fetched: {error}", next_step) from error
    chosen = choose_device(device)
    named = files.config.get("dtype") or files.config.get("torch_dtype")
    held = weights_bytes * choose_dtype(chosen).itemsize // (4 if named == "float32" else 2)
    present = memory_of(chosen)
    if held + WORKSPACE_BYTES > present and not force:
        message = f"It takes {(held + WORKSPACE_BYTES) / 1e9:.1f} GB of memory, and {chosen} has {present / 1e9:.1f} GB"
        raise fetch_failed(message, "choose a smaller model, or give --force to fetch it all the same")


def memory_of(device: torch.device) -> int:
    """Total memory of the device in bytes."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[1]
    return total_bytes()
