"""A run's snapshots: trainable parameters and the state for resuming. Knows folders; trains nothing.

A snapshot replaces the previous one atomically, so a concurrent reader finds one of the two. Its `state.json` has the
hash of every other file: an incomplete copy, or one with files of two snapshots, is refused.
"""

import ctypes
import hashlib
import json
import math
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

LEARNT: Final = "learnt.safetensors"
OPTIMIZER: Final = "optimizer.safetensors"
MOMENTS: Final = ("exp_avg", "exp_avg_sq")
STATE: Final = "state.json"
LOG: Final = "log.jsonl"
SCRATCH: Final = ".writing-"
AT_FDCWD, RENAME_EXCHANGE = -100, 2  # linux/fcntl.h, linux/fs.h


@dataclass
class Progress:
    """The state from which a resumed run continues. `record` describes how the run was made."""

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    record: dict[str, str] = field(default_factory=dict)
    validation_nats: float = math.inf


def write_snapshot(
    folder: Path, parameters: Mapping[str, Tensor], optimizer: torch.optim.Optimizer, progress: Progress
) -> None:
    """Replaces `folder` by the trainable parameters, the optimizer's moments, the state, and the log so far."""
    with _replacing(folder) as made:
        save_file({name: value.detach().float().contiguous() for name, value in parameters.items()}, made / LEARNT)
        moments = {
            f"{name}#{key}": optimizer.state[value][key].contiguous()
            for name, value in parameters.items()
            for key in MOMENTS
            if value in optimizer.state
        }
        save_file(moments, made / OPTIMIZER)
        if (folder.parent / LOG).exists():
            shutil.copy(folder.parent / LOG, made / LOG)
        state = {**asdict(progress), "sha256": {path.name: _sha256(path) for path in sorted(made.iterdir())}}
        (made / STATE).write_text(json.dumps(state, indent=1) + "\n", encoding="utf-8")


def read_snapshot(folder: Path, parameters: Mapping[str, Tensor], optimizer: torch.optim.Optimizer) -> Progress:
    """Loads the values of a snapshot. Raises ValueError if it is incomplete or of another run."""
    progress, learnt, moments = read_progress(folder), load_file(folder / LEARNT), load_file(folder / OPTIMIZER)
    if {name: value.shape for name, value in learnt.items()} != {name: each.shape for name, each in parameters.items()}:
        raise ValueError(f"The snapshot {folder} is of a run with another base or rank.")
    with torch.no_grad():
        for name, value in parameters.items():
            value.copy_(learnt[name])
            held = {key: moments[f"{name}#{key}"].to(value.device) for key in MOMENTS}
            optimizer.state[value] = {**held, "step": torch.tensor(float(progress.step), device=held["exp_avg"].device)}
    return progress


def read_progress(folder: Path) -> Progress:
    """The state of a snapshot. Raises ValueError if a file is missing or its hash differs."""
    try:
        state = json.loads((folder / STATE).read_text(encoding="utf-8"))
        hashes = state.pop("sha256", {})
        torn = [name for name, digest in hashes.items() if _sha256(folder / name) != digest]
    except OSError as error:
        raise ValueError(f"The snapshot {folder} is not whole: {error.filename} is missing; copy it again.") from error
    if torn:
        raise ValueError(f"The snapshot {folder} is not whole: {torn[0]} is of another one; copy it again.")
    return Progress(**state)


def clear_scratch(run: Path) -> None:
    """Removes what a killed run was writing."""
    for path in run.glob(f"{SCRATCH}*"):
        shutil.rmtree(path)


@contextmanager
def _replacing(folder: Path) -> Iterator[Path]:
    """Yields a folder to fill, which replaces `folder` at the end."""
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=SCRATCH) as scratch:
        made = Path(scratch, "made")
        made.mkdir()
        yield made
        if not folder.exists():
            made.rename(folder)
        elif not _exchange(made, folder):
            folder.rename(Path(scratch, "old"))
            made.rename(folder)


def _exchange(first: Path, second: Path) -> bool:
    """Swaps two names atomically; false if the system cannot."""
    rename = getattr(ctypes.CDLL(None), "renameat2", None)
    if rename is None:
        return False
    return bool(rename(AT_FDCWD, os.fsencode(first), AT_FDCWD, os.fsencode(second), RENAME_EXCHANGE) == 0)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
