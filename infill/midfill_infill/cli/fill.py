"""`midfill fill`: from options to holes, through a fill, to a diff, a written file or JSON. A shell around fill.py."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer.core import TyperCommand

from midfill_infill.cli.failures import report_failures
from midfill_infill.cli.options import (
    AllowOption,
    CommandTimeoutOption,
    DeviceOption,
    EnvOption,
    MaxTokensOption,
    MinCertaintyOption,
    ModelOption,
    QualityOption,
    SandboxOption,
    StepsOption,
    TriesOption,
    UntilOption,
    complete_function,
    complete_language,
    flag,
    read_quality,
)

if TYPE_CHECKING:
    from midfill_infill.cli.results import Results
    from midfill_infill.cli.target import HoleOptions, Source
    from midfill_infill.cli.view import FillView
    from midfill_infill.engines.client import EngineClient
    from midfill_infill.engines.supervise import EngineSettings
    from midfill_infill.fill import Filled, Options
    from midfill_infill.text.document import Document
    from midfill_infill.text.spans import Hole
    from midfill_infill.until.trying import Goal

_STDIN_POSITION: Final = re.compile(r"-:\d.*")


class FillCommand(TyperCommand):
    """Parses `-:12`, a position in standard input, as an argument and not as an option."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        places = [word for word in args if _STDIN_POSITION.fullmatch(word)]
        if places and "--" not in args:
            args = [*(word for word in args if word not in places), "--", *places]
        return super().parse_args(ctx, args)


SETTINGS: Final = {"cls": FillCommand}


def fill_command(
    target: Annotated[
        str, typer.Argument(metavar="FILE[:LINE[:COL]]", help="The file, and a place in it; CELL:LINE in a notebook.")
    ],
    function: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="Fill this function: name or Class.name. Repeatable.", autocompletion=complete_function
        ),
    ] = None,
    outer: Annotated[
        int,
        typer.Option("--outer", count=True, metavar="", help="Take the function around the innermost one. Repeatable."),
    ] = 0,
    hole: Annotated[
        list[str] | None, typer.Option(metavar="L:C-L:C", help="Fill this range (end exclusive). Repeatable.")
    ] = None,
    stubs: Annotated[bool, flag("--stubs", "Fill every stub of the file.")] = False,
    model: ModelOption = None,
    device: DeviceOption = "auto",
    steps: StepsOption = None,
    quality: QualityOption = None,
    seed: Annotated[
        int, typer.Option(metavar="N", min=0, max=2**32 - 1, help="0 is the likeliest fill, others draw one.")
    ] = 0,
    n: Annotated[int, typer.Option("-n", metavar="N", min=1, max=8, help="How many alternatives to make.")] = 1,
    take: Annotated[
        int | None, typer.Option(metavar="K", min=1, max=8, help="Of -n alternatives, show or write this one.")
    ] = None,
    max_tokens: MaxTokensOption = None,
    frame_ms: Annotated[
        int, typer.Option(metavar="MS", min=0, max=2000, help="Show every step for at least this long, also on a pipe.")
    ] = 0,
    language: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="The file's language; by default from its name.", autocompletion=complete_language
        ),
    ] = None,
    stdin_filename: Annotated[
        str | None, typer.Option(metavar="NAME", help="With - as FILE: the file name of standard input.")
    ] = None,
    diff: Annotated[bool, flag("--diff", "With - as FILE: print a diff instead of the text.")] = False,
    write: Annotated[bool, flag("--write", "Write the file; without it, only a diff is shown.")] = False,
    yes: Annotated[bool, flag("--yes", "-y", "Replace large bodies without being asked.")] = False,
    allow_errors: Annotated[bool, flag("--allow-errors", "Also write a fill that adds syntax errors.")] = False,
    min_certainty: MinCertaintyOption = None,
    until: UntilOption = None,
    tries: TriesOption = 20,
    command_timeout: CommandTimeoutOption = None,
    sandbox: SandboxOption = True,
    allow: AllowOption = None,
    env: EnvOption = None,
    json_output: Annotated[bool, flag("--json", "Print one JSON object and nothing else.")] = False,
) -> None:
    """Fill holes of a file. Shows a diff and changes nothing, unless --write is given.

    Holes of one command are filled jointly. With nothing chosen, the only stub of the file is filled. With - as FILE
    the text comes from standard input, and with the fill in it goes to standard output. With --until candidates are
    tried by a command in a sandbox, and the first that passes is the fill.
    """
    with report_failures(as_json=json_output):
        from midfill_infill import config
        from midfill_infill.cli.target import HoleOptions, open_source, parse_target
        from midfill_infill.engines.supervise import EngineSettings
        from midfill_infill.fill import Options

        output = Output(write, json_output, frame_ms / 1000, diff, take, yes, allow_errors, min_certainty)
        output.check(n, until)
        goal = None
        if until is not None:
            from midfill_infill.cli.until import read_goal

            goal = read_goal(until, tries, command_timeout, sandbox, allow, env)
        chosen = config.choose_quality(read_quality(quality), Path.cwd())
        run_fill(
            open_source(parse_target(target), language, stdin_filename),
            HoleOptions(tuple(function or ()), tuple(hole or ()), stubs, outer),
            EngineSettings(model=model, device=device, project=Path.cwd()),
            Options(seed=seed, steps=steps, quality=chosen, n=n, max_tokens=max_tokens),
            output,
            goal,
        )


