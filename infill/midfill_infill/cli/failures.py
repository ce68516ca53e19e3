"""Turns every failure of a command into one sentence on stderr and an exit code. Knows no command."""

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

import typer

from midfill_infill.errors import INTERRUPTED, TABLE, MidfillError, is_disk_full
from midfill_infill.text.visible import visible


@contextmanager
def report_failures(
    *,
    as_json: bool = False,
    exit_code: Callable[[str], int] = lambda code: TABLE[code].exit_code,
    after_interrupt: str = "nothing was written",
) -> Iterator[None]:
    """Ends the command with the exit code of an error's code; with `as_json` stdout gets {"error": ...} as well.

    A command that writes files must itself raise a `MidfillError` that says what an interrupt left. MIDFILL_DEBUG=1
    shows the traceback of an internal error.
    """

    def end(error: MidfillError) -> NoReturn:
        if as_json:
            body = {"code": error.code, "title": error.title, "message": error.message, "next_step": error.next_step}
            print(json.dumps({"error": body}), flush=True)
        print(f"midfill: {visible(error.sentence)}", file=sys.stderr, flush=True)
        raise typer.Exit(exit_code(error.code)) from None

    interrupts = list[int]()
    interrupt = MidfillError("cancelled", "interrupted", after_interrupt)
    try:
        with _raise_interrupts(interrupts):
            yield
    except MidfillError as error:
        end(error)
    except KeyboardInterrupt:
        end(interrupt)
    except BrokenPipeError:  # the reader of the output has closed it, as `head` does
        _drop_output()
        raise typer.Exit(INTERRUPTED) from None
    except typer.Exit:
        raise
    except Exception as error:
        if interrupts:  # a callback of the parser replaced the KeyboardInterrupt
            end(interrupt)
        if isinstance(error, OSError) and is_disk_full(error):
            _drop_output()
            end(MidfillError("output_failed", f"the output cannot be written ({error.strerror})"))
        if os.environ.get("MIDFILL_DEBUG"):
            raise
        import traceback

        place = traceback.extract_tb(error.__traceback__)[-1]
        # The error's text may quote code.
        message = f"{type(error).__name__} in {os.path.basename(place.filename)}:{place.lineno}"
        end(MidfillError("internal", message))


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
