"""Tells a person at a terminal about slow work, such as the start of an engine. Knows no engine."""

import sys


def note(phrase: str) -> None:
    """Writes a phrase such as "loading the model" to stderr if that is a terminal."""
    if sys.stderr.isatty():
        print(f"{phrase} ...", file=sys.stderr)
