"""Measures the CPU time of passes and steps of a published 0.5 B model in fp32, bf16 and int8, and of causal fills.

    python -m bench laptop [--rounds 2] [--json FILE] [--fills [--model 0.5B]]

With --fills instead: a line of 12 tokens and a body of 60 by causal models of 0.5 B and 1.5 B in int8, with eight given
texts of that length, in a context of about 1,000 tokens that is read anew (cold) or known (warm); with the widths of
the default model, and with those that `midfill config seconds` chooses by the measured cost of a pass.

Weights are random and of Qwen2.5-0.5B's shape: the figures are about speed, not about fills. Every round runs every
way once on one thread; a figure is the least CPU time of the rounds, because other work only adds to it. To simulate an
AVX2 machine on a larger one, set ONEDNN_MAX_CPU_ISA=AVX2 ATEN_CPU_CAPABILITY=avx2 MKL_ENABLE_INSTRUCTIONS=AVX2
FBGEMM_ENABLE_INSTRUCTIONS=AVX2.
"""

import copy
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Final
from unittest.mock import patch

import tokenizers
import torch
import typer
from rich.console import Console
from rich.table import Table
from tests.engine.in_process import denoise, drain
from torch import Tensor, nn

from bench.measure import ROOT, JsonFile, describe, write_record
from midfill_engine.causal.continuing import limit_search
from midfill_engine.causal.effort import EFFORTS
from midfill_engine.causal.stretch import GrowingText, Stretch
from midfill_engine.causal.writing import TokenWriter
from midfill_engine.families.causal import CAUSAL
from midfill_engine.loading.checkpoints import LoadedModel
from midfill_engine.loading.device import choose_dtype
from midfill_engine.loading.runtime import Runtime, choose_operators
from midfill_engine.models.choice import Choice
from midfill_engine.models.family import Model, ModelConfig, SpecialTokens
from midfill_engine.models.operators import PackedOperators, TorchOperators
from midfill_engine.models.packed import Pass, run_packed, score_rows
from midfill_engine.models.transformer import KeyValues, Transformer, TransformerConfig
from midfill_engine.tokens.tokenizer import Tokenizer
from midfill_engine.wire import GivenText, HoleSegment, HoleSpec, InfillRequest, Segment, TextSegment

HALF_B: Final = TransformerConfig(
    151_936, 896, 24, 14, 2, 64, 4864, mlp="swiglu", norm_gain=True, qk_norm=False, attention_bias=True, rope_base=1e6
)
SHAPES: Final = {  # of Qwen2.5-Coder's
    "0.5B": HALF_B,
    "1.5B": replace(HALF_B, dim=1536, num_layers=28, num_heads=12, head_dim=128, mlp_dim=8960),
}
SECONDS: Final = (3.0, 1.0)
PLACES: Final = {"line": 12, "body": 60}  # tokens
GIVEN: Final = 8
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
    ways = {"fp32": Way(model, TorchOperators(CPU, torch.float32))}
    if choose_dtype(CPU) == torch.bfloat16:
        ways["bf16"] = as_bf16(copy.deepcopy(model))
    return ways | {"int8": as_int8(copy.deepcopy(model))}


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
        value = torch.randn(shape, generator=generator) * spread + float(name.endswith("norm.weight"))
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


@dataclass(frozen=True)
class TimedFill:
    """`width` counts the widths, 1 for the default model's; the CPU time is the least and the most of all rounds."""

    model: str
    pass_s: float
    row_s: float
    hole: str
    context: str
    seconds: str
    width: int
    forwards: int
    cpu_s: float
    most_cpu_s: float


@cache
def make_tokenizer(vocab_size: int) -> Tokenizer:
    """One that is trained on this repository's code; the ids that remain are words that nothing is made of."""
    inner = tokenizers.Tokenizer(tokenizers.models.BPE())
    inner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    most = min(vocab_size - 1, 16_384)
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=most, initial_alphabet=alphabet, show_progress=False)
    inner.train([str(path) for path in sorted((ROOT / "infill").rglob("*.py"))], trainer)
    known = json.loads(inner.to_str())
    vocabulary = known["model"]["vocab"]
    vocabulary |= {f"unused{index}": index for index in range(len(vocabulary), vocab_size)}
    return Tokenizer(json.dumps(known), vocab_size)


def make_runtime(name: str, config: TransformerConfig) -> Runtime:
    """A causal model in int8 with random weights, as loading a checkpoint lays it out."""
    dtype = choose_dtype(CPU)
    way = laid_out(make_model(config).to(dtype), choose_operators("int8", CPU, dtype))
    shape = ModelConfig(config, name, max_context=4096, max_hole=512)
    with torch.device("meta"):
        model = Model(shape)
    model.transformer = way.model
    parameters = sum(value.numel() for value in model.parameters())
    tokens = SpecialTokens(-1, (config.vocab_size - 1,))
    loaded = LoadedModel(model, make_tokenizer(config.vocab_size), shape, parameters, files=None)  # type: ignore[arg-type]
    return Runtime.of(loaded, family=replace(CAUSAL, tokens=lambda files: tokens), operators=way.operators)


