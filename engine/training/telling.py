"""Ends a command with one sentence where its user asked for what cannot be done. Knows errors; no step."""

import subprocess
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

EXIT_ASKED_WRONGLY = 2


@contextmanager
def one_sentence() -> Iterator[None]:
    """Prints what a user has to know on stderr and exits with 2. Errors of the program itself keep their traceback."""
    try:
        yield
    except Exception as error:
        sentence = tell(error)
        if sentence is None:
            raise
        print(sentence, file=sys.stderr)
        sys.exit(EXIT_ASKED_WRONGLY)


def tell(error: Exception) -> str | None:
    """The sentence of an error that a user caused: one that says what to do, one about a file or a command, or one that
    a `raise` words. None for all others.
    """
    if next_step := getattr(error, "next_step", ""):
        return f"{str(error).removesuffix(f'; {next_step}.').removesuffix('.')}; {next_step.removesuffix('.')}."
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}." if error.filename else f"{error.strerror}."
    if isinstance(error, subprocess.CalledProcessError):
        return f"{' '.join(map(str, error.cmd))} ended with {error.returncode}."
    last = traceback.extract_tb(error.__traceback__)[-1]
    is_worded = (last.line or "").startswith("raise")
    return str(error) if is_worded and isinstance(error, ValueError | OSError) else None
