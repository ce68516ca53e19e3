"""`python -m bench.quality.experts SUITE`: what experts bring, part by part, on lines with their whole files around.

Every way fills every gap in one process, greedily and at its own length. Lines that stand elsewhere in their file are
counted apart, and so are fills that say they are sure. Knows suites and the engine; runs no program.
"""

import ast
import json
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Final

import torch
import typer
from rich.console import Console
from rich.table import Table

from bench.quality.calibration import calibrate
from bench.quality.floors import LineTable
from bench.quality.report import SHIPPED, WIDTH, find_origin, show
from bench.quality.score import Score, Share, difference, score, share
from bench.quality.suite import Task, read_suite
from midfill_engine.denoising.denoise import denoise, drain
from midfill_engine.experts import Experts
from midfill_engine.experts.counts import PARTS, Counts
from midfill_engine.loading.runtime import Runtime, load_runtime
from midfill_engine.wire import FilledHole, HoleSegment, HoleSpec, InfillRequest, Segment, TextSegment

SURE: Final = 0.5
NUM_TRIED: Final = 8  # drafts that the parser may choose among

Fill = Callable[[Task], FilledHole]


@dataclass(frozen=True)
class Way:
    name: str
    fill: Fill


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
    parts: Annotated[bool, typer.Option(help="Also without each part of the drafts.")] = True,
    out: Annotated[Path | None, typer.Option(help="Write the record here as JSON.")] = None,
    threads: Annotated[int, typer.Option(min=1)] = 1,
) -> None:
    """Measures the shipped model with its experts, without them, with each part switched off, and the floors."""
    torch.set_num_threads(threads)
    tasks = read_suite(suite, limit=limit).tasks
    runtime = load_runtime("embedded", "cpu")
    rows: dict[str, Row] = {}
    exact: dict[str, list[float]] = {}
    for way in ways(runtime, parts):
        rows[way.name], scores = measure(way, tasks)
        exact[way.name] = [float(each.exact) for each in scores]
        Console(stderr=True).print(f"{way.name}: {show(rows[way.name].exact)}")
    first = next(iter(rows))
    groups = [task.group for task in tasks]
    gains = {name: difference(exact[first], values, groups) for name, values in exact.items() if name != first}
    paper = Console(width=None if Console().is_terminal else WIDTH)
    paper.print(table_of(rows, gains, tasks))
    if out is not None:
        origin = find_origin(SHIPPED / "embedded", "none", 1.0)
        record = {**asdict(origin), "gaps": len(tasks), "files": len(set(groups)), "recurring": shared(tasks)}
        record |= {"rows": [asdict(row) for row in rows.values()]}
        record |= {"gains": {name: asdict(gain) for name, gain in gains.items()}}
        out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def ways(runtime: Runtime, parts: bool) -> list[Way]:
    found = [
        Way("as shipped", by_engine(runtime, None)),
        Way("as shipped, first draft that parses", by_parser(runtime)),
        Way("copying only (before)", by_engine(runtime, ["copying"])),
        Way("no experts", by_engine(runtime, [])),
    ]
    if parts:
        for part in sorted(PARTS):
            experts = Experts()
            experts.put("counts", Counts(parts=PARTS - {part}))
            found.append(Way(f"without {part}", by_engine(replace(runtime, experts=experts), None)))
    alone = Experts()
    alone.put("counts", Counts(parts=frozenset({"beam"}), is_ranked=False))
    found.append(Way("floor: beam alone", by_engine(replace(runtime, experts=alone), ["counts"])))
    return [*found, Way("floor: lines of the file", by_lines)]


def ask(task: Task, experts: list[str] | None, num_drafts: int = 0) -> InfillRequest:
    segments: list[Segment] = [
        TextSegment(text=task.prefix),
        HoleSegment(hole=HoleSpec()),
        TextSegment(text=task.suffix),
    ]
    return InfillRequest(segments=segments, tag=task.language, quality=1.0, experts=experts, num_drafts=num_drafts)


