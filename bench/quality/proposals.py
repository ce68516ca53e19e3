"""`python -m bench quality.proposals [SUITE]`: what proposers bring to the whole product, on lines in their files.

Every way fills every gap in one process, greedily and at its own length, through the command's own code: context,
proposals, engine, parser. Lines that stand elsewhere in their file are counted apart, and so are fills that say they
are sure. Knows suites, the engine and the fill; runs no program.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any, Final, Literal
from unittest.mock import patch

import numpy as np
import torch
import typer
from rich.console import Console
from rich.table import Table

from bench.quality import drawn
from bench.quality.calibration import calibrate, threshold_of
from bench.quality.product import (
    Fill,
    ModelName,
    by_product,
    describe_fills,
    keep_fills,
    name_fills,
    open_client,
    place_task,
)
from bench.quality.report import find_origin, find_weights, open_paper, show
from bench.quality.score import Score, Share, difference, score, share
from bench.quality.suite import Task, read_suite
from midfill_engine import judging
from midfill_engine.judging import JudgeWeights, Kind, shipped_weights
from midfill_engine.wire import BASE
from midfill_infill.filling.candidates import CandidateSelector
from midfill_infill.proposals import PROPOSERS, Surroundings, propose

SURE: Final = 0.5
FIRST: Final = "as shipped"
ALONE: Final = "proposals alone"


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
    model: ModelName = BASE,
    keep: Annotated[Path | None, typer.Option(help="A folder: fills are kept there, and not made again.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write the record here as JSON.")] = None,
    threads: Annotated[int, typer.Option(min=1)] = 1,
) -> None:
    """Measures the product as it ships, without proposers, without each of them, and without the parser's choice."""
    names = choose_ways(only, WAYS)
    torch.set_num_threads(threads)
    if suite is None:
        suite = drawn.rebuild(language)
        keep = keep or drawn.FOLDER / language / name_fills(model)
    chosen = read_suite(suite, split=split, kind=kind, limit=limit)
    facts = describe_fills(model, chosen)
    tasks = chosen.tasks
    rows: dict[str, Row] = {}
    exact: dict[str, list[float]] = {}
    for name in names:
        fills = keep_fills(keep, name, facts, tasks, partial(WAYS[name].fill, model))
        rows[name], scores = measure(name, tasks, fills)
        exact[name] = [float(one.exact) for one in scores]
        Console(stderr=True).print(f"{name}: {show(rows[name].exact)}")
    groups = [task.group for task in tasks]
    first = next(iter(rows))
    gains = {name: difference(exact[first], values, groups) for name, values in exact.items() if name != first}
    paper = open_paper()
    for table in tables_of(rows, gains, tasks):
        paper.print(table)
    if out is not None:
        record = {
            **asdict(find_origin(find_weights(model), "none", 1.0)),
            "model": model,
            "gaps": len(tasks),
            "files": len(set(groups)),
            "recurring": shared(tasks),
            "rows": [asdict(row) for row in rows.values()],
            "gains": {name: asdict(gain) for name, gain in gains.items()},
        }
        out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def choose_ways(only: Sequence[str] | None, known: Iterable[str]) -> list[str]:
    """The names to measure, all known ones by default. Raises BadParameter."""
    unknown = set(only or ()).difference(known)
    if unknown:
        raise typer.BadParameter(f"{', '.join(sorted(unknown))}: known are {', '.join(known)}")
    return list(only or known)


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
        with ExitStack() as patches:
            if not self.has_parser:
                patches.enter_context(patch.object(CandidateSelector, "_is_at_fault", return_value=False))
            if not self.has_following:
                patches.enter_context(patch.object(judging, "shipped_weights", weigh_no_following))
            return by_product(open_client(self.model or model, self.has_adapter), task, **self.options)


