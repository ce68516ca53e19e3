"""Measures samplers, length policies and the dial, and prints their tables.

    python engine/bench/variants.py samplers --tasks FILE.jsonl.gz [--tasks FILE.jsonl.gz] [--num-tasks 100]
    python engine/bench/variants.py lengths --tasks FILE.jsonl.gz
    python engine/bench/variants.py dial --tasks FILE.jsonl.gz

Tasks are JSON lines with prefix, middle and suffix. Quality is that of the embedded model; families with random weights
have none, and their numbers say only what a variant costs. Times are CPU time of one thread, so that a busy machine
shows what an idle one would.
"""

import tempfile
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Annotated, Final

import torch
import typer
from fills import Cost, Counting, Task, counting, difference, interval, measure, rate, read_tasks

from midfill_engine.errors import RequestError
from midfill_engine.families import FAMILIES
from midfill_engine.lengths import LENGTHS
from midfill_engine.loading import hub
from midfill_engine.loading.runtime import load_runtime
from midfill_engine.samplers import SAMPLERS

RANDOM_FAMILIES: Final = ("llada", "dream", "dreamon", "sdar")
DIAL: Final = (0.0, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)
NEARLY_ONE_A_STEP: Final = 0.9
MAX_CHARACTERS: Final = 160  # of a gap
Tasks = Annotated[list[Path], typer.Option(help="JSON lines, maybe gzipped, with prefix, middle, suffix; repeat.")]
NumTasks = Annotated[int, typer.Option(min=1, help="Of every file.")]

app = typer.Typer(add_completion=False, no_args_is_help=True)


def prepare(tasks: list[Path], num_tasks: int) -> tuple[Counting, list[Task]]:
    """The embedded model, warmed up, and what it is to fill; says how many that are."""
    torch.set_num_threads(1)
    drawn, embedded = read_tasks(tasks, num_tasks, MAX_CHARACTERS), counting(load_runtime("embedded", "cpu"))
    measure(embedded, drawn[:2])
    print(f"{len(drawn)} gaps\n")
    return embedded, drawn


def random_runtime(family: str, folder: Path) -> Counting:
    hub.make_random(folder / family, FAMILIES.find(family))
    return counting(load_runtime(str(folder / family), "cpu"))


def plain_tasks() -> list[Task]:
    """For random weights, which make nonsense of anything: text of some length around a hole of 24 tokens."""
    return [Task("x = 1\n" * (4 + number), "y" * 24, "z = 2\n" * 6) for number in range(4)]


def print_table(titles: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> None:
    """Each row as soon as it is known."""
    for row in chain((titles, ("---",) * len(titles)), rows):
        print("| " + " | ".join(row) + " |", flush=True)


@app.command()
def samplers(tasks: Tasks, num_tasks: NumTasks = 60) -> None:
    """Every sampler on the embedded model with the true lengths, and on tiny random ones (24 tokens)."""
    embedded, drawn = prepare(tasks, num_tasks)
    with tempfile.TemporaryDirectory() as folder:
        families = [random_runtime(family, Path(folder)) for family in RANDOM_FAMILIES]
        titles = ("sampler", "forwards/token", "tokens/s", "exact", "similarity", "nats/token", *RANDOM_FAMILIES)
        print_table(titles, (sampler_row(name, embedded, drawn, families) for name in SAMPLERS))


def sampler_row(name: str, embedded: Counting, drawn: list[Task], families: list[Counting]) -> tuple[str, ...]:
    cost = measure(embedded, drawn, sampler=name, quality=NEARLY_ONE_A_STEP, is_oracle=True, rates=True)
    return (
        name,
        f"{cost.forwards_per_token:.2f}",
        f"{cost.tokens_per_s:.0f}",
        percent(cost.exact),
        shown(cost.similar),
        shown(cost.nats),
        *(random_cell(runtime, name) for runtime in families),
    )


def random_cell(runtime: Counting, sampler: str) -> str:
    """Forwards a token and tokens a second."""
    try:
        cost = measure(runtime, plain_tasks(), sampler=sampler, is_oracle=True)
    except RequestError:
        return "-"
    return f"{cost.forwards_per_token:.2f} / {cost.tokens_per_s:.0f}"


@app.command()
def lengths(tasks: Tasks, num_tasks: NumTasks = 60) -> None:
    """Every length policy on the embedded model."""
    embedded, drawn = prepare(tasks, num_tasks)
    names = (*(name for name in LENGTHS if not LENGTHS.find(name).may_expand), "oracle")
    titles = ("length", "tokens a fill", "forwards a fill", "ms a fill", "exact", "similarity", "nats/token")
    print_table(titles, (length_row(name, embedded, drawn) for name in names))


def length_row(name: str, embedded: Counting, drawn: list[Task]) -> tuple[str, ...]:
    cost = measure(embedded, drawn, lengths=name, is_oracle=name == "oracle", rates=True)
    return (
        name,
        f"{cost.tokens / cost.num_fills:.1f}",
        f"{cost.forwards / cost.num_fills:.1f}",
        f"{cost.ms_a_fill:.0f}",
        percent(cost.exact),
        shown(cost.similar),
        shown(cost.nats),
    )


@app.command()
def dial(tasks: Tasks, num_tasks: NumTasks = 60, sampler: str = "threshold", own: bool = False) -> None:
    """The dial of a sampler on the embedded model, with the true lengths or its own; the last row is one a step."""
    embedded, drawn = prepare(tasks, num_tasks)
    print(f"the text that was cut out: {shown([rate(embedded, task, task.middle) for task in drawn])} nats/token\n")
    titles = ("quality", "forwards/token", "tokens/s", "ms a fill", "exact", "similarity", "to the first row")
    first: list[Cost] = []

    def row(quality: float) -> tuple[str, ...]:
        cost = measure(embedded, drawn, sampler=sampler, quality=quality, is_oracle=not own, rates=True)
        first.append(cost)
        return dial_row(quality, cost, first[0])

    print_table((*titles, "nats/token"), (row(quality) for quality in sorted(DIAL, reverse=True)))


def dial_row(quality: float, cost: Cost, first: Cost) -> tuple[str, ...]:
    return (
        f"{quality:.1f}",
        f"{cost.forwards_per_token:.2f}",
        f"{cost.tokens_per_s:.0f}",
        f"{cost.ms_a_fill:.0f}",
        percent(cost.exact),
        shown(cost.similar),
        "{:+.2f} ({:+.2f} to {:+.2f})".format(*difference(cost.similar, first.similar)),
        shown(cost.nats),
    )


def shown(values: list[float]) -> str:
    """The mean and its interval."""
    return "{:.2f} ({:.2f} to {:.2f})".format(*interval(values))


def percent(values: list[float]) -> str:
    return "{:.1%} ({:.1%} to {:.1%})".format(*interval(values))


if __name__ == "__main__":
    app()