def by_engine(runtime: Runtime, experts: list[str] | None) -> Fill:
    return lambda task: drain(denoise(runtime, ask(task, experts))).holes[0]


def by_parser(runtime: Runtime) -> Fill:
    """The fill, or else the first draft, with which the file parses; the fill where none does."""

    def fill(task: Task) -> FilledHole:
        answer = drain(denoise(runtime, ask(task, None, NUM_TRIED)))
        (own,) = answer.holes
        if parses(task, own.text) is not False:
            return own
        fitting = (draft for draft in answer.drafts[0] if parses(task, draft.text))
        draft = next(fitting, None)
        if draft is None:
            return own
        return FilledHole(text=draft.text, tokens=[], confidence=[], certainty=draft.certainty)

    return fill


def by_lines(task: Task) -> FilledHole:
    text = LineTable([task.prefix, task.suffix], [task]).fill(task)
    return FilledHole(text=text.strip(), tokens=[], confidence=[])


def parses(task: Task, text: str) -> bool | None:
    if task.language != "python":
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            ast.parse(task.program(text))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return False
    return True


def recurs(task: Task) -> bool:
    """Whether the line stands elsewhere in its file."""
    return task.middle.strip() in {line.strip() for line in (task.prefix + "\n" + task.suffix).split("\n")}


def shared(tasks: Sequence[Task]) -> float:
    return round(100 * sum(map(recurs, tasks)) / len(tasks), 1)


def measure(way: Way, tasks: Sequence[Task]) -> tuple[Row, list[Score]]:
    started_s = time.process_time()
    fills = [way.fill(task) for task in tasks]
    cpu_ms = (time.process_time() - started_s) * 1000 / len(tasks)
    scores = score(tasks, {task.id: fill.text for task, fill in zip(tasks, fills, strict=True)})
    groups = [task.group for task in tasks]
    again = [recurs(task) for task in tasks]
    parsed = [each.parses for each in scores if each.parses is not None]
    known = [fill.certainty for fill in fills]
    pairs = [(value, each.exact) for value, each in zip(known, scores, strict=True) if value is not None]
    is_sure = [value is not None and value >= SURE for value in known]
    calibration = calibrate(pairs)

    def of(chosen: Sequence[bool]) -> Share:
        kept = [index for index, each in enumerate(chosen) if each]
        return share([float(scores[index].exact) for index in kept], [groups[index] for index in kept])

    row = Row(
        name=way.name,
        exact=of([True] * len(tasks)),
        similar=share([each.similarity for each in scores], groups),
        parses=share([float(each) for each in parsed], groups) if len(parsed) == len(scores) else None,
        recurring=of(again),
        others=of([not each for each in again]),
        sure=share([float(each) for each in is_sure], groups) if pairs else None,
        right=of(is_sure) if any(is_sure) else None,
        error=None if calibration is None else calibration.error,
        cpu_ms=round(cpu_ms, 1),
    )
    return row, scores


def table_of(rows: dict[str, Row], gains: dict[str, Share], tasks: Sequence[Task]) -> Table:
    files = len({task.group for task in tasks})
    title = f"{len(tasks)} lines of {files} files, {shared(tasks)} % of them elsewhere in their file too; own length"
    table = Table(title=title, title_justify="left")
    for heading in (
        "",
        "exact %",
        "similar",
        "parses",
        "recurring",
        "others",
        "sure",
        "right",
        "ECE",
        "CPU ms",
        "less",
    ):
        table.add_column(heading, no_wrap=True)
    for name, row in rows.items():
        shares = map(show, (row.exact, row.similar, row.parses, row.recurring, row.others, row.sure, row.right))
        error = "-" if row.error is None else f"{row.error:.2f}"
        table.add_row(name, *shares, error, f"{row.cpu_ms:.0f}", show(gains.get(name)))
    return table


if __name__ == "__main__":
    typer.run(main)
