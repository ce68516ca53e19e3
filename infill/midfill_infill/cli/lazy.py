"""Command groups that import only the subcommand that is run. Knows typer, no command."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any, NamedTuple

import typer
from typer.core import TyperGroup

from midfill_infill.cli.options import CheckedCommand


class Subcommand(NamedTuple):
    """A subcommand that is not imported yet: its module, which defines `NAME_command` or, for a group, `APP`; and the
    first sentence of its help.
    """

    module: str
    summary: str

    def build(self, name: str) -> Any:
        """Imports the module. Returns the command or group as typer runs it, with the name `name`."""
        module = import_module(f"midfill_infill.cli.{self.module}")
        app = getattr(module, "APP", None)
        if app is None:
            app = typer.Typer(add_completion=False)
            settings = {"cls": CheckedCommand, **getattr(module, "SETTINGS", {})}
            app.command(**settings)(getattr(module, f"{name}_command"))
        app.rich_markup_mode = None
        command = typer.main.get_command(app)
        command.name = name
        return command


def make_group(subcommands: Mapping[str, Subcommand]) -> type[TyperGroup]:
    """The class of a command group that has these subcommands by their names, and imports one when it is run."""

    class LazyGroup(TyperGroup):
        def list_commands(self, ctx: Any) -> list[str]:
            return list(subcommands)

        def get_command(self, ctx: Any, cmd_name: str) -> Any:
            if cmd_name not in subcommands:
                return None
            return subcommands[cmd_name].build(cmd_name)

        def format_commands(self, ctx: Any, formatter: Any) -> None:
            with formatter.section("Commands"):
                formatter.write_dl([(name, subcommand.summary) for name, subcommand in subcommands.items()])

    return LazyGroup
