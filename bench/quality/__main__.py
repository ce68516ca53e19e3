"""`python -m bench quality SUITE`: the harness as a command. Knows options; what they mean is known elsewhere."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from bench.quality.complete import Completer
from bench.quality.engine import running_engine
from bench.quality.floors import fill_with_pass, fill_with_previous_line
from bench.quality.kept import Facts, Kept, KeptError
from bench.quality.measure import compare, conditions, measure_floors, measure_model
from bench.quality.report import Origin, Report, find_origin, find_weights, open_paper, refused, tables, to_json
from bench.quality.sandbox import Limits, best_wall
from bench.quality.suite import Suite, read_suite
from midfill_infill.engines.client import EngineClient
from midfill_infill.engines.endpoint import Endpoint
from midfill_infill.errors import MidfillError

FLOORS = {"pass": fill_with_pass, "previous line": fill_with_previous_line}
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    suite: Annotated[Path, typer.Argument(help="JSON lines of {id, prefix, middle, suffix, program_tail...}, or .gz")],
    model: Annotated[
        str | None, typer.Option(help="A known model or a checkpoint folder, on an engine of its own.")
    ] = None,
    url: Annotated[str | None, typer.Option(envvar="MIDFILL_ENGINE_URL", help="An engine that runs already.")] = None,
    token: Annotated[str | None, typer.Option(envvar="MIDFILL_TOKEN", help="That engine's token.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    split: Annotated[str | None, typer.Option(help="Only this split, where rows name one.")] = None,
    kind: Annotated[str | None, typer.Option(help="Only this kind, where rows name one.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="So many gaps, by hash of their ids.")] = None,
    lengths: Annotated[str, typer.Option(help="Of own, oracle and fixed.")] = "own,oracle,fixed",
    quality: Annotated[float, typer.Option(min=0, max=1, help="1 settles one token a step.")] = 1.0,
    suffix_ablation: Annotated[bool, typer.Option(help="Also with an empty suffix.")] = True,
    threads: Annotated[int, typer.Option(min=1, help="Requests in flight.")] = 4,
    cpu_s: Annotated[int, typer.Option(min=1, help="Seconds of computing that a program may use.")] = 5,
    out: Annotated[Path | None, typer.Option(help="Write the record here as JSON, and beside it a plot.")] = None,
    keep: Annotated[Path | None, typer.Option(help="Keep completions here, and go on from it.")] = None,
) -> None:
    """Measures how well a model fills the gaps of SUITE; runs what it writes behind the best wall there is."""
    console = Console(stderr=True)
    try:
        wanted = conditions([name.strip() for name in lengths.split(",")], ablate_suffix=suffix_ablation)
        tasks = read_suite(suite, split=split, kind=kind, limit=limit)
    except (ValueError, OSError) as error:
        raise typer.BadParameter(str(error)) from None
    if url is not None and model is not None:
        raise typer.BadParameter("give --model, or --url of an engine that has its model already")
    bounds, wall = Limits(cpu_s=cpu_s), best_wall()
    if wall == "limits":
        console.print("Neither bubblewrap nor namespaces work here: programs are bounded in time and memory only.")
    try:
        with _engine(model, url, token, device) as endpoint, EngineClient(endpoint) as client:
            completer = Completer(client, quality)
            origin = find_origin(None if url else find_weights(model or "embedded"), wall, quality)
            with Kept(keep, identify(tasks, completer, origin)) as kept:
                measured = measure_model(
                    completer,
                    tasks,
                    wanted,
                    kept=kept,
                    num_threads=threads,
                    limits=bounds,
                    wall=wall,
                    note=console.print,
                )
    except KeptError as error:
        raise typer.BadParameter(str(error)) from None
    except MidfillError as error:
        console.print(error.sentence)
        raise typer.Exit(error.exit_code) from None
    measured += measure_floors(FLOORS, tasks, bounds, wall)
    rows = tuple(one.row for one in measured)
    report = Report(tasks, completer.info, origin, rows, tuple(compare(measured, tasks)))
    paper = open_paper()
    for table in tables(report):
        paper.print(table)
    if refused(rows):
        console.print(refused(rows))
    if out is not None:
        write(out, report)


@contextmanager
def _engine(model: str | None, url: str | None, token: str | None, device: str) -> Iterator[Endpoint]:
    if url is not None:
        yield Endpoint(url=url.rstrip("/"), token=token)
        return
    with running_engine(model, device) as endpoint:
        yield endpoint


def write(out: Path, report: Report) -> None:
    """The record, and its plot under the same name."""
    from bench.quality.plot import draw  # a second of imports that --help does not need

    text = to_json(report)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(text, encoding="utf-8")
    draw(json.loads(text), out.with_suffix(".svg"))


def identify(suite: Suite, completer: Completer, origin: Origin) -> Facts:
    """The facts that completions must share to belong together."""
    info = completer.info
    return {
        "suite": suite.sha256,
        "model": info.id,
        "weights": origin.weights_sha256,
        "device": info.device,
        "dtype": info.dtype,
        "quality": completer.quality,
    }


if __name__ == "__main__":
    app()