@dataclass(frozen=True)
class Output:
    """The options that say where the fill goes."""

    write: bool = False
    json: bool = False
    frame_s: float = 0.0
    diff: bool = False
    take: int | None = None
    yes: bool = False
    allow_errors: bool = False
    min_certainty: float | None = None

    def check(self, n: int, until: str | None) -> None:
        from midfill_infill.errors import MidfillError

        if self.take is not None and until is not None:
            raise MidfillError("bad_request", "--until takes what passes", "leave out --take")
        if self.take is not None and self.take > n:
            raise MidfillError("bad_request", f"--take {self.take} of -n {n}", f"give -n {self.take} or more")

    def replaces(self, source: Source) -> bool:
        """True if the fill replaces the user's text without being shown first."""
        return self.write or self.is_filter(source)

    def is_filter(self, source: Source) -> bool:
        return source.is_stdin and not self.diff and not self.json


def run_fill(
    source: Source,
    choice: HoleOptions,
    settings: EngineSettings,
    options: Options,
    output: Output,
    goal: Goal | None = None,
) -> None:
    """Runs the command. Raises MidfillError, and typer.Exit if a fill was made but not written."""
    from midfill_infill.cli.results import Results, ask_before, hold_back
    from midfill_infill.cli.target import choose_holes
    from midfill_infill.cli.view import open_view
    from midfill_infill.errors import MidfillError

    started_s = time.perf_counter()
    if output.write and source.is_stdin:
        raise MidfillError("bad_request", "standard input cannot be written", "leave out --write")
    holes = choose_holes(source.document, source.target, choice)
    ask_before(source.document, holes, replaces=output.replaces(source), yes=output.yes)
    tried = None
    live = not output.json and goal is None
    with (
        open_view(source.document, holes, live=live, frame_s=output.frame_s) as view,
        _open_engine(source.document, settings, options, view) as (client, options),
    ):
        if goal is None:
            filled = _fill(source.document, holes, options, client, view)
        else:
            from midfill_infill.cli.until import try_candidates

            tried = try_candidates(source, holes, goal, options, client, quiet=output.json)
            filled = tried.filled
    wall_ms = (time.perf_counter() - started_s) * 1000
    results = Results(source.target.path, source.document, filled, tried=tried).take(output.take or 1)
    if tried is not None:
        output = replace(output, take=1, min_certainty=0.0, write=output.write and tried.passed)
    if tried is None and (made := len(results.candidates)) < options.n:
        print(f"midfill: of {options.n} fills {made} differ and do something; --seed draws others", file=sys.stderr)
    if is_shown := _can_choose(results, source, output):
        results, output = _let_choose(results, output)
    refusal = None
    if output.replaces(source):
        results, refusal = hold_back(results, allow_errors=output.allow_errors, least=output.min_certainty)
    is_refused = refusal is not None and results.is_held_back
    try:
        if not is_refused:
            _write(results, source, output, is_kept=is_shown or tried is not None)
        _print(results, source, output, wall_ms, is_shown=is_shown, is_refused=is_refused)
    except KeyboardInterrupt:
        if not output.write or source.target.path.read_bytes() != results.after():
            raise
        raise MidfillError("cancelled", "interrupted", f"{source.target.path} is written") from None
    if tried is not None and not tried.passed and goal is not None:
        refusal = MidfillError("until_failed", f"{tried.sentence}: `{goal.line}`")
    if refusal is not None:
        print(f"midfill: {refusal.sentence}", file=sys.stderr)
        raise typer.Exit(refusal.exit_code)


