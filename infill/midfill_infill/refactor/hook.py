"""`python -m midfill_infill.refactor.hook FILE...`: a fast `midfill refactor check` for pre-commit.

It runs at every commit, so it loads neither the command-line library nor an HTTP client.
"""

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from midfill_infill.errors import ASKED_WRONGLY, PENDING, MidfillError
from midfill_infill.refactor.journal.places import find_place
from midfill_infill.refactor.planning.plan import Planning, Request
from midfill_infill.refactor.planning.selection import Selection
from midfill_infill.refactor.reporting.check import check
from midfill_infill.text.visible import visible


def main(words: Sequence[str] | None = None) -> int:
    """Prints findings; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="midfill refactor check",
        description="Say what waits to be filled.",
        formatter_class=partial(argparse.HelpFormatter, width=80),  # asking for the width takes 5 ms
    )
    parser.add_argument("files", nargs="*", metavar="FILE")
    parser.add_argument("--recipe", metavar="NAME[=WORD]")
    options = parser.parse_args(words)
    try:
        selection = Selection(stubs=options.recipe is None, recipe=options.recipe)
        request = Request(selection, names=tuple(options.files) or None)
        findings = check(find_place(Path(".")), request, Planning())
    except MidfillError as error:
        print(visible(f"midfill: {error.sentence}"), file=sys.stderr)
        return ASKED_WRONGLY
    for finding in findings:
        print(finding)
    return PENDING if findings else 0


if __name__ == "__main__":
    sys.exit(main())
