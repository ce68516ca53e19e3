"""`midfill measure`: compares models on the user's own code. A shell around measuring/."""

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from midfill_infill.cli import options
from midfill_infill.cli.failures import report_failures
from midfill_infill.cli.options import ChangedCommand, DeviceName, complete_model, flag, option
from midfill_infill.cli.view import can_draw
from midfill_infill.errors import INTERRUPTED, MidfillError

if TYPE_CHECKING:
    from midfill_infill.engines.client import EngineClient
    from midfill_infill.filling.fill import Options
    from midfill_infill.measuring.gaps import Gap
    from midfill_infill.measuring.judging import JudgeFit
    from midfill_infill.measuring.outcomes import GapOutcome
    from midfill_infill.measuring.passing import Passing
    from midfill_infill.measuring.table import Measured

    # Passes on the outcomes of the model of that name, and counts them on a progress bar.
    Count = Callable[[str, Iterator[GapOutcome]], Iterator[GapOutcome]]

SETTINGS: Final = {"cls": ChangedCommand}
FLOOR: Final = "no model"  # the row that shows what the user's files alone propose


def measure_command(
    path: Annotated[
        Path, typer.Argument(metavar="[PATH]", help="The folder or file whose code is measured on.")
    ] = Path(),
    model: Annotated[
        list[str] | None,
        option(
            "NAME",
            "A model, or an engine as PROTOCOL:MODEL@URL. Repeatable; by default all that are here.",
            autocompletion=complete_model,
        ),
    ] = None,
    lines: Annotated[int, option("N", "How many lines to fill.", min=0, max=2000)] = 60,
    bodies: Annotated[int, option("N", "How many function bodies to fill.", min=0, max=2000)] = 20,
    changed: Annotated[str | None, option("[=REF]", "Only code changed since a commit (default HEAD).")] = None,
    seed: Annotated[int, option("N", "Draw other lines and bodies.", min=0)] = 0,
    again: Annotated[bool, flag("--again", "Fill anew what was measured today already.")] = False,
    device: options.DeviceOption = "auto",
    until: Annotated[
        str | None,
        option("COMMAND", "Also count the Python bodies with which this command passes, such as 'pytest -q'."),
    ] = None,
    command_timeout: options.CommandTimeoutOption = None,
    sandbox: options.SandboxOption = True,
    allow: options.AllowOption = None,
    env: options.EnvOption = None,
    json_output: Annotated[bool, flag("--json", "Print one JSON object and nothing else.")] = False,
) -> None:
    """Compare models on your own code.

    Blanks lines and function bodies in copies of your files, those changed last first, lets each model fill them, and
    compares the fills with what you wrote. Writes none of your files. Keeps how often each model was right, so that its
    later fills say how sure they are. What was measured within a day is not filled again, and Ctrl-C prints what there
    is.
    """
    with report_failures(as_json=json_output):
        from midfill_infill.measuring.gaps import draw_gaps
        from midfill_infill.repository.roots import find_repository

        if not path.exists():
            raise MidfillError("file_missing", f"{path} does not exist", "name a folder or a file")
        repository = find_repository(path if path.is_dir() else Path(os.path.realpath(path)).parent)
        gaps = mix(draw_gaps(repository, path, {"line": lines, "body": bodies}, changed, seed))
        if not gaps:
            message = f"there is no line and no function body to measure in {path}"
            raise MidfillError("no_hole", message, "name another folder, or leave --changed out")
        passing = None
        if until is not None:
            from midfill_infill.cli.until import read_goal, warn_of
            from midfill_infill.measuring.passing import Passing

            goal = read_goal(until, 1, command_timeout, sandbox, allow, env)
            warn_of(goal.command)
            passing = Passing(goal.command, Path.cwd(), command_timeout)
        comparison = Comparison(gaps, repository.root, device, passing, quiet=json_output, again=again)
        measured, was_interrupted = comparison.measure_all(model or list_models())
        if json_output:
            print(json.dumps(describe_all(gaps, measured), indent=2))
        else:
            show(gaps, measured, passing.skipped if passing else [])
        if was_interrupted:
            raise typer.Exit(INTERRUPTED)
        if all(each.stopped_by for each in measured if not each.is_floor):
            raise typer.Exit(1)


