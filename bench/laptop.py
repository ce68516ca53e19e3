"""Measures the CPU time of passes and steps of a published 0.5 B model in fp32, bf16 and int8.

    python -m bench laptop [--rounds 2] [--json FILE]

Weights are random and of Qwen2.5-0.5B's shape: the figures are about speed, not about fills. Every round runs every
way once on one thread; a figure is the least CPU time of the rounds, because other work only adds to it. To simulate an
AVX2 machine on a larger one, set ONEDNN_MAX_CPU_ISA=AVX2 ATEN_CPU_CAPABILITY=avx2 MKL_ENABLE_INSTRUCTIONS=AVX2
FBGEMM_ENABLE_INSTRUCTIONS=AVX2.
"""

import copy
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import torch
import typer
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from bench.green import stop_unless_green
from bench.measure import describe, write_record
from midfill_engine.loading.device import choose_dtype
from midfill_engine.loading.runtime import choose_operators
from midfill_engine.models.choice import Choice
from midfill_engine.models.operators import PackedOperators, TorchOperators
from midfill_engine.models.packed import Pass, run_packed, score_rows
from midfill_engine.models.transformer import KeyValues, Transformer, TransformerConfig

HALF_B: Final = TransformerConfig(
    151_936, 896, 24, 14, 2, 64, 4864, mlp="swiglu", norm_gain=True, qk_norm=False, attention_bias=True, rope_base=1e6
)
CONTEXT: Final = 1024
GAP: Final = 64
STEPS: Final = (16, 64)
CAPS: Final = ("ONEDNN_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY", "MKL_ENABLE_INSTRUCTIONS", "FBGEMM_ENABLE_INSTRUCTIONS")
CPU: Final = torch.device("cpu")


@dataclass(frozen=True)
class Way:
    model: Transformer
    operators: TorchOperators


@dataclass(frozen=True)
class Timed:
    """`error` is the root mean square of the scores' difference to fp32 over those scores' standard deviation."""

    way: str
    load: str
    rows: int
    cpu_s: float
    times_as_fast: float
    error: float


def make_ways(config: TransformerConfig) -> dict[str, Way]:
    """fp32, bf16 where the processor multiplies it, int8."""
    model = make_model(config)
    found = {"fp32": Way(model, TorchOperators(CPU, torch.float32))}
    if choose_dtype(CPU) == torch.bfloat16:
        found["bf16"] = as_bf16(copy.deepcopy(model))
    return found | {"int8": as_int8(copy.deepcopy(model))}


def as_bf16(model: Transformer) -> Way:
    return laid_out(model.bfloat16(), choose_operators("stored", CPU, torch.bfloat16))


def as_int8(model: Transformer) -> Way:
    return laid_out(model, choose_operators("int8", CPU, torch.float32))


def laid_out(model: Transformer, operators: TorchOperators) -> Way:
    """Packs the weights as loading a checkpoint does."""
    if isinstance(operators, PackedOperators):
        operators.pack(model)
    return Way(model, operators)


def make_model(config: TransformerConfig) -> Transformer:
    """Random weights in fp32."""
    generator = torch.Generator().manual_seed(0)
    with torch.device("meta"):
        model = Transformer(config)
    for name, shape in [(name, value.shape) for name, value in model.named_parameters()]:
        owner, _, leaf = name.rpartition(".")
        spread = shape[-1] ** -0.5 if len(shape) > 1 else 0.1
        value = torch.randn(shape, generator=generator) * spread + (1.0 if name.endswith("norm.weight") else 0.0)
        setattr(model.get_submodule(owner), leaf, nn.Parameter(value, requires_grad=False))
    return model.eval()


