"""`python -m bench quality.together SUITE KEEP`: several holes at once, and what a reroll that keeps lines is worth.

Three lines of a file are filled by one request, or one after another. A body is drafted, then drafted again with its
surer lines kept, as a reroll does, or without. Knows suites, the engine and the fill; runs no program.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Final

import torch
import typer

from bench.quality.bodies import draw, find_stub
from bench.quality.judging import EXACT, liken
from bench.quality.kept import Facts
from bench.quality.lines import physical_lines
from bench.quality.product import Fill, KeepFolder, ModelName, describe_fills, fill_holes, keep_fills, open_client
from bench.quality.report import show
from bench.quality.score import difference, share
from bench.quality.suite import SuiteFile, Task, read_suite
from midfill_engine.wire import BASE
from midfill_infill.engines.client import EngineClient
from midfill_infill.errors import MidfillError
from midfill_infill.filling.reroll import keep_ranges, put_drafts
from midfill_infill.syntax.holes import hole_at_cursor
from midfill_infill.text.document import Document

NUM_HOLES: Final = 3
STEP: Final = 2  # lines of code from one hole to the next
BODY_LINES: Final = range(3, 11)

Maker = Callable[[EngineClient, Task], list[str]]


def main(
    suite: SuiteFile,
    keep: KeepFolder,
    limit: Annotated[int, typer.Option(min=1, help="At most so many triples, and so many bodies.")] = 100,
    seed: int = 5,
    model: ModelName = BASE,
) -> None:
    """Prints exact and similar texts with intervals over files, and what the second way has less than the first."""
    torch.set_num_threads(1)
    client, read = open_client(model), read_suite(suite)
    facts = {**describe_fills(model, read), "seed": seed}
    triples: list[Task] = []
    lines: list[list[str]] = []
    for task in read.tasks:
        spans = find_lines(task) if task.language == "python" else []
        if len(spans) == NUM_HOLES and len(triples) < limit:
            text = task.program(task.middle)
            triples.append(task)
            lines.append([text[start:end] for start, end in spans])
    compare(client, keep, facts, {"at once": fill_at_once, "one after another": fill_in_turn}, triples, lines)
    bodies = list(islice(draw(read.tasks, seed, BODY_LINES), limit))
    ways: dict[str, Maker] = {"reroll that keeps": partial(reroll, True), "drafted anew": partial(reroll, False)}
    compare(client, keep, facts, ways, bodies, [[task.middle] for task in bodies])


def compare(
    client: EngineClient,
    keep: Path,
    facts: Facts,
    ways: dict[str, Maker],
    tasks: Sequence[Task],
    truths: Sequence[Sequence[str]],
) -> None:
    """Prints how like the true texts are to those of each way."""
    groups = [task.group for task, truth in zip(tasks, truths, strict=True) for _ in truth]
    first: dict[str, list[float]] = {}
    for name, make in ways.items():
        fills = keep_fills(keep, name, facts, tasks, partial(write, make, client))
        likeness: list[float] = []
        for made, truth in zip(fills, truths, strict=True):
            likeness += map(liken, json.loads(made.text), truth)
        shares = {
            "exact": [float(value == EXACT) for value in likeness],
            "similar": [min(value, 1.0) for value in likeness],
        }
        for title, values in shares.items():
            less = ""
            if first:
                less = f", less {show(difference(first[title], values, groups))}"
            print(f"{title} % of {len(values)}, {name}: {show(share(values, groups))}{less}")
        first = first or shares


def write(make: Maker, client: EngineClient, task: Task) -> Fill:
    return Fill(json.dumps(make(client, task)), None, 0.0)


def find_lines(task: Task) -> list[tuple[int, int]]:
    """The task's line and the next ones, STEP lines of code apart; fewer at the end of the file."""
    spans = physical_lines(task.program(task.middle))
    behind = [span for span in spans if span[0] >= len(task.prefix)]
    return behind[::STEP][:NUM_HOLES]


def blank_lines(task: Task) -> tuple[Document, list[int]]:
    """The file without these lines, and the bytes at which they stood."""
    text = task.program(task.middle)
    blanked, position = "", 0
    starts: list[int] = []
    for start, end in find_lines(task):
        blanked += text[position:start]
        starts.append(len(blanked.encode()))
        position = end
    return Document((blanked + text[position:]).encode(), task.language), starts


def fill_at_once(client: EngineClient, task: Task) -> list[str]:
    document, starts = blank_lines(task)
    holes = [hole_at_cursor(document, start) for start in starts]
    filled = fill_holes(client, task, document, holes, seed=0)
    return [one.text for one in filled.fills]


def fill_in_turn(client: EngineClient, task: Task) -> list[str]:
    document, starts = blank_lines(task)
    texts: list[str] = []
    grown = 0
    for start in starts:
        hole = hole_at_cursor(document, start + grown)
        filled = fill_holes(client, task, document, [hole], seed=0)
        texts.append(filled.fills[0].text)
        data = filled.patch.apply(document.data)
        grown += len(data) - len(document.data)
        document = replace(document, data=data)
    return texts


def reroll(keeps_lines: bool, client: EngineClient, task: Task) -> list[str]:
    """A second draft of a body, by the next seed."""
    document, hole = find_stub(task)
    try:
        if keeps_lines:
            (first,) = fill_holes(client, task, document, [hole], seed=0).fills
            ranges = keep_ranges(first.text, first.tokens, first.confidence, first.text, by_lines=True)
            document, (hole,) = put_drafts(document, [hole], [(first.text, ranges)])
        return [fill_holes(client, task, document, [hole], seed=1).fills[0].text]
    except MidfillError:
        return [""]


if __name__ == "__main__":
    typer.run(main)
