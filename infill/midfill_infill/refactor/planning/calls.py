"""Finds the calls of a document, and resolves their names to dotted paths by what binds them there."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

import tree_sitter

from midfill_infill.refactor.planning.imported import find_required, plain
from midfill_infill.refactor.planning.queries import Match, find_matches
from midfill_infill.refactor.planning.scopes import Meaning, Scopes, read_scopes
from midfill_infill.syntax.captures import text_of
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
# Of `await load<T>(x)`, `void load<T>(x)` and `[*load(x)]`, where a grammar takes the sign for a part of the name.
_BEFORE: Final = re.compile(r"^(?:(?:await|void|typeof|delete)\s+|[!~+*-]\s*)+(?=[\w$(])")
_CHAINS: Final = ("optional_chain", "?.")
_ROOTS: Final = re.compile(r"^\s*(?:crate|self)\s*::")


@dataclass(frozen=True)
class CallSite:
    """`start` to `end` in source bytes. `name` is as written, dotted; `kind` is the node type. `is_optional`: a call
    like `load?.(x)`; `chain` says the same of each dot of the name, the last first.
    """

    kind: str
    start: int
    end: int
    name: str
    meaning: Meaning
    is_broken: bool
    is_optional: bool = False
    is_template: bool = False
    chain: tuple[bool, ...] = ()

    def calls(self, pattern: str) -> bool:
        """True if this certainly calls `pattern`; the import path may be longer."""
        return not self.meaning.doubt and self.may_call(pattern)

    def may_call(self, pattern: str) -> bool:
        """Like `calls`, but also if what binds the name is in doubt."""
        return matches(pattern, self.name, self.meaning)

    def calls_named(self, pattern: str) -> bool:
        """Like `may_call`, but a name without dots also matches methods and attributes of that name."""
        last = self.name.rpartition(".")[2]
        return self.may_call(pattern) or (
            fnmatchcase(last, pattern) and ("." in self.name or not self.meaning.is_local)
        )


def matches(pattern: str, name: str, meaning: Meaning) -> bool:
    """True if a name with this meaning may be `pattern`."""
    wanted = plain(pattern)
    is_bound = meaning.is_other if "." in wanted else meaning.is_local
    return (fnmatchcase(name, wanted) and not is_bound) or stands_for(meaning.paths, wanted)


def stands_for(paths: Iterable[str], wanted: str) -> bool:
    """True if one of the paths ends with a dotted pattern."""
    return "." in wanted and any(fnmatchcase(f".{path}", f"*.{wanted}") for path in paths)


def find_calls(document: Document) -> Iterator[CallSite]:
    """Every call in tree order, outer ones first; none in languages without calls."""
    if document.language not in _QUERIES:
        return
    scopes = read_scopes(document)
    for match in find_matches(document, _QUERIES[document.language]):
        call = match["call"][0]
        function = match["function"][0]
        first, *others = [text_of(node) for key in ("object", "function") for node in match.get(key, [])]
        callee = _BEFORE.sub("", first)
        skipped = len(first) - len(callee)
        start = call.start_byte
        if start == function.start_byte:
            start += len(first[:skipped].encode())
        written = ".".join([first[skipped:], *others])
        name = plain(written)
        if document.language == "rust":
            name = plain(_ROOTS.sub("", written))
        arguments = call.child_by_field_name("arguments")
        yield CallSite(
            call.type,
            start,
            call.end_byte,
            name,
            _resolve(scopes, match, name, written),
            call.has_error,
            any(child.type in _CHAINS for child in call.children),
            arguments is not None and arguments.type == "template_string",
            _list_chain(function),
        )


def _resolve(scopes: Scopes, match: Match, name: str, written: str) -> Meaning:
    function, call = match["function"][0], match["call"][0]
    while function.type == "unary_expression" and (inner := function.child_by_field_name("argument")) is not None:
        function = inner
    if (required := find_required(function)) is not None:
        return Meaning((required,))
    return scopes.resolve(name, call.start_byte, space_of(call.type, written, scopes.language))


def space_of(kind: str, written: str, language: str) -> str:
    """The space of names that the first part of a called name is in; "" if there is but one."""
    if language == "java":
        return "type" if kind == "object_creation_expression" else "value" if "." in written else "method"
    if language == "rust" and kind == "macro_invocation" and "::" not in written:
        return "macro"
    is_path = language in ("rust", "cpp") and re.match(r"\s*\w+\s*::", written)
    return "type" if is_path else "value" if language == "rust" else ""


def _list_chain(function: tree_sitter.Node) -> tuple[bool, ...]:
    found, node = list[bool](), function
    while node.type == "member_expression" and (inner := node.child_by_field_name("object")) is not None:
        found.append(any(child.type in _CHAINS for child in node.children))
        node = inner
    return tuple(found)
