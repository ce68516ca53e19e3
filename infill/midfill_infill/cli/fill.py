"""`midfill fill`: defines its options. Imports what runs the command once they are parsed, so that `--help` is fast."""

import re
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from midfill_infill.cli import options
from midfill_infill.cli.failures import report_failures
from midfill_infill.cli.options import CheckedCommand, complete_function, complete_language, flag, option
from midfill_infill.errors import MidfillError

_STDIN_POSITION: Final = re.compile(r"-:\d.*")


class FillCommand(CheckedCommand):
    """Parses `-:12`, a position in standard input, as an argument and not as an option."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        positions = [word for word in args if _STDIN_POSITION.fullmatch(word)]
        if not positions or "--" in args:
            return super().parse_args(ctx, args)
        others = [word for word in args if word not in positions]
        return super().parse_args(ctx, [*others, "--", *positions])


SETTINGS: Final = {"cls": FillCommand}


def fill_command(
    target: Annotated[
        str, typer.Argument(metavar="FILE[:LINE[:COL]]", help="The file, and a place in it; CELL:LINE in a notebook.")
    ],
    function: Annotated[
        list[str] | None,
        option("NAME", "Fill this function: name or Class.name. Repeatable.", autocompletion=complete_function),
    ] = None,
    outer: Annotated[
        int,
        typer.Option("--outer", count=True, metavar="", help="Take the function around the innermost one. Repeatable."),
    ] = 0,
    hole: Annotated[list[str] | None, option("L:C-L:C", "Fill this range (end exclusive). Repeatable.")] = None,
    stubs: Annotated[bool, flag("--stubs", "Fill every stub of the file.")] = False,
    model: options.ModelOption = None,
    device: options.DeviceOption = "auto",
    steps: options.StepsOption = None,
    quality: options.QualityOption = None,
    seed: Annotated[int, option("N", "0 is the likeliest fill, others draw one.", min=0, max=2**32 - 1)] = 0,
    n: Annotated[int, option("N", "How many alternatives to make.", "-n", min=1, max=8)] = 1,
    take: Annotated[int | None, option("K", "Of -n alternatives, show or write this one.", min=1, max=8)] = None,
    max_tokens: options.MaxTokensOption = None,
    frame_ms: Annotated[
        int, option("MS", "Show every step for at least this long, also on a pipe.", min=0, max=2000)
    ] = 0,
    language: Annotated[
        str | None,
        option("NAME", "The file's language; by default from its name.", autocompletion=complete_language),
    ] = None,
    stdin_filename: Annotated[str | None, option("NAME", "With - as FILE: the file name of standard input.")] = None,
    diff: Annotated[bool, flag("--diff", "With - as FILE: print a diff instead of the text.")] = False,
    write: Annotated[bool, flag("--write", "Write the file; without it, only a diff is shown.")] = False,
    yes: Annotated[bool, flag("--yes", "-y", "Replace large bodies without being asked.")] = False,
    allow_errors: Annotated[bool, flag("--allow-errors", "Also write a fill that adds syntax errors.")] = False,
    min_certainty: options.MinCertaintyOption = None,
    until: options.UntilOption = None,
    tries: options.TriesOption = 20,
    command_timeout: options.CommandTimeoutOption = None,
    sandbox: options.SandboxOption = True,
    allow: options.AllowOption = None,
    env: options.EnvOption = None,
    json_output: Annotated[bool, flag("--json", "Print one JSON object and nothing else.")] = False,
) -> None:
    """Fill holes of a file. Shows a diff and changes nothing, unless --write is given.

    Holes of one command are filled jointly. With nothing chosen, the only stub of the file is filled. With - as FILE
    the text comes from standard input, and with the fill in it goes to standard output. With --until candidates are
    tried by a command in a sandbox, and the first that passes is the fill.
    """
    with report_failures(as_json=json_output):
        from midfill_infill.cli.filling import Output, run_fill
        from midfill_infill.engines.supervise import EngineSettings
        from midfill_infill.filling.opening import read_options
        from midfill_infill.filling.targets import HoleOptions, open_source, parse_target

        if take is not None and take > n:
            raise MidfillError("bad_request", f"--take {take} of -n {n}", f"give -n {take} or more")
        output = Output(write, json_output, frame_ms / 1000, diff, take, yes, allow_errors, min_certainty)
        goal = None
        if until is not None:
            from midfill_infill.cli.until import read_goal

            goal = read_goal(until, tries, command_timeout, sandbox, allow, env)
        run_fill(
            open_source(parse_target(target), language, stdin_filename),
            HoleOptions(tuple(function or ()), tuple(hole or ()), stubs, outer),
            EngineSettings(model=model, device=device, project=Path.cwd()),
            read_options(quality, seed=seed, steps=steps, n=n, max_tokens=max_tokens),
            output,
            goal,
        )
