"""Times the embedded model on this machine's CPU (or GPU): ceilings first, then an encoding, a step, a whole fill.

    PYTHONPATH=engine:kernels python -m bench.embedded [--threads 1] [--json FILE]

Two loads: the shipped weights at the longest context they were trained for, and random weights of the same architecture
at 1,024 tokens of context, where speed is the same question and no quality is claimed. Every figure stands beside the
step without a cache (the published loop: all positions at every step) and, with a compiler present, torch.compile's.
"""

import shutil
import string
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Annotated, Any, Final

import torch
import typer
from rich.console import Console
from rich.table import Table
from torch import Tensor

from bench.ceilings import Ceilings, measure_ceilings
from bench.measure import MIN_REPEATS, Timing, describe, time_eager, write_record
from midfill_engine.denoise import denoise
from midfill_engine.models.embedded import Embedded, lay_out
from midfill_engine.runtime import Runtime, load_runtime
from midfill_engine.wire import HoleSegment, HoleSpec, InfillRequest, InfillResponse, TextSegment

LONG_CONTEXT: Final = 1024
GAP: Final = 64
MASK: Final = 1
FEW_STEPS: Final = 16  # four tokens a forward


@dataclass(frozen=True)
class Result:
    """What was timed, the arithmetic it needs, and the share of the measured rate of products that it reaches."""

    what: str
    timing: Timing
    flops: float
    of_the_rate: float
    others: dict[str, Timing]


@dataclass(frozen=True)
class FillResult:
    """A whole fill with its context warm, as the engine runs it."""

    what: str
    timing: Timing
    tokens: int
    steps: int


def count_flops(model: Embedded, rows: int, seen: int, scored: int) -> float:
    """Of a pass over `rows` positions that attend to `seen` and ask for the scores of `scored`."""
    config = model.config.transformer
    heads = config.num_heads * config.head_dim
    products = config.dim * (2 * heads + 2 * config.num_kv_heads * config.head_dim) + 2 * config.dim * config.mlp_dim
    layers = config.num_layers * (2.0 * rows * products + 4.0 * rows * seen * heads)
    return layers + 2.0 * scored * config.dim * config.vocab_size


