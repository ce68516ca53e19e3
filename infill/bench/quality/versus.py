"""`python -m bench.quality.versus SUITE`: diffusion and the autoregressive baseline on the same gaps, side by side.

They take turns gap by gap in one process, so both meet the same load, and differences are paired. The diffusion model
fills as it is, one token a step, and as the engine does: at its default speed, copying from the document.
"""

import json
import platform
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Final, cast

import numpy as np
import torch
import typer
from rich.console import Console
from rich.table import Table

from bench.quality.complete import Completion, Length
from bench.quality.contenders import Autoregressive, Contender, Diffusion, Maker, bits_of, maker_of
from bench.quality.kept import Kept, KeptError
from bench.quality.measure import Note, Row, row_of, success_of
from bench.quality.report import SHIPPED, WIDTH, find_origin, show
from bench.quality.sandbox import Limits, Wall, best_wall
from bench.quality.score import NUM_DRAWS, Estimate, Score, Share, difference, ratio, score
from bench.quality.suite import Suite, SuiteError, Task, read_suite
from midfill_engine.loading.runtime import load_runtime
from training.baseline import Baseline

LENGTHS: Final[tuple[Length, ...]] = ("own", "oracle")


@dataclass(frozen=True)
class Bits:
    """Bits per byte of the middles given their number of tokens: exact for the baseline, a bound for diffusion."""

    name: str
    with_suffix: Estimate
    without_suffix: Estimate
    suffix_gain_percent: float


@dataclass(frozen=True)
class Against:
    """A contender minus the baseline at one length: points, paired over problems; and how many times as long it takes.

    `time_ratio` is the median over gaps of the ratio of both times.
    """

    name: str
    length: str
    pass_at_1: Share | None
    exact_match: Share
    edit_similarity: Share
    time_ratio: Estimate


@dataclass(frozen=True)
class Comparison:
    rows: tuple[Row, ...]
    bits: tuple[Bits, ...]
    bits_against: dict[str, Estimate]
    against: tuple[Against, ...]


Fills = dict[tuple[str, str], list[Completion]]


def run(contenders: Sequence[Contender], tasks: Sequence[Task], kept: Kept, note: Note) -> Fills:
    """Every fill with its milliseconds, by contender and length. One fill of each goes before, untimed."""
    for contender in contenders:
        contender.fill(tasks[0], "own")
    fills: Fills = {(contender.name, str(length)): [] for contender in contenders for length in LENGTHS}
    for number, task in enumerate(tasks):
        turn = number % len(contenders)  # nobody is always first
        for length in LENGTHS:
            for contender in (*contenders[turn:], *contenders[:turn]):
                fills[contender.name, str(length)].append(_fill(contender, task, length, kept))
        if (number + 1) % 50 == 0:
            note(f"{number + 1} of {len(tasks)} gaps")
    return fills


def _fill(contender: Contender, task: Task, length: Length, kept: Kept) -> Completion:
    condition = f"{contender.name}, {length}"
    known = kept.get(condition, task.id)
    if known is not None:
        return known
    started_s = time.perf_counter()
    text = contender.fill(task, length)
    completion = Completion(text.text, ms=(time.perf_counter() - started_s) * 1000, refusal=text.refusal)
    kept.put(condition, task.id, completion)
    return completion


def compare(
    contenders: Sequence[Contender], suite: Suite, fills: Fills, limits: Limits | None = None, wall: Wall | None = None
) -> Comparison:
    """The last contender is the baseline that the others are compared with."""
    tasks, baseline = suite.tasks, contenders[-1].name
    scores: dict[tuple[str, str], list[Score]] = {
        key: score(tasks, {task.id: fill.text for task, fill in zip(tasks, column, strict=True)}, limits, wall)
        for key, column in fills.items()
    }
    rows = [row_of(name, scores[name, length], length, True, fills[name, length]) for name, length in fills]
    others = [contender.name for contender in contenders[:-1]]
    against = [
        _against(name, length, suite, *((scores[each, length], fills[each, length]) for each in (name, baseline)))
        for length in map(str, LENGTHS)
        for name in others
    ]
    bits, bits_against = compare_bits([contenders[0], contenders[-1]], tasks)
    return Comparison(tuple(rows), tuple(bits), bits_against, tuple(against))


