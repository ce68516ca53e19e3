"""`midfill lsp`: becomes the language server. Knows how it is started, no more."""

import sys

import typer

from midfill_infill.cli.execute import become


def lsp_command(context: typer.Context) -> None:
    """Run the language server on standard input and output, for an editor. Its options are passed on."""
    become([sys.executable, "-P", "-m", "midfill_lsp", *context.args])
