"""`python -m bench quality.bodies SUITE KEEP`: bodies of functions by the product, with and without those of siblings.

One function of every Python file of the suite loses its body. Knows suites, the engine and the fill; runs no program.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Annotated, Any, Final

import numpy as np
import torch
import typer

from bench.quality.calibration import calibrate
from bench.quality.product import Fill, KeepFolder, ModelName, describe_fills, fill_gap, keep_fills, open_client
from bench.quality.proposals import choose_ways, score_fills
from bench.quality.report import show
from bench.quality.score import difference, share
from bench.quality.suite import SuiteFile, Task, read_suite
from midfill_engine.wire import BASE
from midfill_infill.engines.client import EngineClient
from midfill_infill.errors import MidfillError
from midfill_infill.proposals import PROPOSERS, Surroundings
from midfill_infill.syntax.holes import body_at
from midfill_infill.syntax.outline import outline
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Hole

MAX_BYTES: Final = 1200  # of a body
STUB: Final = "..."
WAYS: Final[dict[str, dict[str, Any]]] = {
    "as shipped": {},
    "without siblings": {"proposers": tuple(set(PROPOSERS) - {"siblings"})},
    "no proposals": {"proposers": ()},
}


def main(
    suite: SuiteFile,
    keep: KeepFolder,
    limit: Annotated[int, typer.Option(min=1)] = 240,
    seed: int = 5,
    model: ModelName = BASE,
    only: Annotated[list[str] | None, typer.Option(help="Only these ways.")] = None,
    lines: Annotated[tuple[int, int], typer.Option(help="The least and the most filled lines of a body.")] = (3, 10),
) -> None:
    """Prints exact, similar and parsing bodies with intervals over files, what each way has less than the first, and
    how sure fills are.
    """
    names = choose_ways(only, WAYS)
    torch.set_num_threads(1)
    read = read_suite(suite)
    sizes = range(lines[0], lines[1] + 1)
    tasks = list(islice(draw(read.tasks, seed, sizes), limit))
    facts = {**describe_fills(model, read), "seed": seed}
    measured = {}
    for name in names:
        fills = keep_fills(keep, name, facts, tasks, partial(write, open_client(model), WAYS[name]))
        measured[name] = measure(name, tasks, fills)
    groups = [task.group for task in tasks]
    first = measured[names[0]]
    for column in ("exact", "similar", "parses"):
        for name, columns in measured.items():
            values = columns[column]
            less = ""
            if columns is not first:
                less = f", less {show(difference(first[column], values, groups))}"
            print(f"{column} %, {name}: {show(share(values, groups))}{less}")


def measure(name: str, tasks: Sequence[Task], fills: Sequence[Fill]) -> dict[str, list[float]]:
    """For every task: exact match, similarity, and whether the fill parses."""
    scores, pairs = score_fills(tasks, fills)
    calibration = calibrate(pairs)
    if calibration is not None:
        sure, right = 100 * calibration.confidence, 100 * calibration.right
        print(f"{name}: certainty {sure:.1f} %, right {right:.1f} %, error {calibration.error:.3f}")
    return {
        "exact": [float(one.exact) for one in scores],
        "similar": [one.similarity for one in scores],
        "parses": [float(bool(one.parses)) for one in scores],
    }


def draw(
    tasks: Sequence[Task], seed: int, sizes: range = range(1, MAX_BYTES), max_bytes: int = MAX_BYTES
) -> Iterator[Task]:
    """Gaps that are bodies with a number of non-blank lines in `sizes`, at most one per file."""
    files = {task.group: task for task in tasks if task.language == "python"}
    rng = np.random.default_rng(seed)
    for group in rng.permutation(sorted(files)).tolist():
        task = files[group]
        source = task.program(task.middle).encode()
        document = Document(source, task.language)
        bodies = []
        for function in outline(document).functions:
            start, end = function.body
            if function.name and not function.is_placeholder and end - start < max_bytes:
                bodies.append(function.body)
        if not bodies:
            continue
        start, _ = bodies[int(rng.integers(len(bodies)))]
        hole = body_at(document, start)
        middle = source[hole.start_byte : hole.end_byte].decode()
        if count_lines(middle) in sizes:
            before = source[: hole.start_byte].decode()
            after = source[hole.end_byte :].decode()
            yield replace(task, prefix=before, middle=middle, suffix=after)


def count_lines(text: str) -> int:
    """The number of non-blank lines."""
    return sum(bool(line.strip()) for line in text.split("\n"))


def find_stub(task: Task) -> tuple[Document, Hole]:
    """The file with a stub for its body, and the stub's hole. Raises MidfillError if there is none."""
    document = Document(task.program(STUB).encode(), task.language)
    return document, body_at(document, len(task.prefix.encode()))


def write(client: EngineClient, options: dict[str, Any], task: Task) -> Fill:
    try:
        document, hole = find_stub(task)
        return fill_gap(client, task, document, hole, **options)
    except MidfillError:
        return Fill("", None, 0.0)


def look_around(task: Task) -> Surroundings:
    """The surroundings that proposers see when the body is a stub."""
    document, hole = find_stub(task)
    return Surroundings(document, (hole,), task.shown_references)


if __name__ == "__main__":
    typer.run(main)