def _against(
    name: str,
    length: str,
    suite: Suite,
    first: tuple[list[Score], list[Completion]],
    second: tuple[list[Score], list[Completion]],
) -> Against:
    groups = [task.group for task in suite.tasks]
    (scores, fills), (other_scores, other_fills) = first, second
    has_tests = all(task.tests is not None for task in suite.tasks)
    return Against(
        name=name,
        length=length,
        pass_at_1=difference(success_of(scores), success_of(other_scores), groups) if has_tests else None,
        exact_match=difference([row.exact for row in scores], [row.exact for row in other_scores], groups),
        edit_similarity=difference(
            [row.similarity for row in scores], [row.similarity for row in other_scores], groups
        ),
        time_ratio=median_ratio([fill.ms for fill in fills], [fill.ms for fill in other_fills]),
    )


def median_ratio(first: Sequence[float], second: Sequence[float]) -> Estimate:
    """The median of the paired ratios, bootstrapped over pairs."""
    ratios = np.asarray(first) / np.asarray(second)
    drawn = np.random.default_rng(0).integers(0, len(ratios), (NUM_DRAWS, len(ratios)))
    low, high = np.quantile(np.median(ratios[drawn], axis=1), (0.025, 0.975))
    return Estimate(*(round(float(number), 3) for number in (np.median(ratios), low, high)))


def compare_bits(contenders: Sequence[Contender], tasks: Sequence[Task]) -> tuple[list[Bits], dict[str, Estimate]]:
    """Each one's bits per byte with and without suffix, and the first's minus the last's, where all can."""
    known: dict[tuple[str, bool], list[float | None]] = {
        (each.name, sees): [each.nats(task, sees) for task in tasks] for each in contenders for sees in (True, False)
    }
    fitting = [place for place in range(len(tasks)) if all(column[place] is not None for column in known.values())]
    groups = [tasks[place].group for place in fitting]
    num_bytes = [float(len(tasks[place].middle.encode())) for place in fitting]
    bits = {key: [bits_of(cast("float", column[place])) for place in fitting] for key, column in known.items()}
    found = []
    for each in contenders:
        seen, blind = (ratio(bits[each.name, sees], num_bytes, groups) for sees in (True, False))
        found.append(Bits(each.name, seen, blind, round(100 * (blind.value / seen.value - 1), 1)))
    gains = {
        label: ratio(
            np.subtract(bits[contenders[0].name, sees], bits[contenders[-1].name, sees]).tolist(),
            num_bytes,
            groups,
        )
        for label, sees in (("with_suffix", True), ("without_suffix", False))
    }
    return found, gains


def tables(comparison: Comparison, title: str) -> list[Table]:
    """Rows by length, then what each has to the baseline, then bits."""
    rows = Table(title=title, title_justify="left")
    for heading in ("", "length", "pass@1 %", "exact %", "similar %", "parses %", "ms"):
        rows.add_column(heading, no_wrap=True)
    for row in comparison.rows:
        cells = [show(value) for value in (row.pass_at_1, row.exact_match, row.edit_similarity, row.parses)]
        rows.add_row(row.name, row.length, *cells, f"{row.median_ms:.0f}")
    against = Table(title="Minus the baseline, paired: points, and times as long", title_justify="left")
    for heading in ("", "length", "pass@1", "exact", "similar", "time"):
        against.add_column(heading, no_wrap=True)
    for each in comparison.against:
        cells = [show(value) for value in (each.pass_at_1, each.exact_match, each.edit_similarity)]
        against.add_row(each.name, each.length, *cells, _show(each.time_ratio))
    bits = Table(title="Bits per byte given the number of tokens; diffusion's are upper bounds", title_justify="left")
    for heading in ("", "both sides", "no suffix", "without it worse by"):
        bits.add_column(heading, no_wrap=True)
    for found in comparison.bits:
        gain = f"{found.suffix_gain_percent} %"
        bits.add_row(found.name, _show(found.with_suffix), _show(found.without_suffix), gain)
    bits.add_row("diffusion - baseline", *map(_show, comparison.bits_against.values()), "")
    return [rows, against, bits]