def make_pass(config: TransformerConfig, rows: int, scored: int, past: KeyValues | None) -> Pass:
    """`rows` positions behind `past`, the last `scored` of which choose greedily."""
    start = 0 if past is None else past[0][0].shape[2]
    choice = Choice(torch.ones(1, config.vocab_size, dtype=torch.bool), torch.zeros(scored, dtype=torch.int64))
    ids = torch.arange(rows) * 7919 % config.vocab_size
    return Pass(
        ids, torch.arange(start, start + rows), torch.arange(rows - scored, rows), past, keeps=not start, choice=choice
    )


def loads(way: Way, context: int) -> dict[str, Callable[[], Tensor]]:
    """A pass over everything, and steps over the keys that it leaves. Each returns the states of its last 16 rows."""
    config = way.model.config
    whole = make_pass(config, context + GAP, GAP, None)
    (result,) = run_packed(way.model, [whole], way.operators)
    assert result.own is not None
    own = result.own

    def run_whole() -> Tensor:
        return run_packed(way.model, [whole], way.operators)[0].hidden[-16:]

    def run_step(rows: int) -> Tensor:
        known = torch.arange(context + GAP - rows)  # gathered anew, as they lie scattered in a fill
        step = make_pass(config, rows, rows, [(key[:, :, known], value[:, :, known]) for key, value in own])
        return run_packed(way.model, [step], way.operators)[0].hidden[-16:]

    return {"whole pass": run_whole} | {f"step of {rows}": partial(run_step, rows) for rows in STEPS}


@torch.inference_mode()
def measure(config: TransformerConfig, context: int, rounds: int) -> list[Timed]:
    ways = make_ways(config)
    work = {name: loads(way, context) for name, way in ways.items()}
    least = {(name, load): float("inf") for name, of_way in work.items() for load in of_way}
    states: dict[tuple[str, str], Tensor] = {}
    for _ in range(rounds):
        for name, load in least:
            started = time.process_time()
            states[name, load] = work[name][load]()
            least[name, load] = min(least[name, load], time.process_time() - started)
    return list(compare(ways, least, states, context))


def compare(
    ways: dict[str, Way], least: dict[tuple[str, str], float], states: dict[tuple[str, str], Tensor], context: int
) -> Iterator[Timed]:
    for (name, load), seconds in least.items():
        scores = {way: score(ways[way], states[way, load]) for way in ("fp32", name)}
        error = (scores[name] - scores["fp32"]).square().mean().sqrt() / scores["fp32"].std()
        rows = context + GAP if load == "whole pass" else int(load.split()[-1])
        yield Timed(name, load, rows, seconds, least["fp32", load] / seconds, float(error))


def score(way: Way, states: Tensor) -> Tensor:
    (found,) = score_rows(way.model, [states], way.operators)
    return found.float()


def main(
    rounds: Annotated[int, typer.Option(help="timed rounds")] = 2,
    layers: Annotated[int, typer.Option(help="of the 24")] = HALF_B.num_layers,
    context: Annotated[int, typer.Option(help="tokens in view")] = CONTEXT,
    json_file: Annotated[Path | None, typer.Option("--json", help="write the figures here")] = None,
) -> None:
    """Compares the ways to compute a 0.5 B model on this CPU."""
    stop_unless_green("test_laptop.py", folder="bench")
    torch.set_num_threads(1)
    found = measure(replace(HALF_B, num_layers=layers), context, rounds)
    caps = {name: os.environ[name] for name in CAPS if name in os.environ}
    machine = describe(CPU) | {"threads": 1, "rounds": rounds, "layers": layers, "context": context} | caps
    table = Table("way", "load", "rows", "CPU s", "times as fast as fp32", "error", title=str(machine["device"]))
    for row in found:
        table.add_row(
            row.way, row.load, str(row.rows), f"{row.cpu_s:.2f}", f"{row.times_as_fast:.2f}", f"{row.error:.3f}"
        )
    Console(width=110).print(table)
    if json_file is not None:
        write_record(json_file, {"machine": machine, "results": found})


if __name__ == "__main__":
    typer.run(main)
