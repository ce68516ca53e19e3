"""Times every operator against the machine's ceilings and torch's best; prints a table and writes JSON.

    python -m bench gpu.operators [--only head] [--json FILE]

On a GPU: real shapes, medians of 200 graph replays with the caches flushed. With `TRITON_INTERPRET=1` on a CPU: toy
shapes, a few runs, times that mean nothing. A case whose tests fail is not timed, and the exit code is 1.
"""

import sys
from dataclasses import dataclass
from typing import Annotated, Any, Final

import torch
import typer
from rich.console import Console
from rich.table import Table

from bench.gpu.cases import CASES, OURS, Case
from bench.gpu.ceilings import Ceilings, measure_ceilings
from bench.green import find_red
from bench.measure import MIN_REPEATS, Clock, JsonFile, Timing, choose_device, describe, note_toy, write_record

TOY_REPEATS: Final = 3
COMPILED: Final = ("FlexAttention", "torch.compile")  # rivals that take minutes before they run


@dataclass(frozen=True)
class Result:
    """A case's timings by name. `fraction` is the floor's time over ours."""

    case: str
    floor_s: float
    fraction: float
    timings: dict[str, Timing]

    def ratio(self, name: str) -> float:
        """The time of `name` as a multiple of ours."""
        return self.timings[name].median_s / self.timings[OURS].median_s


def run_case(case: Case, clock: Clock, ceilings: Ceilings, *, rivals: bool = True) -> Result:
    sets = [case.make() for _ in range(case.sets)]
    names = [name for name in sets[0] if rivals or name not in COMPILED]
    timings = {name: clock.time([calls[name] for calls in sets]) for name in names}
    floor_s = max(case.num_bytes / ceilings.copy_bytes_per_s, case.flops / ceilings.products(case.product))
    return Result(f"{case.operator}: {case.label}", floor_s, floor_s / timings[OURS].median_s, timings)


def draw_table(results: list[Result], title: str) -> Table:
    table = Table("operator", "ours", "of the floor", "others (times ours)", title=title)
    for result in results:
        others = [f"{name} {result.ratio(name):.2f}x" for name in result.timings if name != OURS]
        ours = result.timings[OURS]
        table.add_row(result.case, f"{ours.median_s * 1e6:.1f} us", f"{result.fraction:.0%}", ", ".join(others))
    return table


def main(
    only: Annotated[list[str] | None, typer.Option(help=f"groups of cases: {', '.join(CASES)}")] = None,
    json_file: JsonFile = None,
    repeats: Annotated[int, typer.Option(help="timed calls a case on a GPU")] = MIN_REPEATS,
    rivals: Annotated[bool, typer.Option(help="those that torch compiles, too")] = True,
) -> None:
    """Measures the ceilings, then every operator as a fraction of them and against torch's best."""
    device = choose_device()
    unknown = set(only or ()) - set(CASES)
    if unknown:
        sys.exit(f"There is no group named {', '.join(sorted(unknown))}; known: {', '.join(CASES)}.")
    is_toy = device.type == "cpu"
    clock = Clock(device, TOY_REPEATS if is_toy else repeats, flushes=not is_toy)
    size: dict[str, int] = {"copy_bytes": 2**24, "side": 256} if is_toy else {"copy_bytes": 2**32, "side": 8192}
    facts: dict[str, Any] = describe(device)
    ceilings = measure_ceilings(device, repeats=20, **size)
    record: dict[str, Any] = {"machine": facts, "ceilings": ceilings, "results": [], "red": {}}
    for name in only or CASES:
        for case in CASES[name](device, is_toy):
            red = sorted(find_red(case.test))
            if red:
                record["red"][f"{case.operator}: {case.label}"] = red
            else:
                record["results"].append(run_case(case, clock, ceilings, rivals=rivals))
            if json_file is not None:
                write_record(json_file, record)
        if not is_toy:
            torch.cuda.empty_cache()
    rates = ", ".join(f"{name} {rate / 1e12:.2f} TFLOP/s" for name, rate in ceilings.product_flops_per_s.items())
    title = f"{facts['device']}: copy {ceilings.copy_bytes_per_s / 1e12:.3f} TB/s, {rates}"
    console = Console(width=150)
    console.print(draw_table(record["results"], title + note_toy(is_toy)))
    for label, tests in record["red"].items():
        console.print(f"{label}: not timed, red are {', '.join(tests)}", markup=False)
    sys.exit(bool(record["red"]))


if __name__ == "__main__":
    typer.run(main)
