"""Finds the calls of a document and resolves callees by imports: functions, methods, constructors. Knows trees."""

from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

import tree_sitter

from midfill_infill.refactor.planning.imports import plain, read_imports
from midfill_infill.refactor.planning.queries import find_matches
from midfill_infill.text.document import Document

_CALL: Final = "(call_expression function: (_) @function) @call"
_NEW: Final = "(new_expression constructor: (_) @function) @call"
_QUERIES: Final = {
    "python": "(call function: (_) @function) @call",
    "javascript": _CALL + _NEW,
    "typescript": _CALL + _NEW,
    "tsx": _CALL + _NEW,
    "go": _CALL + "(composite_literal type: (_) @function) @call",
    "rust": _CALL + "(macro_invocation macro: (_) @function) @call",
    "c": _CALL,
    "cpp": _CALL + "(new_expression type: (_) @function) @call",
    "java": "(method_invocation object: (_)? @object name: (_) @function) @call"
    "(object_creation_expression type: (_) @function) @call",
}
LANGUAGES: Final = tuple(_QUERIES)


@dataclass(frozen=True)
class CallSite:
    """`start` to `end` in source bytes. `name` is as written, `full` the possible resolved names, all dotted; `kind` is
    the node type.
    """

    kind: str
    start: int
    end: int
    name: str
    full: tuple[str, ...]
    is_broken: bool

    def calls(self, pattern: str) -> bool:
        """True if this calls `pattern`; the import path may be longer."""
        wanted = plain(pattern)
        if fnmatchcase(self.name, wanted):
            return True
        return "." in wanted and any(fnmatchcase(f".{path}", f"*.{wanted}") for path in self.full)

    def calls_named(self, pattern: str) -> bool:
        """Like `calls`, but a name without dots also matches methods and attributes of that name."""
        return self.calls(pattern) or fnmatchcase(self.name.rpartition(".")[2], pattern)


def find_calls(document: Document) -> Iterator[CallSite]:
    """Every call in tree order, outer ones first; none in languages without calls."""
    if document.language not in _QUERIES:
        return
    imports = read_imports(document)
    for match in find_matches(document, _QUERIES[document.language]):
        call = match["call"][0]
        parts = [_text(node) for key in ("object", "function") for node in match.get(key, [])]
        name = plain(".".join(parts))
        yield CallSite(call.type, call.start_byte, call.end_byte, name, imports.resolve(name), call.has_error)


def _text(node: tree_sitter.Node) -> str:
    return (node.text or b"").decode("utf-8", "replace")