@torch.inference_mode()
def time_model(model: Embedded, context: int, repeats: int, rate: float, label: str) -> list[Result]:
    """The encoding of `context` tokens and a step of 64 rows behind them."""
    device = model.transformer.embedding.weight.device
    layout = lay_out([context - 1, 1], [GAP], model.config.hole_span)
    ids = torch.randint(16, model.config.transformer.vocab_size, (1, context), device=device)
    hole = torch.full((1, GAP), MASK, device=device)
    positions = layout.hole_positions[None].to(device)
    where = layout.context_positions[None].to(device)
    _, past = model.encode_context(ids, where)

    def step() -> Tensor:
        return model.step(hole, positions, past)

    others: dict[str, Callable[[], object]] = {"no cache": lambda: model.full(ids, hole, layout)}
    if shutil.which("c++") is not None:
        compiled = torch.compile(model.step, dynamic=False)
        others["torch.compile"] = lambda: compiled(hole, positions, past)
    encoding = time_eager(lambda: model.encode_context(ids, where), device, repeats)
    stepping = time_eager(step, device, repeats)
    encode_flops, step_flops = (
        count_flops(model, context, context, 0),
        count_flops(model, GAP, context + GAP, GAP),
    )
    return [
        Result(f"{label}: encode", encoding, encode_flops, encode_flops / encoding.median_s / rate, {}),
        Result(
            f"{label}: step",
            stepping,
            step_flops,
            step_flops / stepping.median_s / rate,
            {name: time_eager(call, device, max(10, repeats // 4)) for name, call in others.items()},
        ),
    ]


def widen_context(model: Embedded, context: int) -> Embedded:
    """The same architecture with random weights and room for `context` tokens."""
    wide = Embedded(replace(model.config, max_context=context)).eval().requires_grad_(False)
    generator = torch.Generator().manual_seed(0)
    for parameter in wide.parameters():
        parameter.copy_(torch.randn(parameter.shape, generator=generator) * parameter.shape[-1] ** -0.5)
    weight = model.transformer.embedding.weight
    return wide.to(weight.device, weight.dtype)


def with_model(runtime: Runtime, model: Embedded) -> Runtime:
    """The same engine around another model."""
    loaded = replace(runtime.loaded, model=model, config=model.config)
    return replace(runtime, loaded=loaded, contexts=type(runtime.contexts)())


def time_fill(runtime: Runtime, context: int, steps: int | None, repeats: int, label: str) -> FillResult:
    """A gap of 64 tokens behind text that fills the budget: once to warm its context, then `repeats` times.

    Without `steps` the sampler's default decides, which under weights that are never sure is a step a token.
    """
    text = write_text(runtime, context - 8)
    request = InfillRequest(
        segments=[
            TextSegment(text=text),
            HoleSegment(hole=HoleSpec(min_tokens=GAP, max_tokens=GAP)),
            TextSegment(text="\n"),
        ],
        steps=steps,
    )
    answers = [run_fill(runtime, request)]
    timing = time_eager(lambda: answers.append(run_fill(runtime, request)), runtime.device, repeats)
    stats = answers[-1].stats
    assert stats.cached_context, "the context is warm"
    return FillResult(f"{label}: fill", timing, stats.tokens, stats.steps)


def run_fill(runtime: Runtime, request: InfillRequest) -> InfillResponse:
    fill = denoise(runtime, request)
    while True:
        try:
            next(fill)
        except StopIteration as stop:
            assert isinstance(stop.value, InfillResponse)
            return stop.value


def write_text(runtime: Runtime, num_tokens: int) -> str:
    """Lines of assignments, as many as fit into `num_tokens`."""
    draw, lines = Random(0), ""
    while True:
        longer = lines + f"{draw.choice(string.ascii_lowercase)}{draw.randrange(100)} = {draw.randrange(10**6)}\n"
        if len(runtime.loaded.tokenizer.encode(longer)) > num_tokens:
            return lines
        lines = longer


def draw_table(results: list[Result], fills: list[FillResult], title: str) -> Table:
    table = Table("what", "median", "p95", "of the product rate", "others (times ours)", title=title)
    for result in results:
        others = [f"{name} {timing.median_s / result.timing.median_s:.2f}x" for name, timing in result.others.items()]
        table.add_row(
            result.what,
            f"{result.timing.median_s * 1e3:.2f} ms",
            f"{result.timing.p95_s * 1e3:.2f} ms",
            f"{result.of_the_rate:.0%}",
            ", ".join(others),
        )
    for fill in fills:
        note = f"{fill.tokens} tokens in {fill.steps} steps"
        table.add_row(fill.what, f"{fill.timing.median_s * 1e3:.1f} ms", f"{fill.timing.p95_s * 1e3:.1f} ms", "", note)
    return table


def measure(repeats: int) -> tuple[dict[str, Any], Ceilings, list[Result], list[FillResult]]:
    """Everything, on the device that the engine would choose."""
    runtime = load_runtime("embedded")
    model, dtype = runtime.loaded.model, str(runtime.dtype).removeprefix("torch.")
    ceilings = measure_ceilings(runtime.device, copy_bytes=2**28, side=1024, repeats=40)
    wide = widen_context(model, LONG_CONTEXT)
    longest = model.config.max_context
    results, fills = [], []
    for context, chosen, label in (
        (longest, runtime, f"shipped, {longest} + {GAP}"),
        (LONG_CONTEXT, with_model(runtime, wide), f"random, {LONG_CONTEXT} + {GAP}"),
    ):
        results += time_model(chosen.loaded.model, context, repeats, ceilings.products(dtype), label)
        for steps in (None, FEW_STEPS):
            fills.append(time_fill(chosen, context, steps, max(5, repeats // 20), label))
    return (
        describe(runtime.device) | {"dtype": dtype, "parameters": runtime.loaded.parameters},
        ceilings,
        results,
        fills,
    )


def main(
    threads: Annotated[int, typer.Option(help="of the CPU")] = 1,
    repeats: Annotated[int, typer.Option(help="timed steps")] = MIN_REPEATS,
    json_file: Annotated[Path | None, typer.Option("--json", help="write the figures here")] = None,
) -> None:
    """The embedded model's encoding, step and fill on this machine."""
    torch.set_num_threads(threads)
    machine, ceilings, results, fills = measure(repeats)
    rates = ", ".join(f"{name} {rate / 1e9:.0f} GFLOP/s" for name, rate in ceilings.product_flops_per_s.items())
    title = f"{machine['device']}, {threads} thread(s): copy {ceilings.copy_bytes_per_s / 1e9:.1f} GB/s, {rates}"
    Console(width=130).print(draw_table(results, fills, title))
    if json_file is not None:
        record = {"machine": machine, "ceilings": ceilings, "results": results, "fills": fills}
        write_record(json_file, record)


if __name__ == "__main__":
    typer.run(main)