def _show(value: Estimate) -> str:
    return f"{value.value:.3f} ({value.low:.3f} to {value.high:.3f})"


def to_json(
    suite: Suite, comparison: Comparison, makers: dict[str, Maker], conditions: dict[str, object]
) -> dict[str, object]:
    """The record; nothing of the tasks but their number and the suite's hash."""
    return {
        "suite": suite.summary,
        **conditions,
        "interval": f"95 %, {NUM_DRAWS} bootstrap draws over problems; of times over gaps",
        "makers": {name: asdict(maker) for name, maker in makers.items()},
        **asdict(comparison),
    }


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    suite: Annotated[Path, typer.Argument(help="JSON lines of {id, prefix, middle, suffix, program_tail...}, or .gz")],
    baseline: Annotated[Path, typer.Argument(help="A snapshot of `training train --objective fim`.")],
    model: Annotated[Path, typer.Option(help="A checkpoint of the embedded family.")] = SHIPPED / "embedded",
    split: Annotated[str | None, typer.Option(help="Only this split, where rows name one.")] = None,
    kind: Annotated[str | None, typer.Option(help="Only this kind, where rows name one.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="So many gaps, by hash of their ids.")] = None,
    threads: Annotated[int, typer.Option(min=1, help="Of torch, for each in its turn.")] = 1,
    out: Annotated[Path | None, typer.Option(help="Write the record here as JSON, and beside it a plot.")] = None,
    keep: Annotated[Path | None, typer.Option(help="Keep completions here, and go on from it.")] = None,
) -> None:
    """Fills every gap of SUITE by the diffusion model and by the BASELINE, and compares quality and time."""
    torch.set_num_threads(threads)
    console, wall = Console(stderr=True), best_wall()
    try:
        tasks = read_suite(suite, split=split, kind=kind, limit=limit)
    except SuiteError as error:
        raise typer.BadParameter(str(error)) from None
    runtime, other = load_runtime(str(model), "cpu"), Baseline(baseline)
    contenders: list[Contender] = [
        Diffusion(runtime, "diffusion", quality=1.0),
        Diffusion(runtime, "diffusion, as the engine fills", quality=None),
        Autoregressive(other),
    ]
    makers = {
        "diffusion": maker_of(model, runtime.loaded.parameters),
        contenders[-1].name: maker_of(baseline, other.num_parameters),
    }
    of: dict[str, str | float | None] = {"suite": tasks.sha256, "threads": threads}
    of |= {name: maker.weights_sha256 for name, maker in makers.items()}
    try:
        with Kept(keep, of) as kept:
            fills = run(contenders, tasks.tasks, kept, console.print)
    except KeptError as error:
        raise typer.BadParameter(str(error)) from None
    comparison = compare(contenders, tasks, fills, wall=wall)
    origin = find_origin(None, wall, 1.0)
    conditions: dict[str, object] = {
        **{name: value for name, value in asdict(origin).items() if name not in ("weights_sha256", "quality")},
        "python": platform.python_version(),
        "torch": torch.__version__,
        "torch_threads": threads,
    }
    title = f"{tasks.title}: greedy, one CPU process, {threads} thread(s), {origin.date}, commit {origin.commit}"
    paper = Console(width=None if Console().is_terminal else WIDTH)
    for table in tables(comparison, title):
        paper.print(table)
    if out is not None:
        from bench.quality.plot import draw_versus  # a second of imports that --help does not need

        record = to_json(tasks, comparison, makers, conditions)
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        draw_versus(record, out.with_suffix(".svg"))


if __name__ == "__main__":
    app()
