"""Tells a person at a terminal of slow work, such as the start of an engine."""

import sys


def note(phrase: str) -> None:
    """Names slow work on stderr, if that is a terminal."""
    if sys.stderr.isatty():
        print(f"{phrase} ...", file=sys.stderr)
