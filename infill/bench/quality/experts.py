"""`python -m bench.quality.experts SUITE`: what experts bring to the whole product, on lines with their files around.

Every way fills every gap in one process, greedily and at its own length, through the command's own code: context,
references, engine, parser, choice. Lines that stand elsewhere in their file are counted apart, and so are fills that
say they are sure. Knows suites, the engine and the fill; runs no program.
"""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Final, cast

import numpy as np
import torch
import typer
from rich.console import Console
from rich.table import Table

from bench.quality.calibration import calibrate
from bench.quality.floors import LineTable
from bench.quality.report import SHIPPED, WIDTH, find_origin, show
from bench.quality.score import Score, Share, difference, score, share
from bench.quality.suite import Task, read_suite
from midfill_engine.denoising.denoise import denoise
from midfill_engine.experts import Gap, Remote, Sources
from midfill_engine.experts.counts import PARTS, Counts
from midfill_engine.loading.runtime import Runtime, load_runtime
from midfill_engine.tokens.tokenizer import heal
from midfill_engine.wire import InfillRequest, InfillResponse, Reference, StepEvent
from midfill_infill.engines.client import EngineClient
from midfill_infill.fill import Filled, Options, fill
from midfill_infill.syntax.holes import hole_at_range
from midfill_infill.text.document import Document

SURE: Final = 0.5
MARK: Final = "<>"  # stands in the gap
FIRST: Final = "as shipped"


@dataclass(frozen=True)
class Fill:
    text: str
    certainty: float | None
    cpu_ms: float


@dataclass(frozen=True)
class Row:
    """Shares in percent, intervals over files. `sure` fills have a certainty of SURE or more; `right` are exact."""

    name: str
    exact: Share
    similar: Share
    parses: Share | None
    recurring: Share
    others: Share
    sure: Share | None
    right: Share | None
    error: float | None
    cpu_ms: float


def main(
    suite: Annotated[Path, typer.Argument(help="As bench.quality.lines writes it.")],
    limit: Annotated[int | None, typer.Option(min=1, help="So many gaps, by hash of their ids.")] = None,
    only: Annotated[list[str] | None, typer.Option(help="Only these ways.")] = None,
    keep: Annotated[Path | None, typer.Option(help="A folder: fills are kept there, and not made again.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write the record here as JSON.")] = None,
    threads: Annotated[int, typer.Option(min=1)] = 1,
) -> None:
    """Measures the shipped model with its experts, without them, with each part switched off, and the floors."""
    torch.set_num_threads(threads)
    tasks = read_suite(suite, limit=limit).tasks
    ways = Ways()
    rows: dict[str, Row] = {}
    exact: dict[str, list[float]] = {}
    for name in only or ways.names:
        fills = list(kept(keep, name, tasks, ways.find(name)))
        rows[name], scores = measure(name, tasks, fills)
        exact[name] = [float(each.exact) for each in scores]
        Console(stderr=True).print(f"{name}: {show(rows[name].exact)}")
    groups = [task.group for task in tasks]
    first = next(iter(rows))
    gains = {name: difference(exact[first], values, groups) for name, values in exact.items() if name != first}
    Console(width=None if Console().is_terminal else WIDTH).print(table_of(rows, gains, tasks))
    if out is not None:
        origin = find_origin(SHIPPED / "embedded", "none", 1.0)
        record = {**asdict(origin), "gaps": len(tasks), "files": len(set(groups)), "recurring": shared(tasks)}
        record |= {"rows": [asdict(row) for row in rows.values()]}
        record |= {"gains": {name: asdict(gain) for name, gain in gains.items()}}
        out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def kept(folder: Path | None, name: str, tasks: Sequence[Task], make: Callable[[Task], Fill]) -> Iterator[Fill]:
    """The fills of one way; those of `folder` are not made again."""
    known: dict[str, Fill] = {}
    path = None if folder is None else folder / f"{name}.jsonl"
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        for row in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
            identity, *values = json.loads(row)
            known[identity] = Fill(*values)
    for task in tasks:
        if task.id not in known:
            started_s = time.process_time()
            made = make(task)
            known[task.id] = Fill(made.text, made.certainty, round(1000 * (time.process_time() - started_s), 1))
            if path is not None:
                with path.open("a", encoding="utf-8") as rows:
                    rows.write(json.dumps([task.id, *asdict(known[task.id]).values()]) + "\n")
        yield known[task.id]


class Local:
    """An engine in this process where the fill expects one behind a connection; `changes` are made to every request."""

    endpoint = SimpleNamespace(is_mercury=False)

    def __init__(self, runtime: Runtime, **changes: object) -> None:
        self._runtime, self._changes = runtime, changes

    def models(self) -> tuple[object, ...]:
        return (self._runtime.info,)

    def infill(self, request: InfillRequest) -> Iterator[StepEvent | InfillResponse]:
        yield (yield from denoise(self._runtime, request.model_copy(update=self._changes)))


