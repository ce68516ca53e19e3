"""What a fill is shown on, and the view that shows nothing. Knows no terminal."""

import sys
from types import TracebackType
from typing import Protocol, Self

from midfill_infill.fill import Preview


class FillView(Protocol):
    """What a fill is shown on."""

    def note(self, phrase: str) -> None: ...

    def show(self, preview: Preview) -> None: ...


class QuietView:
    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def note(self, phrase: str) -> None:
        if sys.stderr.isatty():
            print(f"{phrase} ...", file=sys.stderr)

    def show(self, preview: Preview) -> None:
        return None
