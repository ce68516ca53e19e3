"""`midfill fill`: from options to holes, through a fill, to a diff, a written file or JSON. A shell around fill.py."""

from __future__ import annotations

import sys
import time
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from midfill_infill.cli.failures import report_failures

if TYPE_CHECKING:
    from midfill_infill.cli.live import View
    from midfill_infill.cli.target import Choice, Target
    from midfill_infill.engines.supervise import EngineSettings
    from midfill_infill.fill import Filled, Options
    from midfill_infill.text.document import Document
    from midfill_infill.text.spans import Hole

DeviceName = Literal["auto", "cpu", "cuda", "mps"]


def fill_command(
    target: Annotated[str, typer.Argument(metavar="FILE[:LINE[:COL]]", help="The file, and a place in the function.")],
    function: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Fill this function: name or Class.name. Repeatable."),
    ] = None,
    hole: Annotated[
        list[str] | None, typer.Option(metavar="L:C-L:C", help="Fill this range, its end not included. Repeatable.")
    ] = None,
    stubs: Annotated[bool, typer.Option("--stubs", metavar="", help="Fill every stub of the file.")] = False,
    model: Annotated[str | None, typer.Option(metavar="NAME|DIR", help="A known model or a checkpoint folder.")] = None,
    device: Annotated[DeviceName, typer.Option(help="Where the model runs.")] = "auto",
    steps: Annotated[
        int | None, typer.Option(metavar="N", min=1, max=1024, help="At most this many denoise steps.")
    ] = None,
    quality: Annotated[
        float | None, typer.Option(metavar="Q", min=0, max=1, help="0 settles most tokens a step, 1 fewest.")
    ] = None,
    seed: Annotated[
        int, typer.Option(metavar="N", min=0, max=2**32 - 1, help="0 is the likeliest fill, others draw one.")
    ] = 0,
    n: Annotated[int, typer.Option("-n", metavar="N", min=1, max=8, help="How many alternatives to make.")] = 1,
    max_tokens: Annotated[
        int | None, typer.Option(metavar="N", min=1, max=1024, help="At most this many tokens a hole.")
    ] = None,
    frame_ms: Annotated[
        int, typer.Option(metavar="MS", min=0, max=2000, help="Show every step at least this long, on a pipe too.")
    ] = 0,
    write: Annotated[
        bool, typer.Option("--write", metavar="", help="Write the file. Otherwise only a diff is shown.")
    ] = False,
    json_output: Annotated[
        bool, typer.Option("--json", metavar="", help="Print one JSON object and nothing else.")
    ] = False,
) -> None:
    """Fill holes of a file. Shows a diff and changes nothing, unless --write is given.

    Holes of one command are filled jointly. With nothing chosen, the only stub of the file is filled.
    """
    with report_failures(as_json=json_output):
        from midfill_infill.cli.target import Choice, parse_target
        from midfill_infill.engines.supervise import EngineSettings
        from midfill_infill.fill import Options

        run_fill(
            parse_target(target),
            Choice(tuple(function or ()), tuple(hole or ()), stubs),
            EngineSettings(model=model, device=device),
            Options(seed=seed, steps=steps, quality=quality, n=n, max_tokens=max_tokens),
            Output(write, json_output, frame_ms / 1000),
        )


@dataclass(frozen=True)
class Output:
    write: bool = False
    json: bool = False
    frame_s: float = 0.0


def run_fill(target: Target, choice: Choice, settings: EngineSettings, options: Options, output: Output) -> None:
    """The whole command. Raises MidfillError."""
    from midfill_infill.cli.live import open_view
    from midfill_infill.cli.target import choose_holes
    from midfill_infill.errors import MidfillError
    from midfill_infill.text.document import Document

    started_s = time.perf_counter()
    document = Document.read(target.path)
    holes = choose_holes(document, target, choice)
    with open_view(document, holes, live=not output.json, frame_s=output.frame_s) as view:
        filled = _fill(document, holes, settings, options, view)
    after = filled.patch.apply(document.data)
    try:
        if output.write:
            from midfill_infill.cli.write import write_atomically

            write_atomically(target.path, document.data, after)
        wall_ms = (time.perf_counter() - started_s) * 1000
        _print_result(target, document, filled, output, wall_ms)
    except KeyboardInterrupt:
        if not output.write or target.path.read_bytes() != after:
            raise
        raise MidfillError("cancelled", "interrupted", next_step=f"{target.path} is written") from None


def _fill(
    document: Document, holes: tuple[Hole, ...], settings: EngineSettings, options: Options, view: View
) -> Filled:
    from dataclasses import replace

    from midfill_infill.context.references import find_references
    from midfill_infill.engines.client import EngineClient
    from midfill_infill.engines.supervise import ensure_engine
    from midfill_infill.fill import Preview, fill

    endpoint = ensure_engine(settings, view.note)
    if endpoint.url is not None:  # an engine of ours has one model, a named one may have several
        options = replace(options, model=settings.model)
    options = replace(options, references=find_references(document, document.path))
    with EngineClient(endpoint) as client, closing(fill(document, holes, options, client)) as events:
        for event in events:
            if not isinstance(event, Preview):
                return event
            view.show(event)
    raise AssertionError("a fill ends with Filled")


def _print_result(target: Target, document: Document, filled: Filled, output: Output, wall_ms: float) -> None:
    from midfill_infill.cli.diff import unified_diff

    candidates = (filled.best, *filled.alternatives)
    diffs = [unified_diff(target.path, document.data, each.patch.apply(document.data)) for each in candidates]
    if output.json:
        from midfill_infill.cli.report import report_fill

        texts = [diff.decode(document.encoding, errors="replace") for diff in diffs]
        report = report_fill(target.path, document, filled, texts, wall_ms=wall_ms, written=output.write)
        sys.stdout.buffer.write(report.model_dump_json().encode() + b"\n")
        sys.stdout.flush()
    elif sys.stdout.isatty():
        from midfill_infill.cli.live import print_diffs

        print_diffs([diff.decode(document.encoding, errors="replace") for diff in diffs], candidates)
    else:
        sys.stdout.buffer.write(diffs[0])
        sys.stdout.flush()
    _print_remarks(target, filled, output, wall_ms)


def _print_remarks(target: Target, filled: Filled, output: Output, wall_ms: float) -> None:
    """What is not the result itself, on stderr: a warning always, the rest for a person only."""
    if filled.new_errors:
        errors = "1 syntax error" if filled.new_errors == 1 else f"{filled.new_errors} syntax errors"
        print(f"midfill: the fill adds {errors}; try another --seed or -n 4", file=sys.stderr)
    if filled.best.is_empty:
        print("midfill: the model left a body empty; try another --seed or -n 4", file=sys.stderr)
    if sys.stderr.isatty() and not output.json:
        done = f"wrote {target.path}" if output.write else "nothing written, add --write to write it"
        stats = filled.stats
        print(f"{done} ({stats.tokens} tokens in {stats.steps} steps, {wall_ms / 1000:.2f} s)", file=sys.stderr)
