"""The `midfill` command: one file a subcommand. Imports nothing heavy before a command has been chosen."""

import gc
import os
import sys
from io import TextIOWrapper
from typing import TYPE_CHECKING

from midfill_infill.cli.execute import become_server
from midfill_infill.errors import FILE_TROUBLE, INTERRUPTED

if TYPE_CHECKING:
    import typer


def main() -> None:
    """The console script."""
    _settle_streams()
    if sys.argv[1:2] == ["lsp"]:  # an editor waits: importing the other commands takes a quarter of the server's start
        become_server(sys.argv[2:])
    gc.set_threshold(50_000)  # by default a tenth of a fill's time, while modules are imported
    if sys.argv[1:2] in (["--show-completion"], ["--install-completion"]) and sys.argv[2:]:
        os.environ["_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION"] = "1"  # then typer takes the shell that is named
    try:
        os.getcwd()
    except FileNotFoundError:
        sys.exit(_say("the working directory is gone; change to another one.", FILE_TROUBLE))
    try:
        build_app()()
    except KeyboardInterrupt:
        sys.exit(_say("interrupted; nothing was written.", INTERRUPTED))


def _settle_streams() -> None:
    """Opens closed streams on the null device; replaces what an ASCII stream cannot encode."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # the lowest free descriptor is its own
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")


def _say(sentence: str, exit_code: int) -> int:
    print(f"midfill: {sentence}", file=sys.stderr, flush=True)
    return exit_code


def build_app() -> "typer.Typer":
    from midfill_infill.cli import app

    return app.build_app()