@contextmanager
def _open_engine(
    document: Document, settings: EngineSettings, options: Options, view: FillView
) -> Iterator[tuple[EngineClient, Options]]:
    """Yields a client, and the options completed by facts of the engine and the file."""
    from midfill_infill import written
    from midfill_infill.context.references import find_references
    from midfill_infill.engines.client import EngineClient
    from midfill_infill.engines.offer import tell_where
    from midfill_infill.engines.supervise import ensure_engine

    endpoint = ensure_engine(settings, view.note)
    if (told := tell_where(endpoint.remote_host)) is not None:
        print(f"midfill: {told}", file=sys.stderr)
    if endpoint.url is not None:  # an engine of ours has one model, a named one may have several
        options = replace(options, model=settings.model)
    with EngineClient(endpoint) as client:
        yield client, replace(options, references=find_references(document, document.path), written=written.load())


def _fill(
    document: Document, holes: tuple[Hole, ...], options: Options, client: EngineClient, view: FillView
) -> Filled:
    from midfill_infill.fill import Preview, fill

    with closing(fill(document, holes, options, client)) as events:
        for event in events:
            if not isinstance(event, Preview):
                return event
            view.show(event)
    raise AssertionError("a fill ends with Filled")


def _can_choose(results: Results, source: Source, output: Output) -> bool:
    """True if there are several candidates, and a person at a terminal who can choose."""
    is_asked = output.take is None and not output.json and not output.is_filter(source)
    is_person = sys.stdin.isatty() and sys.stdout.isatty()
    return is_asked and is_person and len(results.candidates) > 1


def _let_choose(results: Results, output: Output) -> tuple[Results, Output]:
    from midfill_infill.cli.results import choose

    number, write = choose(results)
    return results.take(number), replace(output, write=write, min_certainty=0.0)


def _write(results: Results, source: Source, output: Output, *, is_kept: bool) -> None:
    """`is_kept`: a person chose the fill, or a command passed with it."""
    if output.write:
        from midfill_infill import written
        from midfill_infill.refactor.writing.replace import write_atomically

        write_atomically(source.target.path, source.document.original, results.after())
        (written.keep if is_kept else written.add)(fill.text for fill in results.filled.fills)


def _print(
    results: Results, source: Source, output: Output, wall_ms: float, *, is_shown: bool, is_refused: bool
) -> None:
    from midfill_infill.cli import results as show

    written = output.write and not is_refused
    if output.json:
        show.print_json(results, wall_ms=wall_ms, written=written)
    elif not output.is_filter(source):
        if not is_shown:
            show.print_diffs(results, all_of_them=output.take is None and not output.write)
    elif not is_refused:
        show.write_bytes(results.after())
    is_for_person = sys.stderr.isatty() and not output.json and not output.is_filter(source)
    show.print_remarks(results, written=written, is_refused=is_refused, wall_ms=wall_ms, for_person=is_for_person)
    if is_for_person:
        from midfill_infill.engines.offer import offer

        if (sentence := offer(results.filled.model)) is not None:
            print(f"midfill: {sentence}", file=sys.stderr)
