"""Turns every failure of a command into one sentence on stderr and an exit code. Knows no command."""

import json
import os
import signal
import sys
import warnings
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
    """Ends the command with one sentence and an exit code if the `with` block raises anything. `exit_code` chooses it
    by the code of a MidfillError. With `as_json` stdout gets {"error": ...} as well.

    Ctrl-C counts as `cancelled`, and `after_interrupt` ends its sentence; a command that has written files must itself
    raise a MidfillError that says what an interrupt left. MIDFILL_DEBUG=1 shows the traceback of an internal error.
    """

    def end(error: MidfillError) -> NoReturn:
        if error.code == "output_failed":
            _drop_output()
        if as_json:
            body = {"code": error.code, "title": error.title, "message": error.message, "next_step": error.next_step}
            try:
                print(json.dumps({"error": body}), flush=True)
            except OSError:  # the sentence remains
                _drop_output()
        print(f"midfill: {visible(error.sentence)}", file=sys.stderr, flush=True)
        raise typer.Exit(exit_code(error.code)) from None

    interrupts = list[int]()
    interrupt = MidfillError("cancelled", "interrupted", after_interrupt)
    try:
        with _raise_interrupts(interrupts), warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)  # of Python's parser, about the user's code
            yield
    except MidfillError as error:
        end(error)
    except (KeyboardInterrupt, typer.Abort):  # by Ctrl-C, or Ctrl-D at a question
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
            end(MidfillError("output_failed", f"the output cannot be written ({error.strerror})"))
        if os.environ.get("MIDFILL_DEBUG"):
            raise
        import traceback

        frame = traceback.extract_tb(error.__traceback__)[-1]
        # Without the error's own text, which may quote the user's code.
        message = f"{type(error).__name__} in {os.path.basename(frame.filename)}:{frame.lineno}"
        end(MidfillError("internal", message))


@contextmanager
def _raise_interrupts(interrupts: list[int]) -> Iterator[None]:
    """Raises KeyboardInterrupt for Ctrl-C in the `with` block, and adds the signal's number to `interrupts`. After it
    Ctrl-C is ignored, because the process ends, unless Python's own handler was set before.
    """

    def raise_interrupt(number: int, frame: object) -> None:
        interrupts.append(number)
        raise KeyboardInterrupt

    earlier_handler = signal.getsignal(signal.SIGINT)
    if earlier_handler is signal.SIG_IGN:
        yield
        return
    signal.signal(signal.SIGINT, raise_interrupt)
    try:
        yield
    finally:
        is_default = earlier_handler is signal.default_int_handler
        signal.signal(signal.SIGINT, earlier_handler if is_default else signal.SIG_IGN)


def _drop_output() -> None:
    """Redirects stdout to the null device, so that the flush at exit cannot fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
