"""The `midfill` command: one file a subcommand. Imports nothing heavy before a command has been chosen."""

import os
import signal
import sys

TYPE_CHECKING = False  # importing typing takes 3 ms, during which Ctrl-C shows a traceback
if TYPE_CHECKING:
    import typer


def main() -> None:
    """Runs the `midfill` command with the words of the command line."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not if the shell ignores it
        signal.signal(signal.SIGINT, _end_at_once)
    import atexit
    import gc

    from midfill_infill.cli.execute import become_server
    from midfill_infill.errors import FILE_TROUBLE

    _prepare_streams()
    # A pydantic plugin of another package would see every message; the search for plugins takes 8 ms.
    os.environ["PYDANTIC_DISABLE_PLUGINS"] = "__all__"
    if sys.argv[1:2] == ["lsp"]:  # an editor waits: importing the other commands takes a quarter of the server's start
        become_server(sys.argv[2:])
    # Garbage collection during imports and at exit takes a tenth of a warm fill's time.
    gc.set_threshold(200_000)
    atexit.register(gc.freeze)
    if sys.argv[1:2] in (["--show-completion"], ["--install-completion"]) and sys.argv[2:]:
        os.environ["_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION"] = "1"  # typer then uses the named shell
    try:
        os.getcwd()
    except FileNotFoundError:
        print("midfill: the working directory is gone; change to another one.", file=sys.stderr)
        sys.exit(FILE_TROUBLE)
    build_app()()


def _end_at_once(number: int, frame: object) -> None:
    """Handles Ctrl-C during start-up, when KeyboardInterrupt would pass through half-imported modules."""
    os.write(2, b"midfill: interrupted; nothing was written.\n")
    os._exit(128 + number)


def _prepare_streams() -> None:
    """Opens standard streams that are closed on the null device, also for a program that replaces this one, and lets
    others replace what they cannot encode.
    """
    from io import TextIOWrapper

    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # open() takes the lowest free descriptor, which is the missing one
            stream = open(os.devnull, mode, encoding="utf-8")
            os.set_inheritable(stream.fileno(), True)
            setattr(sys, name, stream)
    for output in (sys.stdout, sys.stderr):
        if isinstance(output, TextIOWrapper):
            output.reconfigure(errors="replace")


def build_app() -> "typer.Typer":
    """The command with all subcommands."""
    from midfill_infill.cli import app

    return app.build_app()