class Ways:
    """By name, each made when it is first wanted."""

    names = (
        FIRST,
        "first draft, no parser",
        "copying only",
        "no experts",
        *(f"first draft without {part}" for part in sorted(PARTS)),
        "floor: beam alone",
        "floor: lines of the file",
    )

    @cached_property
    def _runtime(self) -> Runtime:
        return load_runtime("embedded", "cpu")

    def find(self, name: str) -> Callable[[Task], Fill]:
        if name == FIRST:
            return self._by_product()
        if name in ("copying only", "no experts"):
            experts = [name.split()[0]] if name.startswith("copying") else []
            return self._by_product(experts=experts, num_drafts=0)
        if name.startswith("first draft"):
            return lambda task: first_draft(Counts(parts=PARTS - {name.split()[-1]}), task)
        if name == "floor: beam alone":
            return lambda task: first_draft(Counts(parts=frozenset({"beam"}), is_ranked=False), task)
        return by_lines

    def _by_product(self, **changes: object) -> Callable[[Task], Fill]:
        client = cast(EngineClient, Local(self._runtime, **changes))
        return lambda task: by_product(client, task)


def by_product(client: EngineClient, task: Task) -> Fill:
    """As `midfill fill --hole` fills it."""
    document = Document(task.program(MARK).encode(), task.language)
    start = len(task.prefix.encode())
    references = tuple(Reference(**each) for each in task.references)
    hole = hole_at_range(document, start, start + len(MARK))
    *_, filled = fill(document, [hole], Options(references=references), client)
    assert isinstance(filled, Filled)
    return Fill(filled.fills[0].text, filled.best.certainty, 0.0)


def first_draft(expert: Counts, task: Task) -> Fill:
    """The surest, no model and no parser."""
    edges = heal(task.prefix, task.suffix)
    gap = Gap(edges.prefix, edges.suffix, edges.lead, edges.tail)
    remotes = [Remote(each["kind"], each["text"]) for each in task.references]
    proposals = expert.read(Sources([], (edges.prefix, edges.suffix), (gap,), remotes)).propose(0)
    return Fill(proposals[0].text, proposals[0].certainty, 0.0) if proposals else Fill("", None, 0.0)


def by_lines(task: Task) -> Fill:
    return Fill(LineTable([task.prefix, task.suffix], [task]).fill(task).strip(), None, 0.0)


def recurs(task: Task) -> bool:
    """Whether the line stands elsewhere in its file."""
    return task.middle.strip() in {line.strip() for line in (task.prefix + "\n" + task.suffix).split("\n")}


def shared(tasks: Sequence[Task]) -> float:
    return round(100 * sum(map(recurs, tasks)) / len(tasks), 1)


def measure(name: str, tasks: Sequence[Task], fills: Sequence[Fill]) -> tuple[Row, list[Score]]:
    scores = score(tasks, {task.id: each.text for task, each in zip(tasks, fills, strict=True)})
    groups = [task.group for task in tasks]
    again = [recurs(task) for task in tasks]
    parsed = [(each.parses, each.group) for each in scores if each.parses is not None]
    pairs = [(each.certainty, one.exact) for each, one in zip(fills, scores, strict=True) if each.certainty is not None]
    is_sure = [each.certainty is not None and each.certainty >= SURE for each in fills]
    calibration = calibrate(pairs)

    def of(chosen: Sequence[bool]) -> Share:
        places = [index for index, each in enumerate(chosen) if each]
        return share([float(scores[index].exact) for index in places], [groups[index] for index in places])

    row = Row(
        name=name,
        exact=of([True] * len(tasks)),
        similar=share([each.similarity for each in scores], groups),
        parses=share([float(value) for value, _ in parsed], [group for _, group in parsed]) if parsed else None,
        recurring=of(again),
        others=of([not each for each in again]),
        sure=share([float(each) for each in is_sure], groups) if pairs else None,
        right=of(is_sure) if any(is_sure) else None,
        error=None if calibration is None else calibration.error,
        cpu_ms=round(float(np.median([each.cpu_ms for each in fills])), 1),
    )
    return row, scores


def table_of(rows: dict[str, Row], gains: dict[str, Share], tasks: Sequence[Task]) -> Table:
    files = len({task.group for task in tasks})
    title = f"{len(tasks)} lines of {files} files, {shared(tasks)} % of them elsewhere in their file too; own length"
    table = Table(title=title, title_justify="left")
    headings = "", "exact %", "similar", "parses", "recurring", "others", "sure", "right", "ECE", "CPU ms", "less"
    for heading in headings:
        table.add_column(heading, no_wrap=True)
    for name, row in rows.items():
        shares = map(show, (row.exact, row.similar, row.parses, row.recurring, row.others, row.sure, row.right))
        error = "-" if row.error is None else f"{row.error:.2f}"
        table.add_row(name, *shares, error, f"{row.cpu_ms:.0f}", show(gains.get(name)))
    return table


if __name__ == "__main__":
    typer.run(main)
