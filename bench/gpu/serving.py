"""Times whole fills through the engine itself, operators and caches in turn, on random weights of a published shape.

    python -m bench gpu.serving [--shape 7B] [--family dream] [--cache dual] [--json FILE]

`--family sdar` times a block-causal model, whose steps are by blocks of four tokens, and `--family llada2 --shape
16B-A1B` a mixture of experts. Times include tokenization,
sampling and the canvas on the host, as for users of `midfill serve`. Every forward settles a fixed number of tokens, so
figures are about speed only. Variants take turns, so that all see the same machine. Interpreted on a CPU
(`TRITON_INTERPRET=1`) all runs at toy size, and times mean nothing.
"""

import copy
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Final

import torch
import typer
from rich.console import Console
from rich.table import Table
from tests.engine import tiny

from bench.gpu.cases import choose_dtype
from bench.gpu.shapes import SHAPES
from bench.green import find_red
from bench.measure import JsonFile, choose_device, describe, note_toy, write_record
from midfill_engine.backends import open_fill
from midfill_engine.checkpoint_files import CheckpointFiles
from midfill_engine.families import FAMILIES
from midfill_engine.loading import checkpoints
from midfill_engine.loading.checkpoints import LoadedModel
from midfill_engine.loading.runtime import Runtime
from midfill_engine.models.family import CACHES_BY_ATTENTION, Family, Model
from midfill_engine.models.int4 import Int4Operators
from midfill_engine.models.transformer import TransformerConfig
from midfill_engine.scheduling.work import Show, Work
from midfill_engine.wire import HoleSegment, HoleSpec, InfillRequest, InfillResponse, TextSegment

TESTS: Final = (
    "test_fused_runner.py",
    "test_norm.py",
    "test_matmul.py",
    "test_rotary.py",
    "test_cached_attention.py",
    "test_experts.py",
    "test_head.py",
)
GAP: Final = 64
TOKENS_A_FORWARD: Final = 8


@dataclass(frozen=True)
class ServingResult:
    """Medians of whole fills. `forward_s` is the part spent in forwards, `first_s` until the first step was shown."""

    shape: str
    operators: str
    cache: str
    context: int
    gap: int
    forwards: int
    fill_s: float
    forward_s: float
    first_s: float

    @property
    def tokens_per_s(self) -> float:
        return self.gap / self.fill_s


def make_model(
    family: Family, config: TransformerConfig, context: int, device: torch.device, dtype: torch.dtype
) -> LoadedModel:
    """Random weights behind a tokenizer of one token a byte."""
    with tempfile.TemporaryDirectory() as folder:
        tiny.make_random(Path(folder), family)
        small = checkpoints.load(CheckpointFiles(Path(folder)), family)
    changed = replace(small.config, transformer=config, max_context=context + 64, max_hole=256)
    with torch.device("meta"):
        model = Model(changed)
    model = model.to_empty(device=device).to(dtype).eval().requires_grad_(False)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            parameter.normal_(std=parameter.shape[-1] ** -0.5)
        else:
            parameter.fill_(1)
    num_parameters = sum(part.numel() for part in model.parameters())
    return LoadedModel(model, small.tokenizer, changed, num_parameters, small.files)


def run_fill(runtime: Runtime, request: InfillRequest, cache: str) -> tuple[float, float, float, InfillResponse]:
    """Seconds of the fill, of its forwards, and until the first step was shown; and the answer."""
    started, forward_s, first_s = time.perf_counter(), 0.0, 0.0
    fill, answer = open_fill(runtime, request, cache=cache, lengths="fixed"), None
    while True:
        try:
            item = fill.send(answer)
        except StopIteration as stop:
            assert isinstance(stop.value, InfillResponse)
            return time.perf_counter() - started, forward_s, first_s, stop.value
        answer = None
        event = item.event if isinstance(item, Show | Work) else None
        if event is not None and event.step == 1:
            first_s = time.perf_counter() - started
        if isinstance(item, Work):
            before = time.perf_counter()
            answer = runtime.run(item.passes)  # type: ignore[arg-type]
            forward_s += time.perf_counter() - before


