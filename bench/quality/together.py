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

from bench.quality.bodies import STUB, draw
from bench.quality.judging import EXACT, liken
from bench.quality.lines import physical_lines
from bench.quality.proposals import Fill, kept, open_client
from bench.quality.report import show
from bench.quality.score import difference, share
from bench.quality.suite import Task, read_suite
from midfill_engine.wire import BASE
from midfill_infill.context.references import Reference
from midfill_infill.engines.client import EngineClient
from midfill_infill.errors import MidfillError
from midfill_infill.filling.fill import Filled, Options, fill
from midfill_infill.filling.reroll import keep_ranges, put_drafts
from midfill_infill.syntax.holes import body_at, hole_at_cursor
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Hole

NUM_HOLES: Final = 3
STEP: Final = 2  # lines of code from one hole to the next
BODY_LINES: Final = range(3, 11)

Maker = Callable[[EngineClient, Task], list[str]]


def main(
    suite: Annotated[Path, typer.Argument(help="As bench.quality.lines writes it.")],
    keep: Annotated[Path, typer.Argument(help="A folder: fills are kept there, and not made again.")],
    limit: Annotated[int, typer.Option(min=1, help="At most so many triples, and so many bodies.")] = 100,
    seed: int = 5,
    model: Annotated[str, typer.Option(help="A known model, or a checkpoint's folder.")] = BASE,
) -> None:
    """Prints exact and similar texts with intervals over files, and what the second way has less than the first."""
    torch.set_num_threads(1)
    client, tasks = open_client(model), read_suite(suite).tasks
    triples = [task for task in tasks if task.language == "python" and len(find_lines(task)) == NUM_HOLES][:limit]
    lines = [[task.program(task.middle)[slice(*span)] for span in find_lines(task)] for task in triples]
    compare(client, keep, {"at once": fill_at_once, "one after another": fill_in_turn}, triples, lines)
    bodies = list(islice(draw(tasks, seed, BODY_LINES), limit))
    ways: dict[str, Maker] = {"reroll that keeps": partial(reroll, True), "drafted anew": partial(reroll, False)}
    compare(client, keep, ways, bodies, [[task.middle] for task in bodies])


def compare(
    client: EngineClient, keep: Path, ways: dict[str, Maker], tasks: Sequence[Task], truths: Sequence[Sequence[str]]
) -> None:
    groups = [task.group for task, truth in zip(tasks, truths, strict=True) for _ in truth]
    first: tuple[list[float], list[float]] | None = None
    for name, make in ways.items():
        texts = [json.loads(each.text) for each in kept(keep, name, tasks, partial(write, make, client))]
        pairs = (pair for one, truth in zip(texts, truths, strict=True) for pair in zip(one, truth, strict=True))
        likeness = [liken(*pair) for pair in pairs]
        found = [float(each == EXACT) for each in likeness], [min(each, 1.0) for each in likeness]
        first = first or found
        for title, values, others in zip(("exact", "similar"), found, first, strict=True):
            less = "" if found is first else f", less {show(difference(others, values, groups))}"
            print(f"{title} % of {len(values)}, {name}: {show(share(values, groups))}{less}")


def write(make: Maker, client: EngineClient, task: Task) -> Fill:
    return Fill(json.dumps(make(client, task)), None, 0.0)


def find_lines(task: Task) -> list[tuple[int, int]]:
    """The task's line and the next ones, STEP lines of code apart; fewer at the end of the file."""
    spans = physical_lines(task.program(task.middle))
    start = next((index for index, span in enumerate(spans) if span[0] >= len(task.prefix)), len(spans))
    return spans[start::STEP][:NUM_HOLES]


def blank_lines(task: Task) -> tuple[Document, list[int]]:
    """The file without these lines, and the bytes at which they stood."""
    whole, parts, starts, position = task.program(task.middle), list[str](), list[int](), 0
    for start, end in find_lines(task):
        parts.append(whole[position:start])
        starts.append(len("".join(parts).encode()))
        position = end
    return Document("".join([*parts, whole[position:]]).encode(), task.language), starts


def fill_at_once(client: EngineClient, task: Task) -> list[str]:
    document, starts = blank_lines(task)
    filled = run(client, task, document, [hole_at_cursor(document, start) for start in starts])
    return [each.text for each in filled.fills]


def fill_in_turn(client: EngineClient, task: Task) -> list[str]:
    document, starts = blank_lines(task)
    texts, grown = list[str](), 0
    for start in starts:
        filled = run(client, task, document, [hole_at_cursor(document, start + grown)])
        texts.append(filled.fills[0].text)
        data = filled.patch.apply(document.data)
        grown += len(data) - len(document.data)
        document = replace(document, data=data)
    return texts


def reroll(keeps_lines: bool, client: EngineClient, task: Task) -> list[str]:
    """A second draft of a body, by the next seed."""
    document = Document(task.program(STUB).encode(), task.language)
    hole = body_at(document, len(task.prefix.encode()))
    try:
        if keeps_lines:
            (first,) = run(client, task, document, [hole]).fills
            ranges = keep_ranges(first.text, first.tokens, first.confidence, first.text, by_lines=True)
            document, (hole,) = put_drafts(document, [hole], [(first.text, ranges)])
        return [run(client, task, document, [hole], seed=1).fills[0].text]
    except MidfillError:
        return [""]


def run(client: EngineClient, task: Task, document: Document, holes: Sequence[Hole], seed: int = 0) -> Filled:
    references = tuple(Reference(**each) for each in task.references)
    *_, filled = fill(document, holes, Options(references=references, seed=seed), client)
    assert isinstance(filled, Filled)
    return filled


if __name__ == "__main__":
    typer.run(main)
