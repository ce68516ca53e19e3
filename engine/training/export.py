"""Exports the files of a run that ship: an adapter in PEFT's format over its base, and the table of its sources."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor

from midfill_engine.checkpoint_files import ROW_SCALE, open_tensors
from midfill_engine.families.causal import CAUSAL
from midfill_engine.loading import checkpoints
from midfill_engine.loading.adapter import BASE_SHA256, CONFIG, WEIGHTS, WEIGHTS_SHA256, WRAPPED, open_files, read_wide
from midfill_engine.loading.packaged import hash_file
from midfill_engine.models.int8 import quantize_rows
from training.data.cutter import find_base
from training.data.pack import read_pack
from training.model import SCALE
from training.snapshots import LEARNT, read_progress

RECORD: Final = "training.json"


def export(snapshot: Path, out: Path, rank: int = 64, narrow: bool = False) -> int:
    """Writes the adapter of `snapshot` to `out` and returns its bytes. Raises ValueError for a torn snapshot.

    After full training the adapter has the best update of `rank` for each matrix, by SVD, and whole vectors.
    `narrow` stores matrices in int8, with one scale per row.
    """
    progress = read_progress(snapshot)
    learnt, base = load_file(snapshot / LEARNT), find_base(progress.record["model"])
    own_rank = int(progress.record["rank"])
    tensors = name_low_rank(learnt) if own_rank else reduce(learnt, base, rank)
    if narrow:
        tensors = {key: part for name, value in tensors.items() for key, part in narrow_rows(name, value).items()}
    else:
        tensors = {name: value.to(torch.bfloat16) for name, value in tensors.items()}
    out.mkdir(parents=True, exist_ok=True)
    save_file({name: value.contiguous() for name, value in tensors.items()}, out / WEIGHTS)
    kept = own_rank or rank
    config = {
        "peft_type": "LORA",
        "base_model_name_or_path": progress.record["model"] if base.is_file() else base.name,
        "r": kept,
        "lora_alpha": SCALE * kept,
        "bias": "none",
        WEIGHTS_SHA256: hash_file(out / WEIGHTS),
        **({BASE_SHA256: hash_file(base)} if base.is_file() else {}),
    }
    (out / CONFIG).write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
    state = {name: value for name, value in vars(progress).items() if name != "record"}
    (out / RECORD).write_text(json.dumps({**state, **progress.record}, indent=1) + "\n", encoding="utf-8")
    return (out / WEIGHTS).stat().st_size


def theirs(name: str) -> str:
    """The base's name of our tensor."""
    match = checkpoints.LAYER.match(name)
    known = CAUSAL.tensors[checkpoints.LAYER.sub("blocks.{i}.", name)]
    return known if match is None else known.replace("{i}", match[1])


def name_low_rank(learnt: Mapping[str, Tensor]) -> dict[str, Tensor]:
    named: dict[str, Tensor] = {}
    for name, value in learnt.items():
        matrix, _, part = name.rpartition(".")
        stem = theirs(f"{matrix}.weight").removesuffix(".weight")
        named[f"{WRAPPED}{stem}.lora_{'A' if part == 'down' else 'B'}.weight"] = value
    return named


@torch.no_grad()
def begin_with(parameters: Mapping[str, Tensor], adapter: Path) -> None:
    """Gives the parameters of a run the values of an adapter of the same rank. Raises ValueError for any other."""
    with open_tensors(adapter / WEIGHTS) as tensors:
        values_of = {name: read_wide(tensors, name) for name in tensors.keys() if not name.endswith(ROW_SCALE)}
    for (name, value), stored in zip(parameters.items(), name_low_rank(parameters), strict=True):
        if stored not in values_of or values_of[stored].shape != value.shape:
            raise ValueError(f"The adapter in {adapter} has no {name} of rank {min(value.shape)}.")
        value.copy_(values_of[stored])


def reduce(learnt: Mapping[str, Tensor], base: Path, rank: int) -> dict[str, Tensor]:
    """The changes relative to the base; matrices by their `rank` largest singular directions."""
    files = open_files(base)
    changes: dict[str, Tensor] = {}
    for name, value in learnt.items():
        known = theirs(name)
        if value.dim() == 1:
            changes[WRAPPED + known] = value
            continue
        left, sizes, right = torch.linalg.svd(value - files.read([known])[known].float(), full_matrices=False)
        root = (sizes[:rank] / SCALE).sqrt()
        stem, missing = WRAPPED + known.removesuffix(".weight"), rank - len(root)
        changes[f"{stem}.lora_B.weight"] = F.pad(left[:, :rank] * root, (0, missing))
        changes[f"{stem}.lora_A.weight"] = F.pad(root[:, None] * right[:rank], (0, 0, 0, missing))
    return changes


def narrow_rows(name: str, value: Tensor) -> dict[str, Tensor]:
    if value.dim() == 1:
        return {name: value}
    narrow, scales = quantize_rows(value)
    return {name: narrow, f"{name}{ROW_SCALE}": scales[:, None]}


def write_sources(sources: Path, pack: Path, out: Path) -> int:
    """Copies the rows of a corpus's `sources.tsv` whose package is in the training split. Returns how many.

    Raises ValueError if a package of the split has no row: nothing may ship without its source and license.
    """
    packages = set(read_pack(pack, "train").package_names)
    header, *rows = sources.read_text(encoding="utf-8").splitlines()
    kept = [row for row in rows if row.split("\t")[0] in packages]
    missing = packages - {row.split("\t")[0] for row in kept}
    if missing:
        raise ValueError(f"{sources} names no source of {', '.join(sorted(missing))}.")
    out.write_text("\n".join([header, *kept]) + "\n", encoding="utf-8")
    return len(kept)
