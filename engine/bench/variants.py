"""Measures samplers, caches, length policies and the dial, and prints their tables.

    python engine/bench/variants.py samplers --tasks FILE.jsonl.gz [--num-tasks 60]
    python engine/bench/variants.py caches
    python engine/bench/variants.py lengths --tasks FILE.jsonl.gz
    python engine/bench/variants.py dial --tasks FILE.jsonl.gz

Tasks are JSON lines with prefix, middle and suffix. Quality is that of the embedded model; families with random weights
have none, and their numbers say only what a variant costs. Times are CPU time of one thread, so that a busy machine
shows what an idle one would.
"""

import gzip
import json
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import chain
from pathlib import Path
from typing import Annotated, Final

import torch
import typer

from midfill_engine import hub
from midfill_engine.caches import CACHES
from midfill_engine.denoise import denoise
from midfill_engine.errors import RequestError
from midfill_engine.lengths import LENGTHS
from midfill_engine.models.packed import Pass, Result
from midfill_engine.models.registry import FAMILIES
from midfill_engine.runtime import Runtime, load_runtime
from midfill_engine.samplers import SAMPLERS
from midfill_engine.wire import InfillRequest, InfillResponse

RANDOM_FAMILIES: Final = ("llada", "dream", "dreamon", "sdar")
Tasks = Annotated[Path, typer.Option(help="JSON lines, maybe gzipped, with prefix, middle, suffix.")]
NumTasks = Annotated[int, typer.Option(min=1)]

app = typer.Typer(add_completion=False, no_args_is_help=True)


@dataclass(frozen=True)
class Task:
    prefix: str
    middle: str
    suffix: str


@dataclass
class Cost:
    """Sums over fills. `exact` counts fills equal to the text that was cut out, `similar` adds up their likeness."""

    num_fills: int = 0
    tokens: int = 0
    steps: int = 0
    forwards: int = 0
    rows: int = 0
    seconds: float = 0.0
    exact: int = 0
    similar: float = 0.0

    @property
    def forwards_per_token(self) -> float:
        return self.forwards / max(1, self.tokens)

    @property
    def tokens_per_s(self) -> float:
        return self.tokens / self.seconds


class Counting(Runtime):
    """A runtime that counts the rows of its forwards."""

    def run(self, passes: list[Pass]) -> list[Result]:
        self.counter.append(sum(len(step.ids) for step in passes))
        return super().run(passes)

    @property
    def counter(self) -> list[int]:
        found: list[int] = self.__dict__.setdefault("_counter", [])
        return found


def counting(runtime: Runtime) -> Counting:
    return Counting(**{name: getattr(runtime, name) for name in Runtime.__dataclass_fields__})


def read_tasks(path: Path, num_tasks: int) -> list[Task]:
    """Single lines of the validation split where a file has splits, evenly drawn."""
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines if line.strip()]
    rows = [row for row in rows if row.get("split", "validation") == "validation" and row.get("kind") != "multi"]
    every = max(1, len(rows) // num_tasks)
    return [Task(row["prefix"], row["middle"], row["suffix"]) for row in rows[::every]][:num_tasks]


def finish(steps: object) -> InfillResponse:
    while True:
        try:
            next(steps)  # type: ignore[call-overload]
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]


def measure(runtime: Counting, tasks: list[Task], *, is_oracle: bool = False, **variants: str | float | None) -> Cost:
    """Greedy fills of `tasks`. With `is_oracle` the true number of tokens is given, else the policy decides."""
    cost, options = Cost(), {name: variants[name] for name in ("sampler", "quality") if variants.get(name) is not None}
    cache, lengths = (None if variants.get(name) is None else str(variants[name]) for name in ("cache", "lengths"))
    for task in tasks:
        num_tokens = max(1, len(runtime.loaded.tokenizer.encode(task.middle)))
        hole = {"max_tokens": min(num_tokens, runtime.loaded.config.max_hole)} if is_oracle else {}
        segments = [{"text": task.prefix}, {"hole": hole}, {"text": task.suffix}]
        request = InfillRequest.model_validate({"segments": segments, "tag": "python", **options})
        runtime.contexts.clear()
        runtime.counter.clear()
        started_s = time.process_time()
        response = finish(denoise(runtime, request, cache=cache, lengths="fixed" if is_oracle else lengths))
        cost.seconds += time.process_time() - started_s
        text = response.holes[0].text
        cost.num_fills += 1
        cost.tokens += response.stats.tokens
        cost.steps += response.stats.steps
        cost.forwards += response.stats.forwards
        cost.rows += sum(runtime.counter)
        cost.exact += text == task.middle
        cost.similar += SequenceMatcher(None, text, task.middle, autojunk=False).ratio()
    return cost


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
    """Every sampler on the embedded model (own length) and on tiny random ones (24 tokens)."""
    torch.set_num_threads(1)
    drawn, embedded = read_tasks(tasks, num_tasks), counting(load_runtime("embedded", "cpu"))
    measure(embedded, drawn[:2])
    with tempfile.TemporaryDirectory() as folder:
        families = [random_runtime(family, Path(folder)) for family in RANDOM_FAMILIES]
        titles = ("sampler", "forwards/token", "tokens/s", "exact", "similarity", *RANDOM_FAMILIES)
        print_table(titles, (sampler_row(name, embedded, drawn, families) for name in SAMPLERS))


