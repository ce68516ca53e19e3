"""Joins the subcommands of `midfill`, and defines the options before them. Knows nothing of what they do."""

import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from midfill_infill.cli.lazy import Subcommand, make_group

SUBCOMMANDS: Final = {
    "fill": Subcommand("fill", "Fill holes of a file."),
    "refactor": Subcommand(
        "refactor", "Fill holes of whole repositories: plan, generate, review, apply, verify, undo."
    ),
    "measure": Subcommand("measure", "Compare models on your own code."),
    "models": Subcommand("models", "The engine's models; `get`, `list`, `use` and `rm` those of the hub."),
    "engine": Subcommand("engine", "Running engines: `ps` lists them, `stop` ends them."),
    "config": Subcommand("configuration", "Show every setting and where it comes from, or set one."),
    "doctor": Subcommand("doctor", "Check the installation and the engine."),
    "serve": Subcommand("serve", "Run an engine in the foreground."),
    "lsp": Subcommand("lsp", "Run the language server on standard input and output, for an editor."),
}
_SOURCE_DOCS: Final = Path(__file__).parents[3] / "docs"  # exists if Midfill runs from its source tree


def build_app() -> typer.Typer:
    """The command with all subcommands; a subcommand's module is imported only when it is run."""
    docs = _SOURCE_DOCS if (_SOURCE_DOCS / "command.md").is_file() else Path(sys.prefix, "share/doc/midfill")
    app = typer.Typer(
        name="midfill",
        cls=make_group(SUBCOMMANDS),
        no_args_is_help=True,
        epilog=f"The documentation lies in {docs}.",
        pretty_exceptions_enable=False,
        rich_markup_mode=None,  # importing rich takes longer than the rest of a help page
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_common)
    return app


def _print_version(is_asked: bool) -> None:
    """Prints version, build and model if `--version` is given, and ends the command."""
    if is_asked:
        from midfill_infill import config
        from midfill_infill.cli.failures import report_failures
        from midfill_infill.engines.installed import describe_build
        from midfill_infill.engines.supervise import SHIPPED, default_model

        with report_failures():
            model = config.load(Path.cwd())["model"]
            print(describe_build())
            name = model.value or default_model()
            origin = model.place or ("the default" if name else "it ships with midfill")
            print(f"model {name or SHIPPED} ({origin})")
        raise typer.Exit()


def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show version, build and model.")
    ] = False,
) -> None:
    """Fills gaps in code with a language model that runs on your machine and sees the code before and after."""
