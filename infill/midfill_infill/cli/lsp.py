"""`midfill lsp`: becomes the language server. Knows only how that is started."""

import typer

from midfill_infill.cli.execute import become_server

_PASSED_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
SETTINGS = {"context_settings": _PASSED_ON}


def lsp_command(context: typer.Context) -> None:
    """Run the language server on standard input and output, for an editor. Its options are passed on."""
    become_server(context.args)
