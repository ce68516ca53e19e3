"""`python -m bench quality.proposals [SUITE]`: what proposers bring to the whole product, on lines in their files.

Every way fills every gap in one process, greedily and at its own length, through the command's own code: context,
proposals, engine, parser. Lines that stand elsewhere in their file are counted apart, and so are fills that say they
are sure. Knows suites, the engine and the fill; runs no program.
"""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from functools import cache, partial
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, Final, Literal, cast
from unittest.mock import patch

import numpy as np
import torch
import typer
from rich.console import Console
from rich.table import Table
from tests.engine.in_process import denoise

from bench.measure import ROOT, hash_sources
from bench.quality import drawn
from bench.quality.calibration import calibrate, threshold_of
from bench.quality.report import WIDTH, find_origin, find_weights, hash_weights, show
from bench.quality.score import Score, Share, difference, score, share
from bench.quality.suite import Task, read_suite
from midfill_engine import judging
from midfill_engine.judging import JudgeWeights, Kind, shipped_weights
from midfill_engine.loading import runtime
from midfill_engine.loading.runtime import Runtime
from midfill_engine.wire import BASE, InfillRequest, InfillResponse, StepEvent
from midfill_infill.context.references import Reference
from midfill_infill.engines.client import EngineClient
from midfill_infill.filling.candidates import CandidateSelector
from midfill_infill.filling.fill import Filled, Options, fill
from midfill_infill.proposals import PROPOSERS, Surroundings, propose
from midfill_infill.syntax.holes import hole_at_cursor, hole_at_range
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Hole

SURE: Final = 0.5
FIRST: Final = "as shipped"
ALONE: Final = "proposals alone"


@dataclass(frozen=True)
class Fill:
    text: str
    certainty: float | None
    cpu_ms: float


@dataclass(frozen=True)
class Row:
    """Shares in percent, intervals over files. `sure` fills have a certainty of SURE or more; `right` are exact.

    `error` is the calibration error, `threshold` the certainty from which on three of four fills are right.
    """

    name: str
    exact: Share | None
    similar: Share
    parses: Share | None
    passed: Share | None
    recurring: Share | None
    others: Share | None
    sure: Share | None
    right: Share | None
    error: float | None
    threshold: float | None
    cpu_ms: float