def measure(
    runtimes: dict[str, Runtime], caches: list[str], context: int, gap: int, repeats: int
) -> list[ServingResult]:
    """Every operators' runtime with every cache, in turn; the first turn warms up and does not count."""
    text = ("x = 1\n" * context)[: context - 1]
    hole = HoleSegment(hole=HoleSpec(min_tokens=gap, max_tokens=gap))
    block_size = next(iter(runtimes.values())).loaded.config.block_size
    tokens_a_forward = min(TOKENS_A_FORWARD, block_size or TOKENS_A_FORWARD)
    steps = -(-gap // tokens_a_forward)
    request = InfillRequest(segments=[TextSegment(text=text), hole, TextSegment(text="\n")], steps=steps)
    samples: dict[tuple[str, str], list[tuple[float, float, float, InfillResponse]]] = {}
    for turn in range(repeats + 1):
        for operators, runtime in runtimes.items():
            for cache in caches:
                sample = run_fill(runtime, request, cache)
                if turn:
                    samples.setdefault((operators, cache), []).append(sample)
    return [
        ServingResult(
            runtimes[operators].names[0],
            operators,
            cache,
            context,
            gap,
            of_variant[0][3].stats.forwards,
            statistics.median(sample[0] for sample in of_variant),
            statistics.median(sample[1] for sample in of_variant),
            statistics.median(sample[2] for sample in of_variant),
        )
        for (operators, cache), of_variant in samples.items()
    ]


def draw_table(results: list[ServingResult], title: str) -> Table:
    table = Table(
        "operators", "cache", "fill", "first step", "in forwards", "forwards", "tok/s", "times torch", title=title
    )
    for result in results:
        plain = next((one.fill_s for one in results if (one.operators, one.cache) == ("torch", result.cache)), None)
        table.add_row(
            result.operators,
            result.cache,
            f"{result.fill_s * 1e3:.1f} ms",
            f"{result.first_s * 1e3:.1f} ms",
            f"{result.forward_s / result.fill_s:.0%}",
            str(result.forwards),
            f"{result.tokens_per_s:.0f}",
            times_as_fast(plain, result.fill_s),
        )
    return table


def times_as_fast(plain_s: float | None, seconds: float) -> str:
    return "" if plain_s is None else f"{plain_s / seconds:.2f}"


def open_runtime(family: Family, loaded: LoadedModel, name: str, operators: str) -> Runtime:
    """A runtime with torch's operators, the kernels, or torch's with a copy of the weights in int4."""
    chosen = None
    if operators == "int4":
        model = copy.deepcopy(loaded.model).bfloat16()
        loaded = replace(loaded, model=model)
        chosen = Int4Operators(loaded.embedding_weight.device)
        chosen.pack(model.transformer)
    runtime = Runtime.of(loaded, family=family, operators=chosen, kernels=operators == "kernels")
    return replace(runtime, names=(name,))


@torch.inference_mode()
def run(
    family: Family, name: str, operators: list[str], caches: list[str], context: int, repeats: int
) -> dict[str, Any]:
    """The record of one shape. The runtimes share their weights, but for int4."""
    device = choose_device()
    loaded = make_model(family, SHAPES[name], context, device, choose_dtype(device))
    runtimes = {way: open_runtime(family, loaded, name, way) for way in operators}
    gap = 8 if name.startswith("toy") else GAP
    fills = measure(runtimes, caches, context, gap, repeats)
    return {"machine": describe(device), "family": family.name, "fills": fills}


def main(
    shape: Annotated[str, typer.Option(help=f"one of {', '.join(SHAPES)}")] = "7B",
    family: Annotated[str, typer.Option(help="such as dream or sdar")] = "dream",
    cache: Annotated[list[str] | None, typer.Option(help="such as none and dual")] = None,
    context: Annotated[int, typer.Option(help="tokens")] = 2048,
    repeats: Annotated[int, typer.Option(help="timed fills of each")] = 20,
    json_file: JsonFile = None,
) -> None:
    """Fills of one shape through the engine."""
    toy = choose_device().type == "cpu"
    has_experts = SHAPES[shape].moe is not None
    chosen = shape
    if toy:
        chosen = "toy-experts" if has_experts else "toy"
    console = Console(width=130)
    red = sorted(find_red(*TESTS))
    timed = FAMILIES.find(family)
    if timed.attention == "bidirectional":
        default_caches = ["none", "dual"]
    else:
        default_caches = [CACHES_BY_ATTENTION[timed.attention]]
    operators = ["torch"]
    if not red:
        operators.append("kernels")
    if not has_experts:  # int4 leaves experts as they are
        operators.append("int4")
    if toy:
        context, repeats = 40, 1
    record = run(timed, chosen, operators, cache or default_caches, context, repeats)
    console.print(draw_table(record["fills"], f"{record['machine']['device']}, {chosen}, {family}{note_toy(toy)}"))
    if red:
        console.print(f"kernels: not timed, red are {', '.join(red)}", markup=False)
    if json_file is not None:
        write_record(json_file, {**record, "red": red})
    sys.exit(bool(red))


if __name__ == "__main__":
    typer.run(main)
