"""`python -m midfill_engine`: the engine's commands. Knows options; other modules know what they mean."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from midfill_engine.errors import StartError
from midfill_engine.serving.access import set_up_logging
from midfill_engine.serving.serve import end_process, report
from midfill_engine.serving.serve import serve as run_server
from midfill_engine.starting import ServeOptions, with_serve_options

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, help="Midfill's engine.")


@app.command()
@with_serve_options
def serve(**given: Any) -> None:
    """Listens, loads the model, answers."""
    options = ServeOptions(**{name: value for name, value in given.items() if value is not None})
    if (options.socket is None) == (options.host is None):
        raise typer.BadParameter("give either --socket or --host")
    set_up_logging()
    code = 0
    try:
        run_server(options)
    except StartError as error:
        report(error)
        code = error.exit_code
    end_process(code)


@app.command()
def fetch(
    model: Annotated[str, typer.Argument(help="smollm2, OWNER/NAME on the hub, or OWNER/NAME@REVISION.")],
    device: Annotated[str, typer.Option(help="The device to check memory for.")] = "auto",
    if_missing: Annotated[bool, typer.Option("--if-missing", help="Ask nobody where it is here.")] = False,
    cached_only: Annotated[bool, typer.Option("--cached-only", help="Never ask the hub.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Download even if it does not fit into memory.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Hash what is here, too.")] = False,
) -> None:
    """Downloads a checkpoint into the hub's cache, resuming an earlier download. Prints lines of JSON."""
    from midfill_engine.loading.stock import fetch_and_report, report_cached

    def fits(folder: Path, weights_bytes: int) -> None:
        from midfill_engine.loading.runtime import check_fits  # imports torch, which takes seconds

        check_fits(folder, weights_bytes, device, force=force)

    try:
        if (if_missing or cached_only) and report_cached(model, must_be=cached_only):
            return
        fetch_and_report(model, fits, check=check)
    except StartError as error:
        report(error)
        raise typer.Exit(error.exit_code) from None


@app.command()
def stock(remove: Annotated[str | None, typer.Option(help="OWNER/NAME to take off this machine.")] = None) -> None:
    """Lists the servable checkpoints in the hub's cache as JSON."""
    from midfill_engine.loading.stock import list_stock, remove_stock

    try:
        print((list_stock() if remove is None else remove_stock(remove)).model_dump_json())
    except StartError as error:
        report(error)
        raise typer.Exit(error.exit_code) from None


@app.command()
def memory() -> None:
    """Prints total and available memory as JSON."""
    from midfill_engine.loading.memory import available_bytes, total_bytes

    print(json.dumps({"total_bytes": total_bytes(), "available_bytes": available_bytes()}))


@app.command()
def models(json_output: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Lists the published models that can be served, with size, license, context and memory in bf16."""
    from midfill_engine.loading.catalog import as_table, list_models

    entries = list_models()
    print(json.dumps(list(map(vars, entries)), indent=2) if json_output else "\n".join(as_table(entries)))


if __name__ == "__main__":
    app()
