"""`python -m bench.quality.experts [SUITE]`: what experts bring to the whole product, on lines with their files around.

Every way fills every gap in one process, greedily and at its own length, through the command's own code: context,
references, engine, parser, choice. Lines that stand elsewhere in their file are counted apart, and so are fills that
say they are sure. Knows suites, the engine and the fill; runs no program.
"""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Final, cast

import numpy as np
import torch
import typer
from rich.console import Console
from rich.table import Table

from bench.quality import drawn
from bench.quality.calibration import calibrate
from bench.quality.floors import LineTable
from bench.quality.report import SHIPPED, WIDTH, find_origin, show
from bench.quality.score import Score, Share, difference, score, share
from bench.quality.suite import Task, read_suite
from midfill_engine.denoising.denoise import denoise, drain
from midfill_engine.experts import Experts, Gap, Remote, Sources
from midfill_engine.experts.counts import PARTS, Counts
from midfill_engine.loading.runtime import Runtime, load_runtime
from midfill_engine.tokens.tokenizer import heal
from midfill_engine.wire import (
    FilledHole,
    HoleSegment,
    HoleSpec,
    InfillRequest,
    InfillResponse,
    Reference,
    Segment,
    StepEvent,
    TextSegment,
)
from midfill_infill.engines.client import EngineClient
from midfill_infill.fill import Filled, Options, fill
from midfill_infill.syntax.holes import hole_at_cursor
from midfill_infill.text.document import Document
from training.drafts import threshold_of

SURE: Final = 0.5
FIRST: Final = "as shipped"
REMASKED: Final = "weak tokens remasked"
REPLACED: Final = 0.7
MOST: Final = 6000  # characters of either side, more than the model sees


@dataclass(frozen=True)
class Fill:
    text: str
    certainty: float | None
    cpu_ms: float


@dataclass(frozen=True)
class Row:
    """Shares in percent, intervals over files. `sure` fills have a certainty of SURE or more; `right` are exact.

    `error` is that of calibration, `threshold` the certainty from which on three of four are right.
    """

    name: str
    exact: Share
    similar: Share
    parses: Share | None
    passed: Share | None
    recurring: Share
    others: Share
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
    keep: Annotated[Path | None, typer.Option(help="A folder: fills are kept there, and not made again.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write the record here as JSON.")] = None,
    threads: Annotated[int, typer.Option(min=1)] = 1,
) -> None:
    """Measures the shipped model with its experts, without them, with each part switched off, and the floors."""
    makers = Makers()
    if unknown := set(only or ()).difference(makers.names):
        raise typer.BadParameter(f"{', '.join(sorted(unknown))}: known are {', '.join(makers.names)}")
    torch.set_num_threads(threads)
    if suite is None:
        suite, keep = drawn.rebuild(language), keep or drawn.FOLDER / language
    tasks = read_suite(suite, split=split, kind=kind, limit=limit).tasks
    rows: dict[str, Row] = {}
    exact: dict[str, list[float]] = {}
    for name in only or makers.names:
        fills = list(kept(keep, name, tasks, makers.find(name)))
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

    endpoint = SimpleNamespace(is_outside=False)

    def __init__(self, runtime: Runtime, **changes: object) -> None:
        self._runtime, self._changes = runtime, changes

    def models(self) -> tuple[object, ...]:
        return (self._runtime.info,)

    def infill(self, request: InfillRequest) -> Iterator[StepEvent | InfillResponse]:
        yield (yield from denoise(self._runtime, request.model_copy(update=self._changes)))


@dataclass(frozen=True)
class Way:
    """The product with `changes` to its requests, and with drafts from these `parts` only."""

    changes: dict[str, object] = field(default_factory=dict)
    parts: frozenset[str] = PARTS


WAYS: Final = {
    FIRST: Way(),
    "no experts": Way({"experts": [], "num_drafts": 0}),
    "copying only": Way({"experts": ["copying"], "num_drafts": 0}),
    "drafts only": Way({"experts": ["counts"]}),
    "parser chooses nothing": Way({"num_drafts": 0}),
    **{f"without {part}": Way(parts=PARTS - {part}) for part in sorted(PARTS - {"beam"})},  # it has no part in lines
}
DRAFTS: Final = {
    "first draft": Counts(),
    "floor: beam alone": Counts(parts=frozenset({"beam"}), is_ranked=False),
}


