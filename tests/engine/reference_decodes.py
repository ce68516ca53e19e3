"""Compares whole decodes with those of the authors' own sampling code.

The authors' code ran once, at temperature 0, on the tiny checkpoint that `tiny.make_random` writes for its family, with
the head multiplied so that some tokens are sure; what it wrote is in tests/engine/decodes/. Ids that a fill may not
contain were out of its reach too.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from safetensors.torch import load_file, save_file
from tests.engine import tiny
from tests.engine.in_process import denoise, drain

from midfill_engine.diffusion import denoise as denoising
from midfill_engine.families import FAMILIES
from midfill_engine.loading.runtime import Runtime, open_checkpoint
from midfill_engine.wire import InfillRequest

RECORDED = Path(__file__).parent / "decodes"


@dataclass(frozen=True)
class Agreement:
    """How many of `num_cases` decodes are the recorded ones token for token; `num_early` ended before their room."""

    name: str
    code: str
    num_cases: int
    num_same: int
    num_early: int
    num_tokens: int


def recorded_decodes() -> list[str]:
    return sorted(path.stem for path in RECORDED.glob("*.json"))


def compare(name: str, folder: Path, every: int = 1) -> Agreement:
    """Writes the checkpoint into a folder of its own in `folder`, decodes one of `every` cases and compares."""
    record = json.loads((RECORDED / f"{name}.json").read_text(encoding="utf-8"))
    runtime = open_sharpened(record, folder)
    cases = record["cases"][::every]
    found = [decode(runtime, case, record) for case in cases]
    return Agreement(
        name,
        record["code"],
        len(cases),
        sum(ids == case["ids"] for ids, case in zip(found, cases, strict=True)),
        sum(len(case["ids"]) < case["max_tokens"] for case in cases),
        sum(len(case["ids"]) for case in cases),
    )


def open_sharpened(record: dict[str, Any], folder: Path) -> Runtime:
    """The family's tiny checkpoint with scores times `sharp`, those that end a text times `end` once more."""
    family = FAMILIES.find(record["family"])
    folder = folder / f"{family.name.replace('llada2.1', 'LLaDA2.1')}-tiny"  # some families are known by their names
    tiny.make_random(folder, family, config={**tiny.config_of(family.name), **record["config"]})
    tensors = load_file(folder / "model.safetensors")
    head = family.tensors["head.weight"]
    head = head if head in tensors else family.tensors["embedding.weight"]
    tensors[head] = tensors[head] * record["sharp"]
    for token in open_checkpoint(folder, torch.device("cpu"), torch.float32, family.name).tokens.delete_ids:
        tensors[head][token] *= record["end"]
    save_file(tensors, folder / "model.safetensors")
    return open_checkpoint(folder, torch.device("cpu"), torch.float32, family.name)


def decode(runtime: Runtime, case: dict[str, Any], record: dict[str, Any]) -> list[int]:
    """The ids of a hole, up to the end of text where the family has one."""
    hole = {"hole": {"max_tokens": case["max_tokens"]}}
    segments = [{"text": case["prefix"]}, hole, {"text": case["suffix"]}]
    request = InfillRequest.model_validate({"segments": segments, **record["options"]})
    with patch.object(denoising, "answer", wraps=denoising.answer) as answer:
        drain(denoise(runtime, request, cache=record.get("cache"), lengths=record["lengths"]))
    ids: list[int] = answer.call_args.args[1][0].canvas.ids.tolist()
    ends = set(runtime.tokens.delete_ids) if runtime.tokens.ends_text else set()
    return ids[: next((place for place, token in enumerate(ids) if token in ends), len(ids))]
