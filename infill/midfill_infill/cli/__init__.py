"""The `midfill` command: one file a subcommand. Imports nothing heavy before a command has been chosen."""

import gc
import sys
from io import TextIOWrapper
from typing import TYPE_CHECKING

from midfill_infill.cli.execute import become_server

if TYPE_CHECKING:
    import typer


def main() -> None:
    """The console script."""
    if sys.argv[1:2] == ["lsp"]:  # an editor waits: importing the other commands takes a quarter of the server's start
        become_server(sys.argv[2:])
    gc.set_threshold(50_000)  # by default a tenth of a fill's time, while modules are imported
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # ASCII cannot say all that code says
            stream.reconfigure(errors="replace")
    build_app()()


def build_app() -> "typer.Typer":
    from midfill_infill.cli import app

    return app.build_app()