class Makers:
    """What fills a gap in a way."""

    names = (*WAYS, REMASKED, *DRAFTS, "floor: lines of the file")

    @cached_property
    def _runtime(self) -> Runtime:
        return load_runtime("embedded", "cpu")

    def find(self, name: str) -> Callable[[Task], Fill]:
        if name in DRAFTS:
            return partial(first_draft, DRAFTS[name])
        if name == REMASKED:
            return partial(by_remasking, self._runtime, self.find(FIRST))
        if name not in WAYS:
            return by_lines
        experts = Experts()
        experts.put("counts", Counts(parts=WAYS[name].parts))
        runtime = replace(self._runtime, experts=experts)
        return partial(by_product, cast(EngineClient, Local(runtime, **WAYS[name].changes)))


def by_product(client: EngineClient, task: Task) -> Fill:
    """As `midfill fill --hole` fills an empty range: where the gap was whole lines, one blank line stands there."""
    is_line = task.prefix.endswith("\n") or not task.prefix
    after = task.suffix if not is_line or task.suffix.startswith("\n") else "\n" + task.suffix
    document = Document((task.prefix + after).encode(), task.language)
    references = tuple(Reference(**each) for each in task.references)
    hole = hole_at_cursor(document, len(task.prefix.encode()))
    *_, filled = fill(document, [hole], Options(references=references), client)
    assert isinstance(filled, Filled)
    text = filled.patch.apply(document.data).decode()
    return Fill(text[len(task.prefix) : len(text) - len(task.suffix)], filled.best.certainty, 0.0)


def by_remasking(runtime: Runtime, make: Callable[[Task], Fill], task: Task) -> Fill:
    """A draft in which the model has settled anew, of the tokens that it would rather not have, the one it is surest
    of: each is masked alone, and REPLACED is the confidence that another must have.
    """
    made = make(task)
    if made.certainty is None or not made.text.strip() or "\n" in made.text:
        return made
    spans, best, found = ask_again(runtime, task, made.text, 0, 0).tokens, REPLACED, made.text
    for start, end in spans:
        hole = ask_again(runtime, task, made.text, start, end)
        stop = len(hole.text) - (len(made.text) - end)
        inner = [sure for (a, b), sure in zip(hole.tokens, hole.confidence, strict=True) if a < stop and b > start]
        if hole.text != made.text and inner and min(inner) >= best:
            best, found = min(inner), hole.text
    return replace(made, text=found)


def ask_again(runtime: Runtime, task: Task, text: str, start: int, end: int) -> FilledHole:
    """The answer for a draft of which all but one token is kept."""
    keep = [(first, last) for first, last in ((0, start), (end, len(text))) if first < last]
    size = 1 if start < end else 0
    hole = HoleSpec(draft=text, keep=keep, min_tokens=size, max_tokens=size or None)
    before, after = task.prefix[-MOST:], task.suffix[:MOST]
    segments: list[Segment] = [TextSegment(text=before), HoleSegment(hole=hole), TextSegment(text=after)]
    request = InfillRequest(segments=segments, experts=["copying"], quality=1.0)
    return drain(denoise(runtime, request)).holes[0]


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
        parses=share_of([each.parses for each in scores], groups),
        passed=share_of([each.passed for each in scores], groups),
        recurring=of(again),
        others=of([not each for each in again]),
        sure=share([float(each) for each in is_sure], groups) if pairs else None,
        right=of(is_sure) if any(is_sure) else None,
        error=None if calibration is None else calibration.error,
        threshold=threshold_of(pairs),
        cpu_ms=round(float(np.median([each.cpu_ms for each in fills])), 1),
    )
    return row, scores


def share_of(values: Sequence[bool | None], groups: Sequence[str]) -> Share | None:
    """Of those that are known."""
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
