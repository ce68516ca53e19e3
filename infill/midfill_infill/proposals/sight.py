"""Which names are in sight of a hole: names in the surrounding text, and builtins. Knows words, no syntax."""

import re
from collections.abc import Sequence


class Sight:
    """`known` are the builtins; if None, every name is in sight."""

    def __init__(self, texts: Sequence[str], known: frozenset[str] | None) -> None:
        self._texts = texts
        self._known = known
        self._is_in_texts: dict[str, bool] = {}

    def has(self, name: str) -> bool:
        if self._known is None or name in self._known:
            return True
        if name not in self._is_in_texts:
            self._is_in_texts[name] = any(_holds(text, name) for text in self._texts)
        return self._is_in_texts[name]


def _holds(text: str, name: str) -> bool:
    """True if `name` is a whole word of `text`. Searching is faster than indexing all words: few names are checked."""
    if name not in text:
        return False
    return re.search(rf"(?<![\w$]){re.escape(name)}(?![\w$])", text) is not None
