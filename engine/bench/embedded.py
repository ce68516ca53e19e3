"""Times the embedded model on this machine's CPU (or GPU): ceilings first, then an encoding, a step, a whole fill.

    PYTHONPATH=engine:kernels python -m bench.embedded [--threads 1] [--json FILE]

Two loads: the shipped weights at the longest context they were trained for, and random weights of the same architecture
at 1,024 tokens of context, where speed is the same question and no quality is claimed. A step is the engine's own: the
packed pass with the head and the choice of a token for each row. Every figure stands beside the pass without a cache
(the published loop: all positions at every step) and, with a compiler present, torch.compile's, both without a choice.
Steps over other gaps and contexts follow, for the pictures that `bench.draw` makes.
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

from bench.ceilings import measure_ceilings
from bench.green import stop_unless_green
from bench.measure import MIN_REPEATS, Timing, describe, summarize, time_eager, write_record
from bench.shapes import pass_flops
from midfill_engine.denoising.denoise import denoise, drain
from midfill_engine.families.embedded import Embedded, lay_out
from midfill_engine.loading.runtime import Runtime, load_runtime
from midfill_engine.models.choice import Choice
from midfill_engine.models.fused import Shape
from midfill_engine.models.layout import Layout
from midfill_engine.models.packed import Pass
from midfill_engine.wire import HoleSegment, HoleSpec, InfillRequest, TextSegment

LONG_CONTEXT: Final = 1024
GAP: Final = 64
GAPS: Final = (16, 32, 64, 128)
CONTEXTS: Final = (128, 256, 512, 1024)
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
class StepPoint:
    """A step of `gap` rows behind `context` tokens, and the least that it must read and compute."""

    context: int
    gap: int
    timing: Timing
    flops: float
    bytes: float


@dataclass(frozen=True)
class FillResult:
    """A whole fill with its context warm, as the engine runs it."""

    what: str
    timing: Timing
    tokens: int
    steps: int


def count_bytes(model: Embedded, context: int) -> float:
    """What a step must read: every weight once, and the context's keys and values."""
    config = model.config.transformer
    width = 2 * config.num_kv_heads * config.head_dim * config.num_layers
    weights = sum(parameter.numel() for parameter in model.transformer.parameters())
    return float(model.transformer.embedding.weight.element_size() * (weights + context * width))


@dataclass(frozen=True)
class Passes:
    """The engine's two passes over one random document: its context encoded, a step over its gap."""

    encode: Pass
    step: Pass
    layout: Layout

    @classmethod
    def make(cls, runtime: Runtime, context: int, gap: int) -> "Passes":
        model, device = runtime.loaded.model, runtime.device
        vocab_size = model.config.transformer.vocab_size
        layout = lay_out([context - 1, 1], [gap], model.config.hole_span)
        ids = torch.randint(16, vocab_size, (context,), device=device)
        where = layout.context_positions.expand(model.config.transformer.num_heads, -1)
        encode = Pass(ids, where, torch.zeros(0, dtype=torch.int64), keeps=True)
        past = runtime.run([encode])[0].own
        choice = Choice(torch.ones(1, vocab_size, dtype=torch.bool), torch.zeros(gap, dtype=torch.int64))
        hole = torch.full((gap,), MASK, device=device)
        positions = model.by_head(layout.hole_positions)
        return cls(encode, Pass(hole, positions, torch.arange(gap), past=past, choice=choice), layout)


@torch.inference_mode()
def time_model(runtime: Runtime, context: int, repeats: int, rate: float, label: str) -> list[Result]:
    """The encoding of `context` tokens and a step of 64 rows behind them."""
    model, device = runtime.loaded.model, runtime.device
    passes = Passes.make(runtime, context, GAP)
    ids, hole = passes.encode.ids[None], passes.step.ids[None]
    positions = passes.layout.hole_positions[None].to(device)
    past = passes.step.past

    others: dict[str, Callable[[], object]] = {"no cache": lambda: model.full(ids, hole, passes.layout)}
    if shutil.which("c++") is not None:
        compiled = torch.compile(model.step, dynamic=False)
        others["torch.compile"] = lambda: compiled(hole, positions, past)
    encoding = time_eager(lambda: runtime.run([passes.encode]), device, repeats)
    stepping = time_eager(lambda: runtime.run([passes.step]), device, repeats)
    shape = Shape.of(label, model.config.transformer)
    encode_flops, step_flops = pass_flops(shape, context, context), pass_flops(shape, GAP, context + GAP, GAP)
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


@torch.inference_mode()
def time_steps(runtime: Runtime, repeats: int) -> list[StepPoint]:
    """Steps of every gap behind every context, in turn, so that all see the same machine."""
    model, device = runtime.loaded.model, runtime.device
    shape = Shape.of("embedded", model.config.transformer)
    loads = [(context, gap) for context in CONTEXTS for gap in GAPS]
    calls = {load: Passes.make(runtime, *load).step for load in loads}
    samples: dict[tuple[int, int], list[float]] = {load: [] for load in loads}
    for _ in range(repeats):
        for load, step in calls.items():
            samples[load].append(time_eager(lambda step=step: runtime.run([step]), device, 1).median_s)  # type: ignore[misc]
    return [
        StepPoint(
            context,
            gap,
            summarize(samples[context, gap]),
            pass_flops(shape, gap, context + gap, gap),
            count_bytes(model, context),
        )
        for context, gap in loads
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
    answers = [drain(denoise(runtime, request))]
    timing = time_eager(lambda: answers.append(drain(denoise(runtime, request))), runtime.device, repeats)
    stats = answers[-1].stats
    assert stats.cached_context, "the context is warm"
    return FillResult(f"{label}: fill", timing, stats.tokens, stats.steps)


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


def measure(repeats: int) -> dict[str, Any]:
    """The record of everything, on the device that the engine would choose."""
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
        results += time_model(chosen, context, repeats, ceilings.products(dtype), label)
        for steps in (None, FEW_STEPS):
            fills.append(time_fill(chosen, context, steps, max(5, repeats // 20), label))
    return {
        "machine": describe(runtime.device) | {"dtype": dtype, "parameters": runtime.loaded.parameters},
        "ceilings": ceilings,
        "results": results,
        "fills": fills,
        "points": time_steps(with_model(runtime, wide), max(5, repeats // 4)),
    }


def main(
    threads: Annotated[int, typer.Option(help="of the CPU")] = 1,
    repeats: Annotated[int, typer.Option(help="timed steps")] = MIN_REPEATS,
    json_file: Annotated[Path | None, typer.Option("--json", help="write the figures here")] = None,
) -> None:
    """The embedded model's encoding, step and fill on this machine."""
    stop_unless_green("test_packed.py", "test_choice.py", folder="engine")
    torch.set_num_threads(threads)
    record = measure(repeats)
    machine, ceilings = record["machine"], record["ceilings"]
    rates = ", ".join(f"{name} {rate / 1e9:.0f} GFLOP/s" for name, rate in ceilings.product_flops_per_s.items())
    title = f"{machine['device']}, {threads} thread(s): copy {ceilings.copy_bytes_per_s / 1e9:.1f} GB/s, {rates}"
    Console(width=130).print(draw_table(record["results"], record["fills"], title))
    if json_file is not None:
        write_record(json_file, record)


if __name__ == "__main__":
    typer.run(main)