def sampler_row(name: str, embedded: Counting, drawn: list[Task], families: list[Counting]) -> tuple[str, ...]:
    cost = measure(embedded, drawn, sampler=name)
    return (
        name,
        f"{cost.forwards_per_token:.2f}",
        f"{cost.tokens_per_s:.0f}",
        f"{cost.exact / cost.num_fills:.0%}",
        f"{cost.similar / cost.num_fills:.2f}",
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
def caches() -> None:
    """What each cache computes and changes, on tiny random checkpoints (24 tokens, one a step)."""
    torch.set_num_threads(1)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for family in ("llada", "dream", "sdar"):
            runtime = random_runtime(family, Path(folder))
            plain = fills_of(runtime, "none")
            for name in CACHES:
                cache = CACHES.find(name)
                if runtime.family.attention not in cache.attentions:
                    continue
                cost = measure(runtime, plain_tasks(), cache=name, quality=1.0, is_oracle=True)
                same = [one == other for one, other in zip(fills_of(runtime, name), plain, strict=True)]
                promise = " (exact)" if runtime.family.attention in cache.exact_for else ""
                shown = f"{sum(same) / len(same):.0%}{promise}"
                rows.append(
                    (family, name, f"{cost.rows / cost.steps:.0f}", f"{1000 * cost.seconds / cost.steps:.1f}", shown)
                )
    print_table(("family", "cache", "rows a step", "ms a step", "same tokens"), rows)


def fills_of(runtime: Counting, cache: str) -> list[float]:
    """The characters of all fills: with byte tokens as many as there are tokens."""
    found: list[float] = []
    for task in plain_tasks():
        segments = [{"text": task.prefix}, {"hole": {"max_tokens": 24, "min_tokens": 24}}, {"text": task.suffix}]
        request = InfillRequest.model_validate({"segments": segments, "quality": 1.0})
        fill = finish(denoise(runtime, request, cache=cache, lengths="fixed")).holes[0]
        found += [ord(character) for character in fill.text[:24].ljust(24)]
    return found


@app.command()
def lengths(tasks: Tasks, num_tasks: NumTasks = 60) -> None:
    """Every length policy on the embedded model."""
    torch.set_num_threads(1)
    drawn, embedded = read_tasks(tasks, num_tasks), counting(load_runtime("embedded", "cpu"))
    names = (*(name for name in LENGTHS if not LENGTHS.find(name).may_expand), "oracle")
    titles = ("length", "forwards a fill", "ms a fill", "exact", "similarity")
    print_table(titles, (length_row(name, embedded, drawn) for name in names))


def length_row(name: str, embedded: Counting, drawn: list[Task]) -> tuple[str, ...]:
    cost = measure(embedded, drawn, lengths=name, is_oracle=name == "oracle")
    return (
        name,
        f"{cost.forwards / cost.num_fills:.1f}",
        f"{1000 * cost.seconds / cost.num_fills:.0f}",
        f"{cost.exact / cost.num_fills:.0%}",
        f"{cost.similar / cost.num_fills:.2f}",
    )


@app.command()
def dial(tasks: Tasks, num_tasks: NumTasks = 60, sampler: str = "threshold") -> None:
    """The dial of a sampler on the embedded model."""
    torch.set_num_threads(1)
    drawn, embedded = read_tasks(tasks, num_tasks), counting(load_runtime("embedded", "cpu"))
    titles = ("quality", "forwards/token", "ms a fill", "exact", "similarity")
    print_table(
        titles, (dial_row(quality, embedded, drawn, sampler) for quality in (0.0, 0.2, 0.4, 0.6, 0.8, 0.9, 1.0))
    )


def dial_row(quality: float, embedded: Counting, drawn: list[Task], sampler: str) -> tuple[str, ...]:
    cost = measure(embedded, drawn, sampler=sampler, quality=quality)
    return (
        f"{quality:.1f}",
        f"{cost.forwards_per_token:.2f}",
        f"{1000 * cost.seconds / cost.num_fills:.0f}",
        f"{cost.exact / cost.num_fills:.0%}",
        f"{cost.similar / cost.num_fills:.2f}",
    )


if __name__ == "__main__":
    app()