def mix(gaps: "Sequence[Gap]") -> "list[Gap]":
    """The gaps with lines and bodies spread evenly, so that a run that is interrupted has measured both."""
    by_kind: dict[str, list[Gap]] = {}
    for gap in gaps:
        by_kind.setdefault(gap.kind, []).append(gap)
    placed: list[tuple[float, Gap]] = []
    for same_kind in by_kind.values():
        placed += [((index + 0.5) / len(same_kind), gap) for index, gap in enumerate(same_kind)]
    return [gap for _, gap in sorted(placed, key=lambda pair: pair[0])]


def list_models() -> list[str]:
    """The engine that the user named, and every model on this machine; the one that ships only if there is no other."""
    from midfill_infill import config
    from midfill_infill.engines import supervise
    from midfill_infill.engines.fetching import list_stock
    from midfill_infill.engines.installed import missing_engine_packages

    engine = config.load()["engine"].value
    engines = [] if engine is None else [str(engine)]
    if missing_engine_packages():
        return engines or [supervise.SHIPPED]
    chosen = config.load(Path.cwd())["model"].value or supervise.default_model()
    models = [str(chosen)] if chosen else []
    models += [each.model for each in list_stock().data if each.is_whole]
    return [*engines, *(dict.fromkeys(models) or [supervise.SHIPPED])]


class Comparison:
    """Measures models one after the other, with a progress bar on a terminal."""

    def __init__(
        self, gaps: "Sequence[Gap]", root: Path, device: DeviceName, test: "Passing | None", *, quiet: bool, again: bool
    ) -> None:
        """`test` tests the bodies that are filled."""
        from midfill_infill.measuring.measure import Context

        self._gaps, self._device, self._test, self._is_quiet, self._again = gaps, device, test, quiet, again
        self._context = Context(root)

    def measure_all(self, names: Sequence[str]) -> "tuple[list[Measured], bool]":
        """The models with their outcomes, the floor first, and True if the user has interrupted the comparison."""
        from midfill_infill.measuring.measure import copy_from_files
        from midfill_infill.measuring.table import Measured

        measured: list[Measured] = []
        with open_meter(len(self._gaps), is_quiet=self._is_quiet) as count, self._test or nullcontext():
            try:
                floor = list(count(FLOOR, copy_from_files(self._gaps, self._context)))
                measured.append(Measured(FLOOR, floor, is_floor=True))
                for name in dict.fromkeys(names):
                    outcomes: list[GapOutcome] = []
                    measured.append(Measured(name, outcomes))  # now, because an interrupt ends this with some outcomes
                    try:
                        judge = self._measure(name, outcomes, count)
                        measured[-1] = replace(measured[-1], judge=judge)
                    except MidfillError as error:
                        measured[-1] = Measured(name, outcomes, error.sentence)
            except KeyboardInterrupt:
                return measured, True
        return measured, False

    def _measure(self, name: str, outcomes: "list[GapOutcome]", count: "Count") -> "JudgeFit | None":
        """Measures a model and adds its outcomes to `outcomes` as they come, so that an interrupt keeps them. Returns
        what decides among its lines, if that was fitted.
        """
        from midfill_infill.measuring.measure import Measuring

        with open_model(name, self._device, is_quiet=self._is_quiet) as opened:
            measuring = Measuring(opened.client, opened.options, self._context, opened.find_bytes, self._test)
            for outcome in count(name, measuring.run(self._gaps, again=self._again)):
                outcomes.append(outcome)
            return measuring.fit()


@dataclass(frozen=True)
class OpenedModel:
    """A connection to a model, the options of its fills, and what returns the bytes of its engine's memory."""

    client: "EngineClient"
    options: "Options"
    find_bytes: Callable[[], int | None]


@contextmanager
def open_model(name: str, device: DeviceName, *, is_quiet: bool) -> Iterator[OpenedModel]:
    """Opens an engine with that model. If this starts it, it ends again, unless it is the one that fills by default."""
    from midfill_infill import config
    from midfill_infill.cli import engine
    from midfill_infill.engines import offer, supervise
    from midfill_infill.engines.client import EngineClient
    from midfill_infill.engines.endpoint import parse_engine
    from midfill_infill.engines.notes import note
    from midfill_infill.engines.outside import PROTOCOLS
    from midfill_infill.engines.supervise import EngineSettings
    from midfill_infill.filling.opening import read_options

    options = read_options()
    if name.partition(":")[0] in PROTOCOLS:
        endpoint = parse_engine(name, config.choose_context_tokens())
        offer.print_where(endpoint.remote_host)
        with EngineClient(endpoint) as client:
            yield OpenedModel(client, options, lambda: None)
        return
    settings = EngineSettings(model=supervise.check_model(name), device=device, project=Path.cwd())
    place = supervise.find_place(settings)
    was_running = place.is_alive
    default_place = supervise.find_place(EngineSettings(device=device, project=Path.cwd()))
    try:
        endpoint = supervise.ensure_own(settings, (lambda _: None) if is_quiet else note)
        with EngineClient(endpoint) as client:
            yield OpenedModel(client, options, lambda: place.resident_bytes)
    finally:
        if not was_running and place != default_place and place.is_alive and place.pid is not None:
            engine.end(place, place.pid)


