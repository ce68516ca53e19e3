"""Lowers the certainty of doubtful fills, whatever the engine says. Knows documents and what Midfill wrote."""

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from midfill_infill.filling.written import Written
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
        return DOUBTFUL if self.written.has(text) or self._returns_parameter(hole, text) else certainty

    def weaken(self, text: str, certainty: float) -> float:
        """The certainty of a proposal, lowered for lines that Midfill itself wrote, because these are no evidence."""
        return certainty * WEAKENED if self.written.has(text) else certainty

    def _returns_parameter(self, hole: Hole, text: str) -> bool:
        """True if a body only returns a parameter, and no other function with that parameter does so."""
        match = _RETURN.fullmatch(text.strip()) if hole.is_body else None
        own = find_own(self.document, hole) if match else None
        if match is None or own is None:
            return False
        source = self.document.source
        is_own = match[1] in _NAME.findall(source[own.head : own.body[0]].decode("utf-8", "replace"))
        return is_own and match[1] not in own.path and self._transforms(match[1], own.start)

    def _transforms(self, name: str, own_start: int) -> bool:
        """True if other functions take `name`, and none of them only returns it."""
        others = [body for start, header, body in self._functions if start != own_start and name in header]
        return bool(others) and not any((match := _RETURN.fullmatch(body)) and match[1] == name for body in others)

    @cached_property
    def _functions(self) -> list[tuple[int, frozenset[str], str]]:
        """Start, names in the header, and body without docstring of every function that has code."""
        source, found = self.document.source, []
        for each in outline(self.document).functions:
            if each.statements and not each.is_stub:
                start = each.keep[1] if each.keep else each.body[0]
                header = source[each.head : each.body[0]].decode("utf-8", "replace")
                body = source[start : each.body[1]].decode("utf-8", "replace").strip().strip("{}").strip()
                found.append((each.start, frozenset(_NAME.findall(header)), body))
        return found
