"""Finds the calls of a document, and resolves their names to dotted paths by what binds them there."""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property, partial
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
# In `await load<T>(x)`, `void load<T>(x)` and `[*load(x)]` the grammars take the operator for a part of the name.
_OPERATORS: Final = re.compile(r"^(?:(?:await|void|typeof|delete)\s+|[!~+*-]\s*)+(?=[\w$(])")
_CHAINS: Final = ("optional_chain", "?.")
_RUST_ROOTS: Final = re.compile(r"^\s*(?:crate|self)\s*::")


@dataclass(frozen=True)
class CallSite:
    """A call from byte `start` to `end` of the source. `kind` is its node's type, `name` the callee as written, dotted.
    `is_optional`: it is like `load?.(x)`; `chain`: whether each dot of the name is `?.`, the last dot first.
    `is_template`: its argument is a template string without brackets.
    """

    kind: str
    start: int
    end: int
    name: str
    find_meaning: Callable[[], Meaning] = field(repr=False, compare=False)
    is_broken: bool
    is_optional: bool = False
    is_template: bool = False
    chain: tuple[bool, ...] = ()

    @cached_property
    def meaning(self) -> Meaning:
        return self.find_meaning()

    def may_call(self, pattern: str) -> bool:
        """True if this may call the function `pattern`, whose path may have further names in front."""
        return matches(pattern, self.name, self.meaning)

    def may_be_method(self, pattern: str) -> bool:
        """True for a dotted call of the last name of `pattern`, if that has no path in front, or that of the call."""
        path, _, last = plain(pattern).rpartition(".")
        called_on, _, name = self.name.rpartition(".")
        return name == last and called_on != "" and path in ("", "*", called_on)

    def calls_named(self, pattern: str) -> bool:
        """Like `may_call`, but a name without dots also matches methods and attributes of that name."""
        last = self.name.rpartition(".")[2]
        is_local = "." not in self.name and self.meaning.is_local
        return self.may_call(pattern) or (fnmatchcase(last, pattern) and not is_local)


def matches(pattern: str, name: str, meaning: Meaning) -> bool:
    """True if a name as written, with this meaning, may be the function `pattern`."""
    function = plain(pattern)
    is_something_else = meaning.is_other if "." in function else meaning.is_local
    return (fnmatchcase(name, function) and not is_something_else) or stands_for(meaning.paths, function)


def stands_for(paths: Iterable[str], function: str) -> bool:
    """True if one of the paths ends with the names of `function`, a pattern that has a dot."""
    return "." in function and any(fnmatchcase(f".{path}", f"*.{function}") for path in paths)


def find_calls(document: Document) -> Iterator[CallSite]:
    """Every call in tree order, outer ones first; none in a language that has no query above."""
    if document.language not in _QUERIES:
        return
    scopes = read_scopes(document)
    for match in find_matches(document, _QUERIES[document.language]):
        call = match["call"][0]
        function = match["function"][0]
        first, *others = [text_of(node) for key in ("object", "function") for node in match.get(key, [])]
        callee = _OPERATORS.sub("", first)
        operators = first[: len(first) - len(callee)]
        start = call.start_byte
        if start == function.start_byte:
            start += len(operators.encode())
        written = ".".join([callee, *others])
        name = plain(written)
        if document.language == "rust":
            name = plain(_RUST_ROOTS.sub("", written))
        arguments = call.child_by_field_name("arguments")
        yield CallSite(
            call.type,
            start,
            call.end_byte,
            name,
            partial(_resolve, scopes, match, name, written),
            call.has_error,
            any(child.type in _CHAINS for child in call.children),
            arguments is not None and arguments.type == "template_string",
            _list_chain(function),
        )


def _resolve(scopes: Scopes, match: Match, name: str, written: str) -> Meaning:
    """What the name of a call means; `name` is `written` without syntax."""
    function, call = match["function"][0], match["call"][0]
    while function.type == "unary_expression" and (inner := function.child_by_field_name("argument")) is not None:
        function = inner
    if (required := find_required(function)) is not None:
        return Meaning((required,))
    return scopes.resolve(name, call.start_byte, space_of(call.type, written, scopes.language))


def space_of(kind: str, written: str, language: str) -> str:
    """The space of names (see `binders`) that the first part of a called name is in; "" if it may be in any."""
    if language == "java":
        if kind == "object_creation_expression":
            return "type"
        return "value" if "." in written else "method"
    if language == "rust" and kind == "macro_invocation" and "::" not in written:
        return "macro"
    if language in ("rust", "cpp") and re.match(r"\s*\w+\s*::", written):
        return "type"
    return "value" if language == "rust" else ""


def _list_chain(function: tree_sitter.Node) -> tuple[bool, ...]:
    """See `CallSite.chain`."""
    are_optional: list[bool] = []
    node = function
    while node.type == "member_expression" and (inner := node.child_by_field_name("object")) is not None:
        are_optional.append(any(child.type in _CHAINS for child in node.children))
        node = inner
    return tuple(are_optional)
