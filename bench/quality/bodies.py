"""`python -m bench quality.bodies SUITE KEEP`: bodies of functions by the product, with and without those of siblings.

One function of every Python file of the suite loses its body. Knows suites, the engine and the fill; runs no program.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
import torch
import typer

from bench.quality.calibration import calibrate
from bench.quality.proposals import Fill, kept, open_client
from bench.quality.report import show
from bench.quality.score import difference, score, share
from bench.quality.suite import Task, read_suite
from midfill_engine.wire import BASE
from midfill_infill.context.references import Reference
from midfill_infill.engines.client import EngineClient
from midfill_infill.errors import MidfillError
from midfill_infill.filling.fill import Filled, Options, fill
from midfill_infill.proposals import PROPOSERS, Surroundings
from midfill_infill.syntax.holes import body_at
from midfill_infill.syntax.outline import outline
from midfill_infill.text.document import Document

MAX_BYTES: Final = 1200  # of a body
STUB: Final = "..."
WAYS: Final[dict[str, dict[str, Any]]] = {
    "as shipped": {},
    "without siblings": {"proposers": tuple(set(PROPOSERS) - {"siblings"})},
    "no proposals": {"proposers": ()},
}


def main(
    suite: Annotated[Path, typer.Argument(help="As bench.quality.lines writes it.")],
    keep: Annotated[Path, typer.Argument(help="A folder: fills are kept there, and not made again.")],
    limit: Annotated[int, typer.Option(min=1)] = 240,
    seed: int = 5,
    model: Annotated[str, typer.Option(help="A known model, or a checkpoint's folder.")] = BASE,
    only: Annotated[list[str] | None, typer.Option(help="Only these ways.")] = None,
    lines: Annotated[tuple[int, int], typer.Option(help="The least and the most filled lines of a body.")] = (3, 10),
) -> None:
    """Prints exact, similar and parsing bodies with intervals over files, what each way has less than the first, and
    how sure fills are.
    """
    names = only or list(WAYS)
    if unknown := set(names).difference(WAYS):
        raise typer.BadParameter(f"{', '.join(sorted(unknown))}: known are {', '.join(WAYS)}")
    torch.set_num_threads(1)
    tasks = list(islice(draw(read_suite(suite).tasks, seed, range(lines[0], lines[1] + 1)), limit))
    groups = [task.group for task in tasks]
    measured = {name: measure(name, open_client(model), tasks, keep) for name in names}
    first = measured[names[0]]
    for at, column in enumerate(("exact", "similar", "parses")):
        for name, values in measured.items():
            less = "" if values is first else f", less {show(difference(first[at], values[at], groups))}"
            print(f"{column} %, {name}: {show(share(values[at], groups))}{less}")


def measure(name: str, client: EngineClient, tasks: Sequence[Task], keep: Path) -> list[list[float]]:
    """For every task: exact match, similarity, and whether the fill parses."""
    fills = list(kept(keep, name, tasks, partial(write, client, WAYS[name])))
    scores = score(tasks, {task.id: each.text for task, each in zip(tasks, fills, strict=True)})
    pairs = [(each.certainty, one.exact) for each, one in zip(fills, scores, strict=True) if each.certainty is not None]
    if (found := calibrate(pairs)) is not None:
        sure, right = 100 * found.confidence, 100 * found.right
        print(f"{name}: certainty {sure:.1f} %, right {right:.1f} %, error {found.error:.3f}")
    return [
        [float(each.exact) for each in scores],
        [each.similarity for each in scores],
        [float(bool(each.parses)) for each in scores],
    ]


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
        found = [each for each in outline(document).functions if each.name and not each.is_placeholder]
        fitting = [each for each in found if each.body[1] - each.body[0] < max_bytes]
        if fitting:
            function = fitting[int(rng.integers(len(fitting)))]
            hole = body_at(document, function.body[0])
            parts = source[: hole.start_byte], source[hole.start_byte : hole.end_byte], source[hole.end_byte :]
            before, middle, after = (part.decode() for part in parts)
            if count_lines(middle) in sizes:
                yield replace(task, prefix=before, middle=middle, suffix=after)


def count_lines(text: str) -> int:
    """The number of non-blank lines."""
    return sum(bool(line.strip()) for line in text.split("\n"))


def write(client: EngineClient, options: dict[str, Any], task: Task) -> Fill:
    document = Document(task.program(STUB).encode(), task.language)
    references = tuple(Reference(**each) for each in task.references)
    try:
        hole = body_at(document, len(task.prefix.encode()))
        *_, filled = fill(document, [hole], Options(references=references, **options), client)
    except MidfillError:
        return Fill("", None, 0.0)
    assert isinstance(filled, Filled)
    text = filled.patch.apply(document.data).decode()
    return Fill(text[len(task.prefix) : len(text) - len(task.suffix)], filled.best.certainty, 0.0)


def look_around(task: Task) -> Surroundings:
    """The surroundings that proposers see when the body is a stub."""
    document = Document(task.program(STUB).encode(), task.language)
    references = tuple(Reference(**each) for each in task.references)
    return Surroundings(document, (body_at(document, len(task.prefix.encode())),), references)


if __name__ == "__main__":
    typer.run(main)
