"""A run's snapshots: trainable parameters and what resuming needs. Knows folders; trains nothing.

A snapshot replaces the previous one atomically where the system exchanges two names; elsewhere a reader may find none
for a moment. Its `state.json` has the hash of every other file: an incomplete or mixed copy is refused.
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
SCRATCH_PREFIX: Final = ".writing-"
OLD: Final = f"{SCRATCH_PREFIX}old"  # the previous snapshot, between two renames
AT_FDCWD, RENAME_EXCHANGE = -100, 2  # linux/fcntl.h, linux/fs.h


@dataclass
class Progress:
    """Where a resumed run continues. All parts of the run count together."""

    step: int = 0
    tokens: int = 0  # that it was trained on
    seconds: float = 0.0
    record: dict[str, str] = field(default_factory=dict)  # how the run was made
    validation_nats: float = math.inf  # per token of the holes in held-out code


def write_snapshot(
    folder: Path, parameters: Mapping[str, Tensor], optimizer: torch.optim.Optimizer, progress: Progress
) -> None:
    """Replaces `folder` by the trainable parameters, the optimizer's moments, the progress, and the log so far."""
    with _replacing(folder) as made:
        save_file({name: value.detach().float().contiguous() for name, value in parameters.items()}, made / LEARNT)
        moments = {
            f"{name}#{key}": optimizer.state[value][key].contiguous()
            for name, value in parameters.items()
            for key in MOMENTS
            if value in optimizer.state  # none before the first step, all behind it
        }
        save_file(moments, made / OPTIMIZER)
        if (folder.parent / LOG).exists():
            shutil.copy(folder.parent / LOG, made / LOG)
        values = {**asdict(progress), "sha256": {path.name: _sha256(path) for path in sorted(made.iterdir())}}
        (made / STATE).write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")


def read_snapshot(folder: Path, parameters: Mapping[str, Tensor], optimizer: torch.optim.Optimizer) -> Progress:
    """Loads the values of a snapshot. Raises ValueError if it is incomplete or does not fit the parameters."""
    progress, learnt, moments = read_progress(folder), load_file(folder / LEARNT), load_file(folder / OPTIMIZER)
    shapes = {name: value.shape for name, value in parameters.items()}
    if {name: value.shape for name, value in learnt.items()} != shapes:
        raise ValueError(f"The snapshot {folder} is of a run with another base or rank.")
    with torch.no_grad():
        for name, value in parameters.items():
            value.copy_(learnt[name])
            if moments:  # in the layout of torch's Adam; every parameter takes part in every step
                held = {key: moments[f"{name}#{key}"].to(value.device) for key in MOMENTS}
                optimizer.state[value] = {**held, "step": torch.tensor(float(progress.step), device=value.device)}
    return progress


def read_progress(folder: Path) -> Progress:
    """The progress of a snapshot whose files are whole now; a later replacement goes unnoticed. Raises ValueError."""
    try:
        values = json.loads((folder / STATE).read_text(encoding="utf-8"))
        hashes = values.pop("sha256", {})
        torn = [name for name in sorted({LEARNT, OPTIMIZER, *hashes}) if _sha256(folder / name) != hashes.get(name)]
        faults = [f"{name} is of another one or damaged" for name in torn]
    except OSError as error:
        faults = [f"{error.filename} is missing or cannot be read"]
    if faults:
        raise ValueError(f"The snapshot {folder} is not whole: {faults[0]}; copy it again.")
    return Progress(**values)


def clear_scratch(folder: Path) -> None:
    """Removes what a killed run was writing; brings back the snapshot `folder` if the run had only put it aside."""
    old = folder.with_name(OLD)
    if old.exists() and not folder.exists():
        old.rename(folder)
    for path in folder.parent.glob(f"{SCRATCH_PREFIX}*"):
        shutil.rmtree(path)


@contextmanager
def _replacing(folder: Path) -> Iterator[Path]:
    """Yields a folder to fill, which replaces `folder` at the end."""
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=SCRATCH_PREFIX) as scratch:
        made = Path(scratch, "made")
        made.mkdir()
        yield made
        if not folder.exists():
            made.rename(folder)
        elif not _exchange(made, folder):  # after an exchange, `made` names the previous one, which goes with `scratch`
            old = folder.rename(folder.with_name(OLD))
            made.rename(folder)
            shutil.rmtree(old)


def _exchange(first: Path, second: Path) -> bool:
    """Swaps two names atomically; false if the system cannot."""
    rename = getattr(ctypes.CDLL(None), "renameat2", None)
    names = (AT_FDCWD, os.fsencode(first), AT_FDCWD, os.fsencode(second))
    return rename is not None and bool(rename(*names, RENAME_EXCHANGE) == 0)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