@dataclass(frozen=True)
class Alone:
    """The surest proposal: no model, no parser."""

    def fill(self, model: str, task: Task) -> Fill:
        document, hole = place_task(task)
        proposals = propose(PROPOSERS, Surroundings(document, (hole,), task.shown_references), 0)
        if not proposals:
            return Fill("", None, 0.0)
        return Fill(proposals[0].text, proposals[0].certainty, 0.0)


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


def recurs(task: Task) -> bool:
    """True if the line also occurs elsewhere in its file."""
    lines = f"{task.prefix}\n{task.suffix}".split("\n")
    return task.middle.strip() in map(str.strip, lines)


def shared(tasks: Sequence[Task]) -> float:
    return round(100 * sum(map(recurs, tasks)) / len(tasks), 1)


def score_fills(tasks: Sequence[Task], fills: Sequence[Fill]) -> tuple[list[Score], list[tuple[float, bool]]]:
    """A score per fill, and of each fill that has a certainty this and whether it is exact."""
    texts = {task.id: made.text for task, made in zip(tasks, fills, strict=True)}
    scores = score(tasks, texts)
    pairs = []
    for made, one in zip(fills, scores, strict=True):
        if made.certainty is not None:
            pairs.append((made.certainty, one.exact))
    return scores, pairs


def measure(name: str, tasks: Sequence[Task], fills: Sequence[Fill]) -> tuple[Row, list[Score]]:
    scores, pairs = score_fills(tasks, fills)
    groups = [task.group for task in tasks]
    recurring = [recurs(task) for task in tasks]
    is_sure = [made.certainty is not None and made.certainty >= SURE for made in fills]
    calibration = calibrate(pairs)

    def exact_among(chosen: Sequence[bool]) -> Share | None:
        exact = [one.exact if is_chosen else None for one, is_chosen in zip(scores, chosen, strict=True)]
        return share_of(exact, groups)

    row = Row(
        name=name,
        exact=exact_among([True] * len(tasks)),
        similar=share([one.similarity for one in scores], groups),
        parses=share_of([one.parses for one in scores], groups),
        passed=share_of([one.passed for one in scores], groups),
        recurring=exact_among(recurring),
        others=exact_among([not recurs_here for recurs_here in recurring]),
        sure=share(list(map(float, is_sure)), groups) if pairs else None,
        right=exact_among(is_sure),
        error=None if calibration is None else calibration.error,
        threshold=threshold_of(pairs),
        cpu_ms=round(float(np.median([made.cpu_ms for made in fills])), 1),
    )
    return row, scores


def share_of(values: Sequence[bool | None], groups: Sequence[str]) -> Share | None:
    """The share of true values among the known ones."""
    known: list[float] = []
    groups_of_known: list[str] = []
    for value, group in zip(values, groups, strict=True):
        if value is not None:
            known.append(float(value))
            groups_of_known.append(group)
    return share(known, groups_of_known) if known else None


def tables_of(rows: dict[str, Row], gains: dict[str, Share], tasks: Sequence[Task]) -> Iterator[Table]:
    files = len({task.group for task in tasks})
    title = f"{len(tasks)} lines of {files} files, {shared(tasks)} % of them elsewhere in their file too; own length"
    fills = _start_table(title, "exact %", "recurring", "others", "similar", "parses", "passes", "CPU ms", "less")
    certainty = _start_table(f"certainty, sure is {SURE} and more", "sure %", "right", "error", "3 of 4 from")
    for name, row in rows.items():
        shares = (row.exact, row.recurring, row.others, row.similar, row.parses, row.passed)
        fills.add_row(name, *map(show, shares), f"{row.cpu_ms:.0f}", show(gains.get(name)))
        if row.error is not None:
            threshold = "-" if row.threshold is None else f"{row.threshold:.2f}"
            certainty.add_row(name, show(row.sure), show(row.right), f"{row.error:.2f}", threshold)
    yield fills
    yield certainty


def _start_table(title: str, *headings: str) -> Table:
    table = Table(title=title, title_justify="left")
    for heading in ("", *headings):
        table.add_column(heading, no_wrap=True)
    return table


if __name__ == "__main__":
    typer.run(main)
