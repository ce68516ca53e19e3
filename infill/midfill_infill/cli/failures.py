"""Turns every failure of a command into one sentence on stderr and an exit code. Knows no command."""

import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import typer

from midfill_infill.errors import INTERRUPTED, MidfillError, is_disk_full

_INTERRUPT: Final = MidfillError("cancelled", "interrupted", "nothing was written")


@contextmanager
def report_failures(*, as_json: bool = False) -> Iterator[None]:
    """Ends the command with the exit code of the table; with `as_json` stdout gets {"error": ...} as well.

    A command that writes files must itself raise a `MidfillError` that says what an interrupt left. MIDFILL_DEBUG=1
    shows the traceback of an internal error.
    """
    interrupts = list[int]()
    try:
        with _raise_interrupts(interrupts):
            yield
    except MidfillError as error:
        _end(error, as_json)
    except KeyboardInterrupt:
        _end(_INTERRUPT, as_json)
    except BrokenPipeError:  # the reader of our output has gone, as `head` does
        _drop_output()
        raise typer.Exit(INTERRUPTED) from None
    except typer.Exit:
        raise
    except Exception as error:
        if interrupts:  # a parser's callback turns the exception into one of its own
            _end(_INTERRUPT, as_json)
        if isinstance(error, OSError) and is_disk_full(error):
            _drop_output()
            _end(MidfillError("output_failed", f"the output cannot be written ({error.strerror})"), as_json)
        if os.environ.get("MIDFILL_DEBUG"):
            raise
        import traceback

        place = traceback.extract_tb(error.__traceback__)[-1]
        message = f"{type(error).__name__} in {os.path.basename(place.filename)}:{place.lineno}: {error}"
        _end(MidfillError("internal", message), as_json)


@contextmanager
def _raise_interrupts(heard: list[int]) -> Iterator[None]:
    """Raises KeyboardInterrupt for Ctrl-C; afterwards ignores it, since the process ends."""

    def raise_interrupt(number: int, frame: object) -> None:
        heard.append(number)
        raise KeyboardInterrupt

    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN:
        yield
        return
    signal.signal(signal.SIGINT, raise_interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before if before is signal.default_int_handler else signal.SIG_IGN)


def _drop_output() -> None:
    """Redirects stdout to the null device, so that the flush at exit cannot fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _end(error: MidfillError, as_json: bool) -> None:
    if as_json:
        body = {"code": error.code, "title": error.title, "message": error.message, "next_step": error.next_step}
        print(json.dumps({"error": body}), flush=True)
    print(f"midfill: {error.sentence}", file=sys.stderr, flush=True)
    raise typer.Exit(error.exit_code)
