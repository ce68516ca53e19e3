"""What the command `midfill` offers: its subcommands and common options. Knows none of their work.

Only the subcommand that was named is imported: all of them together took longer to import than a help page may take.
"""

from importlib import import_module
from typing import Annotated, Any, Final, NamedTuple

import typer
from typer.core import TyperGroup


class Subcommand(NamedTuple):
    """The module with the command's function, or with `build` for a group, and the first sentence of its help."""

    module: str
    summary: str

    def build(self) -> Any:
        """The command or group, as typer runs it."""
        module = import_module(f"midfill_infill.cli.{self.module}")
        if hasattr(module, "build"):
            app = module.build()
        else:
            app = typer.Typer(add_completion=False)
            app.command(**getattr(module, "SETTINGS", {}))(getattr(module, f"{self.module}_command"))
        app.rich_markup_mode = None
        return typer.main.get_command(app)


SUBCOMMANDS: Final = {
    "fill": Subcommand("fill", "Fill holes of a file."),
    "refactor": Subcommand(
        "refactor", "Fill holes of whole repositories: plan, generate, review, apply, verify, undo."
    ),
    "models": Subcommand("models", "The engine's models; `get`, `list`, `use` and `rm` those of the hub."),
    "engine": Subcommand("engine", "Running engines: `ps` lists them, `stop` ends them."),
    "config": Subcommand("configuration", "Show every setting and where it comes from, or set one."),
    "doctor": Subcommand("doctor", "Check the installation and the engine."),
    "help": Subcommand("help", "Show what a command takes and its page of the documentation, or one page."),
    "serve": Subcommand("serve", "Run an engine in the foreground."),
    "lsp": Subcommand("lsp", "Run the language server on standard input and output, for an editor."),
}


class LazyGroup(TyperGroup):
    def list_commands(self, ctx: Any) -> list[str]:
        return list(SUBCOMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in SUBCOMMANDS:
            return None
        command = SUBCOMMANDS[cmd_name].build()
        command.name = cmd_name
        return command

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, subcommand.summary) for name, subcommand in SUBCOMMANDS.items()])


def build_app() -> typer.Typer:
    app = typer.Typer(
        name="midfill",
        cls=LazyGroup,
        help="Fills gaps in code with a language model that runs on your machine and sees the code before and after.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,  # importing rich costs more than all else that a help page needs
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_common)
    return app


def _print_version(wanted: bool) -> None:
    if wanted:
        from pathlib import Path

        from midfill_infill import config
        from midfill_infill.cli.failures import report_failures
        from midfill_infill.engines.installed import describe_build
        from midfill_infill.engines.supervise import SHIPPED, default_model

        with report_failures():
            model = config.load(Path.cwd())["model"]
            print(describe_build())
            chosen = model.value or default_model()
            print(
                f"model {chosen or SHIPPED} ({model.place or ('the default' if chosen else 'it ships with midfill')})"
            )
        raise typer.Exit()


def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show version, build and model.")
    ] = False,
) -> None:
    """Fills gaps in code with a language model that runs on your machine and sees the code before and after."""
