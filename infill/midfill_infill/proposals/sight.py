"""Says which names are in sight of a hole: builtins, and words of the surrounding texts. Knows words, no syntax."""

import re
from collections.abc import Sequence


class Sight:
    """The names in sight. `builtins` are those of the language; if it has no list of them, every name is in sight."""

    def __init__(self, texts: Sequence[str], builtins: frozenset[str] | None) -> None:
        self._texts = texts
        self._builtins = builtins
        self._is_in_texts: dict[str, bool] = {}

    def has(self, name: str) -> bool:
        if self._builtins is None or name in self._builtins:
            return True
        if name not in self._is_in_texts:
            self._is_in_texts[name] = any(_holds(text, name) for text in self._texts)
        return self._is_in_texts[name]


def _holds(text: str, name: str) -> bool:
    """True if `name` is a whole word of `text`. Searching is faster than indexing all words: few names are checked."""
    if name not in text:
        return False
    return re.search(rf"(?<![\w$]){re.escape(name)}(?![\w$])", text) is not None