def main(
    suite: Annotated[
        Path | None, typer.Argument(help="As bench.quality.lines writes it; else the lines of `drawn.jsonl`.")
    ] = None,
    language: Annotated[str, typer.Option(help="Of these lines: python, javascript, typescript.")] = "python",
    split: Annotated[str | None, typer.Option(help="Only this split, where rows name one.")] = None,
    kind: Annotated[str | None, typer.Option(help="Only this kind, where rows name one.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="So many gaps, by hash of their ids.")] = None,
    only: Annotated[list[str] | None, typer.Option(help="Only these ways.")] = None,
    model: Annotated[str, typer.Option(help="A known model, or a checkpoint's folder.")] = BASE,
    keep: Annotated[Path | None, typer.Option(help="A folder: fills are kept there, and not made again.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write the record here as JSON.")] = None,
    threads: Annotated[int, typer.Option(min=1)] = 1,
) -> None:
    """Measures the product as it ships, without proposers, without each of them, and without the parser's choice."""
    names = only or list(WAYS)
    if unknown := set(names).difference(WAYS):
        raise typer.BadParameter(f"{', '.join(sorted(unknown))}: known are {', '.join(WAYS)}")
    torch.set_num_threads(threads)
    if suite is None:
        suite, keep = drawn.rebuild(language), keep or drawn.FOLDER / language / name_fills(model)
    tasks = read_suite(suite, split=split, kind=kind, limit=limit).tasks
    rows: dict[str, Row] = {}
    exact: dict[str, list[float]] = {}
    for name in names:
        fills = list(kept(keep, name, tasks, partial(WAYS[name].fill, model)))
        rows[name], scores = measure(name, tasks, fills)
        exact[name] = [float(each.exact) for each in scores]
        Console(stderr=True).print(f"{name}: {show(rows[name].exact)}")
    groups = [task.group for task in tasks]
    first = next(iter(rows))
    gains = {name: difference(exact[first], values, groups) for name, values in exact.items() if name != first}
    paper = Console(width=None if Console().is_terminal else WIDTH)
    for table in tables_of(rows, gains, tasks):
        paper.print(table)
    if out is not None:
        origin = find_origin(find_weights(model), "none", 1.0)
        record = {
            **asdict(origin),
            "model": model,
            "gaps": len(tasks),
            "files": len(set(groups)),
            "recurring": shared(tasks),
        }
        record |= {"rows": [asdict(row) for row in rows.values()]}
        record |= {"gains": {name: asdict(gain) for name, gain in gains.items()}}
        out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def name_fills(model: str) -> str:
    """The name of the folder for a model's fills: another one for other weights, or other code."""
    weights = find_weights(model)
    facts = hash_weights(weights) if weights else model, hash_sources(ROOT / "engine/midfill_engine", ROOT / "infill")
    return f"{Path(model).name}-{sha256(repr(facts).encode()).hexdigest()[:12]}"


def kept(folder: Path | None, name: str, tasks: Sequence[Task], make: Callable[[Task], Fill]) -> Iterator[Fill]:
    """The fills of one way; reuses those in `folder`."""
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
    """An in-process engine in place of a connection."""

    endpoint = SimpleNamespace(is_outside=False)

    def __init__(self, opened: Runtime) -> None:
        self._runtime = opened

    def models(self) -> tuple[object, ...]:
        return (self._runtime.info,)

    def infill(self, request: InfillRequest) -> Iterator[StepEvent | InfillResponse]:
        yield (yield from denoise(self._runtime, request))


@cache
def open_client(model: str, has_adapter: bool = True) -> EngineClient:
    with nullcontext() if has_adapter else patch.object(runtime, "ADAPTER", "-none"):
        return cast(EngineClient, Local(runtime.load_runtime(model, "cpu")))


@cache
def weigh_no_following(kind: Kind | Literal["short"]) -> JudgeWeights:
    return replace(shipped_weights(kind), follows=0.0)


@dataclass(frozen=True)
class Way:
    """The product with `options`; `model` replaces the requested model if it is not empty."""

    options: dict[str, Any] = field(default_factory=dict)
    has_parser: bool = True
    has_adapter: bool = True
    has_following: bool = True
    model: str = ""

    def fill(self, model: str, task: Task) -> Fill:
        with (
            nullcontext() if self.has_parser else patch.object(CandidateSelector, "_is_at_fault", return_value=False),
            nullcontext() if self.has_following else patch.object(judging, "shipped_weights", weigh_no_following),
        ):
            return by_product(open_client(self.model or model, self.has_adapter), task, **self.options)


@dataclass(frozen=True)
class Alone:
    """The surest proposal: no model, no parser."""

    def fill(self, model: str, task: Task) -> Fill:
        document, hole, references = place_task(task)
        proposals = propose(PROPOSERS, Surroundings(document, (hole,), references), 0)
        return Fill(proposals[0].text, proposals[0].certainty, 0.0) if proposals else Fill("", None, 0.0)


WAYS: Final[dict[str, Way | Alone]] = {
    FIRST: Way(),
    "no proposals": Way({"proposers": ()}),
    **{f"without {name}": Way({"proposers": tuple(set(PROPOSERS) - {name})}) for name in PROPOSERS},
    "parser chooses nothing": Way({"repair": False}, has_parser=False),
    "next lines judge nothing": Way(has_following=False),
    "without the adapter": Way(has_adapter=False),
    "base alone": Way({"proposers": ()}, has_adapter=False),
    "embedded": Way(model="embedded"),
    ALONE: Alone(),
}


def place_task(task: Task) -> tuple[Document, Hole, tuple[Reference, ...]]:
    """Finds the hole as `midfill fill --hole` does for an empty range: one blank line replaces a gap of whole lines. A
    gap of several lines is a selection, which keeps the white space at its ends.
    """
    references = tuple(Reference(**each) for each in task.references)
    start = len(task.prefix.encode())
    if "\n" in task.middle.strip():
        whole = Document((task.prefix + task.middle + task.suffix).encode(), task.language)
        hole = hole_at_range(whole, start, start + len(task.middle.encode()))
        document = Document(whole.data[: hole.start_byte] + whole.data[hole.end_byte :], task.language)
        return document, replace(hole, end_byte=hole.start_byte), references
    is_line = task.prefix.endswith("\n") or not task.prefix
    after = task.suffix if not is_line or task.suffix.startswith("\n") else "\n" + task.suffix
    document = Document((task.prefix + after).encode(), task.language)
    return document, hole_at_cursor(document, start), references


def by_product(client: EngineClient, task: Task, **options: Any) -> Fill:
    document, hole, references = place_task(task)
    *_, filled = fill(document, [hole], Options(references=references, **options), client)
    assert isinstance(filled, Filled)
    text = filled.patch.apply(document.data).decode()
    return Fill(text[len(task.prefix) : len(text) - len(task.suffix)], filled.best.certainty, 0.0)


def recurs(task: Task) -> bool:
    """True if the line also occurs elsewhere in its file."""
    return task.middle.strip() in {line.strip() for line in (task.prefix + "\n" + task.suffix).split("\n")}


def shared(tasks: Sequence[Task]) -> float:
    return round(100 * sum(map(recurs, tasks)) / len(tasks), 1)


def measure(name: str, tasks: Sequence[Task], fills: Sequence[Fill]) -> tuple[Row, list[Score]]:
    scores = score(tasks, {task.id: each.text for task, each in zip(tasks, fills, strict=True)})
    groups = [task.group for task in tasks]
    again = [recurs(task) for task in tasks]
    pairs = [(each.certainty, one.exact) for each, one in zip(fills, scores, strict=True) if each.certainty is not None]
    is_sure = [each.certainty is not None and each.certainty >= SURE for each in fills]
    calibration = calibrate(pairs)

    def of(chosen: Sequence[bool]) -> Share | None:
        exact = [one.exact if is_chosen else None for one, is_chosen in zip(scores, chosen, strict=True)]
        return share_of(exact, groups)

    row = Row(
        name=name,
        exact=of([True] * len(tasks)),
        similar=share([each.similarity for each in scores], groups),
        parses=share_of([each.parses for each in scores], groups),
        passed=share_of([each.passed for each in scores], groups),
        recurring=of(again),
        others=of([not each for each in again]),
        sure=share([float(each) for each in is_sure], groups) if pairs else None,
        right=of(is_sure),
        error=None if calibration is None else calibration.error,
        threshold=threshold_of(pairs),
        cpu_ms=round(float(np.median([each.cpu_ms for each in fills])), 1),
    )
    return row, scores


def share_of(values: Sequence[bool | None], groups: Sequence[str]) -> Share | None:
    """The share of true values among the known ones."""
    known = [(float(value), group) for value, group in zip(values, groups, strict=True) if value is not None]
    return share([value for value, _ in known], [group for _, group in known]) if known else None


def tables_of(rows: dict[str, Row], gains: dict[str, Share], tasks: Sequence[Task]) -> Iterator[Table]:
    files = len({task.group for task in tasks})
    title = f"{len(tasks)} lines of {files} files, {shared(tasks)} % of them elsewhere in their file too; own length"
    fills = "exact %", "recurring", "others", "similar", "parses", "passes", "CPU ms", "less"
    yield _table(title, fills, {name: _about_fills(row, gains.get(name)) for name, row in rows.items()})
    told = {name: _about_certainty(row) for name, row in rows.items() if row.error is not None}
    yield _table(f"certainty, sure is {SURE} and more", ("sure %", "right", "error", "3 of 4 from"), told)


def _about_fills(row: Row, gain: Share | None) -> tuple[str, ...]:
    shares = row.exact, row.recurring, row.others, row.similar, row.parses, row.passed
    return *map(show, shares), f"{row.cpu_ms:.0f}", show(gain)


def _about_certainty(row: Row) -> tuple[str, ...]:
    known = ["-" if value is None else f"{value:.2f}" for value in (row.error, row.threshold)]
    return show(row.sure), show(row.right), *known


def _table(title: str, headings: Sequence[str], rows: dict[str, tuple[str, ...]]) -> Table:
    table = Table(title=title, title_justify="left")
    for heading in ("", *headings):
        table.add_column(heading, no_wrap=True)
    for name, values in rows.items():
        table.add_row(name, *values)
    return table


if __name__ == "__main__":
    typer.run(main)
