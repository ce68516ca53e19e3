"""Which names are in scope at a hole: names in the surrounding text, and builtins. Knows words, no syntax."""

import re
from collections.abc import Callable, Sequence


class Sight:
    """`known` are the builtins; if None, every name is in scope. So are names that `can_import` accepts."""

    def __init__(
        self, texts: Sequence[str], known: frozenset[str] | None, can_import: Callable[[str], bool] | None = None
    ) -> None:
        self._texts, self._known, self._can_import = texts, known, can_import
        self._found: dict[str, bool] = {}

    def has(self, name: str) -> bool:
        """True if a name (or for `name.attribute` the attribute) is in scope; an importable name has any attribute."""
        owner, _, last = name.rpartition(".")
        return (
            self._knows(last) or bool(owner and not self._knows(owner) and self._imports(owner)) or self._imports(last)
        )

    def _imports(self, name: str) -> bool:
        return self._can_import is not None and self._can_import(name)

    def _knows(self, name: str) -> bool:
        if not name or self._known is None or name in self._known:  # a MISSING node has no text
            return True
        if name not in self._found:
            self._found[name] = any(_holds(text, name) for text in self._texts)
        return self._found[name]


def _holds(text: str, name: str) -> bool:
    """True if `name` is a whole word of `text`. Searching is faster than indexing all words: few names are checked."""
    return name in text and re.search(rf"(?<![\w$]){re.escape(name)}(?![\w$])", text) is not None
