"""Times whole steps and whole fills of the fused model on random weights, against the floor and the published loops.

    PYTHONPATH=engine:kernels python -m bench.steps [--shape 7B] [--precision bf16] [--json FILE]

Random weights and a fixed schedule of k tokens a forward: a figure of speed, and no claim of quality. The context is
all before the gap, encoded once. With `TRITON_INTERPRET=1` on a CPU all runs at toy size; its times mean nothing.
"""

import gc
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Final

import torch
import typer
from rich.console import Console
from rich.table import Table
from torch import Tensor

from bench.ceilings import Ceilings, measure_ceilings
from bench.fused import make_random
from bench.green import concerning, find_red
from bench.measure import MIN_REPEATS, Clock, Timing, describe, time_eager, write_record
from bench.plain import PlainModel, fill_plainly, fill_with_dual_cache
from bench.shapes import SHAPES, TOY, pass_flops, step_floor
from midfill_engine.models.fused import FORMAT_OF, PRECISIONS, Batch, FusedModel, Precision
from midfill_kernels.gap_attention import GapSequence
from midfill_kernels.launch import is_interpreted
from midfill_kernels.loop import StepLoop
from midfill_kernels.quantize import Format
from midfill_kernels.settle import open_fills

MASK: Final = 1  # any fixed number serves: weights are random
NEVER: Final = 2.0  # a threshold no confidence reaches: the schedule alone decides
TESTS: Final = (
    "test_fused_step.py",
    "test_norm.py",
    "test_matmul.py",
    "test_rotary.py",
    "test_gap_attention.py",
    "test_context_attention.py",
    "test_head.py",
    "test_settle.py",
    "test_loop.py",
)


@dataclass(frozen=True)
class Load:
    """`batch` gaps of `gap` rows, each behind `context` tokens."""

    batch: int
    context: int
    gap: int

    @property
    def label(self) -> str:
        return f"{self.batch} x {self.gap} behind {self.context}"


@dataclass(frozen=True)
class StepResult:
    """One step's time, its floor, and the fraction of the copy bandwidth that its reads make."""

    shape: str
    precision: str
    load: Load
    step: Timing
    floor_s: float
    bandwidth_fraction: float
    tokens_per_s: dict[int, float]


@dataclass(frozen=True)
class FillResult:
    """A whole fill: encoding, all steps, and the loops it is compared with, each over the same weights and schedule."""

    shape: str
    precision: str
    load: Load
    per_step: int
    encode: Timing
    steps_s: float
    fill: Timing
    loop_efficiency: float
    encode_fraction: float
    others: dict[str, Timing]


STEP_LOADS: Final = (
    Load(1, 2048, 32),
    Load(1, 2048, 64),
    Load(1, 2048, 256),
    Load(1, 512, 64),
    Load(1, 8192, 64),
    Load(4, 2048, 64),
    Load(16, 2048, 64),
)
CHANGING: Final = ("ids", "masked", "confidence", "seeds", "steps", "done")
TOY_LOAD: Final = Load(2, 20, 8)
TOKENS_A_FORWARD: Final = (2, 4, 8, 16)


@dataclass(frozen=True)
class Opened:
    """A model with a batch in it, and the state that the batch began with."""

    model: FusedModel
    batch: Batch
    start: dict[str, Tensor]

    def restore(self) -> None:
        for name, value in self.start.items():
            getattr(self.batch.fills, name).copy_(value)


def open_load(model: FusedModel, load: Load, num_steps: int) -> Opened:
    """Masks every row of every gap and lays the contexts behind each other in the cache."""
    device = model.embedding.device
    ids = [torch.full((load.gap,), MASK) for _ in range(load.batch)]
    masked = [torch.ones(load.gap, dtype=torch.bool) for _ in range(load.batch)]
    fills = open_fills(ids, masked, [num_steps] * load.batch, [NEVER] * load.batch, list(range(load.batch)), device)
    positions = torch.arange(load.context, load.context + load.gap).repeat(load.batch)[None]
    sequences = [GapSequence(load.gap, index * load.context, load.context) for index in range(load.batch)]
    start: dict[str, Tensor] = {name: getattr(fills, name).clone() for name in CHANGING}
    return Opened(model, model.open_batch(fills, positions, sequences), start)