def make_request(runtime: Runtime, hole: str, seconds: tuple[float, float] | None) -> InfillRequest:
    """Of lines of this repository's code; the given texts are other lines of it."""
    lines = (ROOT / "infill/midfill_infill/filling/fill.py").read_text(encoding="utf-8").splitlines(keepends=True)
    middle, size, encode = len(lines) // 2, PLACES[hole], runtime.loaded.tokenizer.encode
    texts = []
    is_line = hole == "line"
    for start in range(0, 20 * GIVEN, 20):
        text = "".join(lines[start:])
        if is_line:
            text = " ".join("".join(lines[start : start + 20]).split())
        ids = encode(text)[:size]
        texts.append(b"".join(map(runtime.loaded.tokenizer.token_bytes, ids)).decode(errors="ignore"))
    given = [GivenText(text=text, certainty=0.1) for text in texts]
    if is_line:
        spec = HoleSpec(min_tokens=size - 2, max_tokens=size + 4, candidates=given)
    else:
        spec = HoleSpec(max_tokens=size, candidates=given, indent="    ")
    body_ms = line_ms = None
    if seconds:
        body_ms, line_ms = (round(1000 * limit_s) for limit_s in seconds)
    before, after = "".join(lines[:middle]) + "    ", "\n\n\n" + "".join(lines[middle:])
    segments: list[Segment] = [TextSegment(text=before), HoleSegment(hole=spec), TextSegment(text=after)]
    return InfillRequest(segments=segments, body_ms=body_ms, line_ms=line_ms)


@contextmanager
def plainly() -> Iterator[None]:
    """Without what random weights distort: they write in circles, which makes guesses right, and what they write ends a
    body anywhere. So a body has all of its tokens.
    """

    def write(text: GrowingText, piece: bytes) -> None:
        text.data += piece

    with (
        patch.object(GrowingText, "write", write),
        patch.object(TokenWriter, "guess", lambda self, paths, *_, **__: [()] * len(paths)),
    ):
        yield


def measure_fills(
    shapes: dict[str, TransformerConfig], seconds: tuple[float, float], rounds: int
) -> Iterator[TimedFill]:
    for name, config in shapes.items():
        runtime = make_runtime(name, config)
        ways = {"off": None, f"{seconds[0]:g} {seconds[1]:g}": seconds}
        keys = [(hole, way) for hole in PLACES for way in ways]
        spent: dict[tuple[str, str, str], list[float]] = {}
        forwards: dict[tuple[str, str, str], int] = {}
        for _ in range(rounds):
            for hole, way in keys:
                request = make_request(runtime, hole, ways[way])
                runtime.prefixes.clear()
                for context in ("cold", "warm"):
                    started = time.process_time()
                    with plainly():
                        answer = drain(denoise(runtime, request))
                    spent.setdefault((hole, context, way), []).append(time.process_time() - started)
                    forwards[hole, context, way] = answer.stats.forwards
        for (hole, context, way), times in spent.items():
            stretch = Stretch("", "", single=hole == "line", indent="    ")
            effort, _ = limit_search(runtime, make_request(runtime, hole, ways[way]), stretch)
            width = EFFORTS.index(effort) + 1
            pace, passes = runtime.pace, forwards[hole, context, way]
            yield TimedFill(name, pace.pass_s, pace.row_s, hole, context, way, width, passes, min(times), max(times))


def score(way: Way, states: Tensor) -> Tensor:
    (scores,) = score_rows(way.model, [states], way.operators)
    return scores.float()


def main(
    rounds: Annotated[int, typer.Option(help="timed rounds")] = 2,
    layers: Annotated[int, typer.Option(help="of the 24")] = HALF_B.num_layers,
    context: Annotated[int, typer.Option(help="tokens in view")] = CONTEXT,
    json_file: JsonFile = None,
    fills: Annotated[bool, typer.Option("--fills", help="measure causal fills")] = False,
    model: Annotated[str | None, typer.Option(help="of the fills, those of this one")] = None,
) -> None:
    """Compares the ways to compute a 0.5 B model on this CPU."""
    torch.set_num_threads(1)
    if fills:
        shapes = {name: shape for name, shape in SHAPES.items() if model in (None, name)}
        return show_fills(shapes, rounds, json_file)
    results = measure(replace(HALF_B, num_layers=layers), context, rounds)
    caps = {name: os.environ[name] for name in CAPS if name in os.environ}
    machine = describe(CPU) | {"threads": 1, "rounds": rounds, "layers": layers, "context": context} | caps
    table = Table("way", "load", "rows", "CPU s", "times as fast as fp32", "error", title=str(machine["device"]))
    for row in results:
        table.add_row(
            row.way, row.load, str(row.rows), f"{row.cpu_s:.2f}", f"{row.times_as_fast:.2f}", f"{row.error:.3f}"
        )
    Console(width=110).print(table)
    if json_file is not None:
        write_record(json_file, {"machine": machine, "results": results})


def show_fills(shapes: dict[str, TransformerConfig], rounds: int, json_file: Path | None) -> None:
    machine = describe(CPU) | {"threads": 1, "rounds": rounds, "tokens": PLACES, "given": GIVEN}
    table = Table(
        "model",
        "a pass",
        "a row",
        "hole",
        "context",
        "seconds",
        "width",
        "passes",
        "CPU s",
        "to",
        title=str(machine["device"]),
    )
    results = []
    for row in measure_fills(shapes, SECONDS, rounds):
        results.append(row)
        numbers = str(row.width), str(row.forwards), f"{row.cpu_s:.2f}", f"{row.most_cpu_s:.2f}"
        table.add_row(row.model, f"{row.pass_s:.3f}", f"{row.row_s:.4f}", row.hole, row.context, row.seconds, *numbers)
    Console(width=110).print(table)
    if json_file is not None:
        write_record(json_file, {"machine": machine, "results": results})


if __name__ == "__main__":
    typer.run(main)
