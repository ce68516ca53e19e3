"""Lowers the certainty of doubtful fills, however certain the engine is. Knows documents and what Midfill wrote."""

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from midfill_infill.filling.written import Written
from midfill_infill.syntax.captures import Function
from midfill_infill.syntax.outline import find_own, outline
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Hole

DOUBTFUL: Final = 0.45  # a doubtful fill is at most so certain, which is less than likely
WEAKENED: Final = 0.1  # factor on the certainty of a proposal whose lines Midfill wrote and nobody has accepted
_RETURN: Final = re.compile(r"(?:return\s+)?(\w+);?")
_NAME: Final = re.compile(r"[^\W\d]\w*")


@dataclass(frozen=True)
class Doubts:
    """Finds doubtful fills of a document: bodies that only return a parameter with which other functions do more, and
    texts whose lines are all in `written`, because Midfill wrote them and nobody has accepted them.
    """

    document: Document
    written: Written = Written()

    def temper(self, hole: Hole, text: str, certainty: float | None) -> float | None:
        """The certainty of a fill, lowered to DOUBTFUL if the fill is doubtful."""
        if certainty is not None and certainty > DOUBTFUL and self.has(hole, text):
            return DOUBTFUL
        return certainty

    def has(self, hole: Hole, text: str) -> bool:
        """True if the fill `text` of a hole is doubtful."""
        return self.written.has(text) or self._returns_parameter(hole, text)

    def weaken(self, text: str, certainty: float) -> float:
        """The certainty of a proposal, lowered if it is only in `written`, because a fill is no evidence for itself."""
        return certainty * WEAKENED if self.written.has(text) else certainty

    def _returns_parameter(self, hole: Hole, text: str) -> bool:
        """True if a body only returns a parameter, which other functions have as well and none of them only returns."""
        name = _find_returned(text)
        if name is None or not hole.is_body:
            return False
        function = find_own(self.document, hole)
        if function is None or name in function.path:
            return False
        header_names, _ = self._read(function)
        return name in header_names and self._others_transform(name, function)

    def _others_transform(self, name: str, function: Function) -> bool:
        """True if other functions than `function` have `name` in their headers, and none of them only returns it."""
        bodies = [body for start, names, body in self._functions if start != function.start and name in names]
        return bool(bodies) and all(_find_returned(body) != name for body in bodies)

    @cached_property
    def _functions(self) -> list[tuple[int, frozenset[str], str]]:
        """For every function that has code its start, the names in its header, and its body without docstring."""
        functions: list[tuple[int, frozenset[str], str]] = []
        for function in outline(self.document).functions:
            if function.statements and not function.is_placeholder:
                functions.append((function.start, *self._read(function)))
        return functions

    def _read(self, function: Function) -> tuple[frozenset[str], str]:
        """The names in a function's header, and its body without docstring and outer braces."""
        source = self.document.source
        body_start, body_end = function.body
        header = source[function.head : body_start].decode("utf-8", "replace")
        if function.docstring:
            _, body_start = function.docstring
        body = source[body_start:body_end].decode("utf-8", "replace")
        return frozenset(_NAME.findall(header)), body.strip().strip("{}").strip()


def _find_returned(body: str) -> str | None:
    """The name that a body returns without doing anything else; None if there is no such name."""
    match = _RETURN.fullmatch(body.strip())
    return match[1] if match else None