def measure_step(model: FusedModel, load: Load, clock: Clock, ceilings: Ceilings) -> StepResult:
    """Times a step as one graph. Its weights are far larger than any cache, so nothing is flushed."""
    opened = open_load(model, load, num_steps=10**6)
    timing = clock.time([lambda: model.step(opened.batch)])
    floor = step_floor(model.shape, model.precision, load.batch, load.context, load.gap)
    rate = ceilings.products("float8" if model.precision == "fp8" else "bfloat16")
    return StepResult(
        model.shape.name,
        model.precision,
        load,
        timing,
        floor.seconds(ceilings.copy_bytes_per_s, rate),
        floor.total_bytes / ceilings.copy_bytes_per_s / timing.median_s,
        {k: load.batch * k / timing.median_s for k in TOKENS_A_FORWARD},
    )


def measure_fill(
    model: FusedModel, load: Load, per_step: int, repeats: int, ceilings: Ceilings, step_s: float
) -> FillResult:
    """Times encoding and the whole loop from the host; `step_s` is one replay's time."""
    device, num_steps = model.embedding.device, -(-load.gap // per_step)
    contexts = torch.randint(2, model.shape.vocabulary, (load.batch * load.context,), device=device)
    positions = torch.arange(load.context).repeat(load.batch)[None].to(device)
    slots = torch.arange(len(contexts), device=device)
    opened = open_load(model, load, num_steps)
    loop = StepLoop(lambda: discard(model.step(opened.batch)), opened.batch.fills.done)
    loop.capture(opened.restore)

    def encode() -> Tensor:
        return model.encode(contexts, positions, [load.context] * load.batch, slots)

    def fill() -> None:
        encode()
        opened.restore()
        loop.run(num_steps)

    def run_loop() -> None:
        opened.restore()
        loop.run(num_steps)

    encoding, steps, whole = (time_eager(call, device, repeats) for call in (encode, run_loop, fill))
    rate = ceilings.products("float8" if model.precision == "fp8" else "bfloat16")
    return FillResult(
        model.shape.name,
        model.precision,
        load,
        per_step,
        encoding,
        steps.median_s,
        whole,
        num_steps * step_s / steps.median_s,
        load.batch * pass_flops(model.shape, load.context, load.context) / rate / encoding.median_s,
        {},
    )


def discard(_: object) -> None:
    """A step's proposals are settled already; the loop needs none of them."""


def compare_loops(model: FusedModel, load: Load, per_step: int, repeats: int) -> Iterator[tuple[str, Timing]]:
    """The published loops, eager, and the plain one compiled, for one gap of the load; the slowest last."""
    assert load.batch == 1 and model.precision == "bf16"
    plain, device = PlainModel(model), model.embedding.device
    contexts = torch.randint(2, model.shape.vocabulary, (load.context,), device=device)
    ids = torch.cat((contexts, torch.full((load.gap,), MASK, device=device)))
    masked = torch.arange(len(ids), device=device) >= load.context
    loops: dict[str, Callable[[], Tensor]] = {
        "plain loop": lambda: fill_plainly(plain, ids, masked, per_step),
        "dual cache": lambda: fill_with_dual_cache(plain, ids, masked, per_step),
    }
    if device.type == "cuda":
        compiled = torch.compile(plain.hidden, dynamic=False)
        loops["plain loop, torch.compile"] = lambda: fill_plainly(plain, ids, masked, per_step, hidden=compiled)
    with torch.inference_mode():
        for name, call in loops.items():
            yield name, time_eager(call, device, repeats)


@dataclass(frozen=True)
class BitCheck:
    """Whether two ways to compute the same rows gave the same bits."""

    shape: str
    precision: str
    what: str
    holds: bool


def check_bits(model: FusedModel, load: Load) -> list[BitCheck]:
    """G24: a gap alone and beside others; a step run directly and as a graph."""
    alone = open_load(model, replace(load, batch=1), 4)
    packed = open_load(model, load, 4)
    first, together = model.step(alone.batch), model.step(packed.batch)
    rows = slice(0, load.gap)
    is_same = all(
        torch.equal(getattr(first, name), getattr(together, name)[rows]) for name in ("ids", "probability", "entropy")
    )
    checks = [BitCheck(model.shape.name, model.precision, f"1 and {load.batch} gaps", is_same)]
    if model.embedding.is_cuda:
        loop = StepLoop(lambda: discard(model.step(packed.batch)), packed.batch.fills.done)
        loop.capture(packed.restore)
        loop.run(1)
        replayed = packed.batch.fills.confidence.clone()
        packed.restore()
        model.step(packed.batch)
        is_same = torch.equal(replayed, packed.batch.fills.confidence)
        checks.append(BitCheck(model.shape.name, model.precision, "graph and direct", is_same))
    return checks


def formats_of(precision: Precision) -> list[Format]:
    """What a step multiplies by; the head stays plain under int4."""
    return [FORMAT_OF[precision], *(["plain"] if precision == "int4" else [])]  # type: ignore[list-item]


def draw_tables(steps: list[StepResult], fills: list[FillResult], checks: list[BitCheck], title: str) -> list[Table]:
    step_table = Table(
        "shape", "precision", "load", "step", "p95", "floor", "of the bandwidth", "tok/s at k=8", title=title
    )
    for result in steps:
        step_table.add_row(
            result.shape,
            result.precision,
            result.load.label,
            f"{result.step.median_s * 1e3:.3f} ms",
            f"{result.step.p95_s * 1e3:.3f} ms",
            f"{result.floor_s * 1e3:.3f} ms",
            f"{result.bandwidth_fraction:.0%}",
            f"{result.tokens_per_s[8]:.0f}",
        )
    fill_table = Table("shape", "precision", "load", "k", "encode", "steps", "fill", "loop", "others (times ours)")
    for fill in fills:
        others = [f"{name} {timing.median_s / fill.fill.median_s:.1f}x" for name, timing in fill.others.items()]
        fill_table.add_row(
            fill.shape,
            fill.precision,
            fill.load.label,
            str(fill.per_step),
            f"{fill.encode.median_s * 1e3:.1f} ms",
            f"{fill.steps_s * 1e3:.1f} ms",
            f"{fill.fill.median_s * 1e3:.1f} ms",
            f"{fill.loop_efficiency:.0%}",
            ", ".join(others),
        )
    check_table = Table("shape", "precision", "same bits", "")
    for check in checks:
        check_table.add_row(check.shape, check.precision, check.what, "yes" if check.holds else "NO")
    return [step_table, fill_table, check_table]


@dataclass
class Record:
    """All that was measured so far, written to `path` after every part: a run that is cut short keeps it."""

    path: Path | None
    machine: dict[str, Any]
    ceilings: Ceilings
    steps: list[StepResult] = field(default_factory=list)
    fills: list[FillResult] = field(default_factory=list)
    bits: list[BitCheck] = field(default_factory=list)
    red: dict[str, list[str]] = field(default_factory=dict)

    def write(self) -> None:
        if self.path is not None:
            write_record(self.path, {key: value for key, value in vars(self).items() if key != "path"})


def measure_shape(model: FusedModel, repeats: int, record: Record, *, toy: bool, rivals: bool = True) -> None:
    """All figures of one model, into `record`: steps, own fills, bits, and last the rivals, which take longest."""
    loads = (TOY_LOAD,) if toy else STEP_LOADS
    clock = Clock(model.embedding.device, repeats, flushes=False)
    steps = [measure_step(model, load, clock, record.ceilings) for load in loads]
    record.steps += steps
    record.write()
    times = {result.load: result.step.median_s for result in steps}
    single = [replace(TOY_LOAD, batch=1)] if toy else [load for load in loads if load.batch == 1 and load.gap == 64]
    first = len(record.fills)
    for load, per_step in product(single, (1, 8)):
        step_s = times.get(load) or steps[0].step.median_s
        record.fills.append(measure_fill(model, load, per_step, max(2, repeats // 10), record.ceilings, step_s))
        record.write()
    record.bits += check_bits(model, TOY_LOAD if toy else Load(16, 2048, 64))
    record.write()
    for fill in record.fills[first:] if rivals and model.precision == "bf16" else ():
        if toy or fill.load.context == 2048 or (fill.load.context == 8192 and fill.per_step == 8):
            for name, timing in compare_loops(model, fill.load, fill.per_step, max(3, repeats // 400)):
                fill.others[name] = timing
                record.write()


@torch.inference_mode()
def run(shapes: list[str], precisions: list[str], repeats: int, json_file: Path | None, rivals: bool = True) -> int:
    """Prints the tables, rows with red tests left out; the exit code is 1 if a test or a comparison of bits failed."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    toy = device.type == "cpu"
    if toy and not is_interpreted():
        sys.exit("There is no GPU here: set TRITON_INTERPRET=1 to see the bench run at toy size.")
    found = find_red(*TESTS)
    size: dict[str, int] = {"copy_bytes": 2**24, "side": 256} if toy else {"copy_bytes": 2**32, "side": 8192}
    record = Record(json_file, describe(device), measure_ceilings(device, repeats=20, **size))
    num_slots = max(load.batch * load.context for load in ((TOY_LOAD,) if toy else STEP_LOADS))
    for shape, precision in product([TOY] if toy else [SHAPES[name] for name in shapes], PRECISIONS):
        red = concerning(found, *formats_of(precision))
        if precision in precisions and red:
            record.red[f"{shape.name} {precision}"] = red
            record.write()
        elif precision in precisions:
            model = make_random(shape, precision, num_slots, device, torch.float32 if toy else torch.bfloat16)
            measure_shape(model, 2 if toy else repeats, record, toy=toy, rivals=rivals)
            del model
            gc.collect()
            if device.type == "cuda":
                torch.cuda.empty_cache()
    title = f"{record.machine['device']}: copy {record.ceilings.copy_bytes_per_s / 1e12:.3f} TB/s"
    title += " (interpreted: times mean nothing)" if toy else ""
    for table in draw_tables(record.steps, record.fills, record.bits, title):
        Console(width=150).print(table)
    for label, tests in record.red.items():
        print(f"{label}: not timed, red are {', '.join(tests)}")
    return 0 if all(check.holds for check in record.bits) and not record.red else 1


def main(
    shape: Annotated[list[str] | None, typer.Option(help=f"any of {', '.join(SHAPES)}")] = None,
    precision: Annotated[list[str] | None, typer.Option(help=f"any of {', '.join(PRECISIONS)}")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="write the figures here")] = None,
    repeats: Annotated[int, typer.Option(help="timed steps")] = MIN_REPEATS,
    rivals: Annotated[bool, typer.Option(help="the published loops, too, which take minutes")] = True,
) -> None:
    """Steps and fills of the shapes, as fractions of the machine's ceilings."""
    for name, known in ((shape, list(SHAPES)), (precision, list(PRECISIONS))):
        if set(name or ()) - set(known):
            sys.exit(f"Known names: {', '.join(known)}.")
    sys.exit(run(shape or ["7B", "8B", "0.5B"], precision or ["bf16", "fp8"], repeats, json_file, rivals))


if __name__ == "__main__":
    typer.run(main)
