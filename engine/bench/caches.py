"""What each cache of a bidirectional model saves and changes: its fills beside those of the exact decode.

    PYTHONPATH=engine:kernels python -m bench.caches WEIGHTS --tasks FILE.jsonl.gz [--num-tasks 60] [--json FILE]

WEIGHTS are bench.bidirectional's. Lengths are the true ones. `kept` fills after a request for the same document before
an edit: the line above the hole was not there yet. Every figure is of the second request then. Rows do not depend on a
model's size; what they cost at a published one's is bench.laptop's.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from typing import Annotated, Final

import torch
import typer

from bench.bidirectional import open_bidirectional
from bench.fills import Counting, Task, ask, counting, difference, interval, read_tasks
from bench.laptop import CPU
from bench.measure import describe, write_record
from midfill_engine.caches import CACHES
from midfill_engine.denoising.denoise import denoise, drain
from midfill_engine.wire import InfillRequest

RATES: Final = (1, 4)
MAX_CHARACTERS: Final = 400


@dataclass(frozen=True)
class Row:
    """Over all tasks. `same` are fills that are the exact decode's to the character, `like` difflib's ratio to it;
    `right` and `similar` are to the text that was cut out, `change` how far `similar` is from the exact decode's.
    """

    cache: str
    tokens_a_step: int
    rows_a_fill: float
    cpu_ms: float
    same: float
    like: float
    right: float
    similar: float
    change: tuple[float, float, float]


def before_edit(task: Task) -> Task:
    """The same document without the last line of what stands above the hole."""
    lines = task.prefix.splitlines(keepends=True)
    return Task("".join(lines[:-2] + lines[-1:]), task.middle, task.suffix) if len(lines) > 2 else task


def request_of(runtime: Counting, task: Task, rate: int) -> InfillRequest:
    num_tokens = max(1, min(len(runtime.loaded.tokenizer.encode(task.middle)), runtime.loaded.config.max_hole))
    hole = {"min_tokens": num_tokens, "max_tokens": num_tokens}
    return ask(task, hole, steps=-(-num_tokens // rate))


def measure(runtime: Counting, tasks: Sequence[Task], cache: str, rate: int) -> tuple[list[str], list[int], float]:
    """Each fill, its rows, and the processor time of all."""
    texts, rows, seconds = [], [], 0.0
    for task in tasks:
        runtime.free_memory()
        if cache == "kept":
            drain(denoise(runtime, request_of(runtime, before_edit(task), rate), cache=cache))
        runtime.counter.clear()
        started_s = time.process_time()
        texts.append(drain(denoise(runtime, request_of(runtime, task, rate), cache=cache)).holes[0].text)
        seconds += time.process_time() - started_s
        rows.append(sum(runtime.counter))
    return texts, rows, seconds


def likeness(texts: Sequence[str], others: Sequence[str]) -> list[float]:
    pairs = zip(texts, others, strict=True)
    return [SequenceMatcher(None, text, other, autojunk=False).ratio() for text, other in pairs]


def compare(runtime: Counting, tasks: Sequence[Task], rate: int) -> list[Row]:
    truth, exact, found = [task.middle for task in tasks], list[str](), list[Row]()
    for cache in [name for name in CACHES if "bidirectional" in CACHES.find(name).attentions]:
        texts, rows, seconds = measure(runtime, tasks, cache, rate)
        exact = exact or texts  # `none` is the registry's first
        num, similar = len(tasks), likeness(texts, truth)
        found.append(
            Row(
                cache,
                rate,
                sum(rows) / num,
                1000 * seconds / num,
                sum(text == other for text, other in zip(texts, exact, strict=True)) / num,
                sum(likeness(texts, exact)) / num,
                sum(text == other for text, other in zip(texts, truth, strict=True)) / num,
                interval(similar)[0],
                difference(similar, likeness(exact, truth)),
            )
        )
    return found


def main(
    weights: Annotated[Path, typer.Argument(help="bench.bidirectional's")],
    tasks: Annotated[list[Path], typer.Option(help="JSON lines, maybe gzipped, with prefix, middle, suffix; repeat.")],
    num_tasks: Annotated[int, typer.Option(min=1, help="Of every file.")] = 60,
    json_file: Annotated[Path | None, typer.Option("--json", help="write the figures here")] = None,
) -> None:
    """The caches of a bidirectional model, side by side."""
    torch.set_num_threads(1)
    runtime = counting(open_bidirectional(weights))
    drawn = read_tasks(tasks, num_tasks, MAX_CHARACTERS)
    print("| cache | tokens a step | rows a fill | CPU ms | same | like it | right | similar | change |")
    print("|---|---|---|---|---|---|---|---|---|")
    found = []
    for rate in RATES:
        for row in compare(runtime, drawn, rate):
            found.append(row)
            shares = f"{row.same:.0%} | {row.like:.2f} | {row.right:.0%} | {row.similar:.3f}"
            change = "{:+.3f} ({:+.3f} to {:+.3f})".format(*row.change)
            print(
                f"| {row.cache} | {rate} | {row.rows_a_fill:.0f} | {row.cpu_ms:.0f} | {shares} | {change} |", flush=True
            )
    if json_file is not None:
        write_record(json_file, {"machine": describe(CPU) | {"tasks": len(drawn)}, "results": found})


if __name__ == "__main__":
    typer.run(main)
