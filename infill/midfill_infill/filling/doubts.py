"""Lowers the certainty of doubtful fills, whatever the engine says. Knows documents and what Midfill wrote."""

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from midfill_infill.filling.written import Written
from midfill_infill.syntax.captures import Function
from midfill_infill.syntax.outline import find_own, outline
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Hole

DOUBTFUL: Final = 0.45  # certainty of doubtful fills, less than likely
WEAKENED: Final = 0.1  # factor on the certainty of a proposal that only Midfill wrote
_RETURN: Final = re.compile(r"(?:return\s+)?(\w+);?")
_NAME: Final = re.compile(r"[^\W\d]\w*")


@dataclass(frozen=True)
class Doubts:
    """`written` are lines that Midfill wrote and nobody has accepted."""

    document: Document
    written: Written = Written()

    def temper(self, hole: Hole, text: str, certainty: float | None) -> float | None:
        """The certainty of a fill: at most DOUBTFUL if the fill is doubtful."""
        if certainty is None or certainty <= DOUBTFUL:
            return certainty
        if self.has(hole, text):
            return DOUBTFUL
        return certainty

    def has(self, hole: Hole, text: str) -> bool:
        """True if a fill is doubtful."""
        return self.written.has(text) or self._returns_parameter(hole, text)

    def weaken(self, text: str, certainty: float) -> float:
        """The certainty of a proposal, lowered for lines that Midfill itself wrote, because these are no evidence."""
        if self.written.has(text):
            return certainty * WEAKENED
        return certainty

    def _returns_parameter(self, hole: Hole, text: str) -> bool:
        """True if a body only returns a parameter, and no other function with that parameter does so."""
        name = _find_returned(text)
        if name is None or not hole.is_body:
            return False
        own = find_own(self.document, hole)
        if own is None or name in own.path:
            return False
        header, _ = self._read(own)
        return name in header and self._transforms(name, own)

    def _transforms(self, name: str, own: Function) -> bool:
        """True if other functions take `name`, and none of them only returns it."""
        bodies = [body for start, header, body in self._functions if start != own.start and name in header]
        return bool(bodies) and all(_find_returned(body) != name for body in bodies)

    @cached_property
    def _functions(self) -> list[tuple[int, frozenset[str], str]]:
        """Start, names in the header, and body without docstring of every function that has code."""
        functions: list[tuple[int, frozenset[str], str]] = []
        for function in outline(self.document).functions:
            if function.statements and not function.is_stub:
                functions.append((function.start, *self._read(function)))
        return functions

    def _read(self, function: Function) -> tuple[frozenset[str], str]:
        """The names in a function's header, and its body without docstring."""
        source = self.document.source
        body_start, body_end = function.body
        header = source[function.head : body_start].decode("utf-8", "replace")
        if function.keep:
            _, body_start = function.keep
        body = source[body_start:body_end].decode("utf-8", "replace")
        return frozenset(_NAME.findall(header)), body.strip().strip("{}").strip()


def _find_returned(body: str) -> str | None:
    """The name that a body only returns."""
    match = _RETURN.fullmatch(body.strip())
    return match[1] if match else None