@contextmanager
def open_meter(total: int, *, is_quiet: bool) -> "Iterator[Count]":
    """Yields a function that passes on the outcomes of a model, and counts them on a bar if stderr is a terminal that
    can draw one and the command is not quiet.
    """
    if is_quiet or not can_draw(sys.stderr):
        yield lambda _, outcomes: outcomes
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:

        def count(name: str, outcomes: "Iterator[GapOutcome]") -> "Iterator[GapOutcome]":
            task = bar.add_task(name, total=total)
            for outcome in outcomes:
                bar.advance(task)
                yield outcome

        yield count


def describe_all(gaps: "Sequence[Gap]", measured: "Sequence[Measured]") -> dict[str, Any]:
    """Everything that was measured, as values for JSON; no code."""
    from midfill_infill.measuring.table import describe, describe_choice

    return {
        "lines": sum(gap.kind == "line" for gap in gaps),
        "bodies": sum(gap.kind == "body" for gap in gaps),
        "files": len({gap.name for gap in gaps}),
        "models": [describe(each) for each in measured],
        "choice": describe_choice(measured),
    }


def show(gaps: "Sequence[Gap]", measured: "Sequence[Measured]", skipped: Sequence[str]) -> None:
    """Prints the table, how often fills of each certainty were right, what was not tested, and the choice."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from midfill_infill.measuring.gaps import LONGEST_BODY
    from midfill_infill.measuring.table import describe_judge

    is_terminal = sys.stdout.isatty()
    console = Console(highlight=False, markup=False, soft_wrap=not is_terminal, width=None if is_terminal else 140)
    has_tests = any(outcome.passes is not None for each in measured for outcome in each.outcomes)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("model", overflow="fold")
    titles = ["lines exact", "a line", "bodies exact", "similar", "parse", "a body", "memory"]
    if has_tests:
        titles.insert(titles.index("a body"), "pass")
    for title in titles:
        table.add_column(title, justify="right")
    for each in measured:
        table.add_row(*list_cells(each, has_tests))
    console.print(table)
    facts = describe_all(gaps, measured)
    print(
        f"{facts['lines']} lines and {facts['bodies']} bodies of 1 to {LONGEST_BODY} lines in {facts['files']} files;"
        f" exact: as it stood there (95 % interval);\nsimilar: mean over bodies; times: median to the first text and to"
        f" the end; {FLOOR}: what the files alone propose"
    )
    for model in facts["models"]:
        for kind, sureness in model["certainty"].items():
            if sureness and not model["is_floor"]:
                print(f"{model['name']}, how sure of {'lines' if kind == 'line' else 'bodies'}: {sureness}")
        if model["error"]:
            print(f"{model['name']}: {model['error']}")
    for each in measured:
        if each.judge:
            print(f"{each.name}: {describe_judge(each.judge)}")
    if skipped:
        print(f"not tested, {len(skipped)} of the bodies, such as: {skipped[0]}")
    if facts["choice"]:
        print(facts["choice"])


def list_cells(measured: "Measured", has_tests: bool) -> list[str]:
    """The cells of a model's row in the table; `has_tests` adds the one for bodies with which the command passes."""
    from midfill_infill.measuring.table import Summary

    line = Summary.build(measured.outcomes_of("line"))
    body = Summary.build(measured.outcomes_of("body"))
    num_bytes = measured.num_bytes

    def show_times(summary: Summary | None) -> str:
        return f"{summary.preview_s:.1f} / {summary.end_s:.1f} s" if summary else "-"

    cells = [
        measured.name,
        str(line.exact) if line else "-",
        show_times(line),
        str(body.exact) if body else "-",
        f"{body.similar:.0f} %" if body else "-",
        f"{body.parses:.0f} %" if body else "-",
    ]
    if has_tests:
        cells.append(str(body.passes) if body and body.passes else "-")
    return [*cells, show_times(body), f"{num_bytes / 1e6:.0f} MB" if num_bytes is not None else "-"]
