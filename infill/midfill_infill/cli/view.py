"""The display of a fill's progress where nothing is drawn. Does not import rich."""

import sys
from typing import Self

from midfill_infill.fill import Preview


class FillView:
    """A display of a fill's progress. This one shows no step, and names slow work where stderr is a terminal."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def note(self, phrase: str) -> None:
        if sys.stderr.isatty():
            print(f"{phrase} ...", file=sys.stderr)

    def show(self, preview: Preview) -> None:
        return None
