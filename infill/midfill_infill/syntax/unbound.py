"""Finds names that the code behind a hole uses and nothing else binds, and names before it that nothing uses."""

import re
from typing import Final

import tree_sitter

from midfill_infill.languages import Language
from midfill_infill.syntax.problems import Span, captures, list_names

MAX_READ: Final = 20_000  # bytes of code before the hole, and as many behind it, whose names are read
MAX_UNBOUND: Final = 4
MAX_UNUSED: Final = 8
MAX_FUNCTION: Final = 8_000  # bytes of a function whose unused names are found: 20 ms
MAX_BYTES: Final = 80  # a longer name is left out
_NAME: Final = re.compile(rb"[\w$\x80-\xff]+")
_STAR: Final = re.compile(rb"(?m)^[ \t\f]*from\s.*\simport\s+\*")


def find_unbound(language: Language, source: bytes, tree: tree_sitter.Tree, hole: Span, end: int) -> list[str]:
    """The names that the code behind a hole, up to byte `end`, uses and nothing binds, by their first use. Empty if the
    language cannot tell, if a wildcard import may bind names, and if there are many, because then more is missing.
    """
    if not language.finds_unbound or _STAR.search(source):
        return []
    hole_start, hole_end = hole
    functions = _list_functions(language, tree, hole)
    scope = functions[-1] if functions else tree.root_node
    start = max(scope.start_byte, hole_start - MAX_READ)
    bound = set(_NAME.findall(source, scope.start_byte, start))  # faster than the tree, though comments have names too
    for node, binds in list_names(tree, (start, hole_start)):
        if binds or not _is_member(node):
            bound.add(node.text or b"")
    used: dict[str, None] = {}
    for node, binds in list_names(tree, (hole_end, min(end, scope.end_byte, hole_end + MAX_READ))):
        name = node.text or b""
        if binds:
            bound.add(name)
        elif len(name) <= MAX_BYTES and not _is_member(node):
            used[name.decode("utf-8", "replace")] = None
    if used and functions:
        for node in tree.root_node.named_children:
            bound |= _list_bound(node, scope)
    bound_names = {name.decode("utf-8", "replace") for name in bound} | language.globals
    unbound = [name for name in used if name not in bound_names and not name.startswith("__")]
    if len(unbound) > MAX_UNBOUND:
        return []
    return unbound


def find_unused(language: Language, tree: tree_sitter.Tree, hole: Span) -> list[str]:
    """Names that the function around a hole binds before the hole and uses nowhere, the last bound first. Empty outside
    of functions and in a large function.
    """
    functions = _list_functions(language, tree, hole)
    if not functions:
        return []
    span = functions[0].byte_range
    start, end = span
    if end - start > MAX_FUNCTION:
        return []
    bound = {node.start_byte: node.text or b"" for node in captures(language, tree, span, "bound")}
    used: set[bytes | None] = set()
    for node, _ in list_names(tree, span):
        if node.start_byte not in bound and not _is_member(node):
            used.add(node.text)
    nested = [node.byte_range for node in captures(language, tree, span, "function") if start < node.start_byte]
    unused: dict[str, None] = {}
    for position, text in sorted(bound.items(), reverse=True):
        if not start < position < hole[0] or any(first <= position < last for first, last in nested):
            continue
        name = text.decode("utf-8", "replace")
        if name.encode() in used or name.startswith("_") or name in language.globals:
            continue
        if len(name) <= MAX_BYTES:
            unused[name] = None
    return list(unused)[:MAX_UNUSED]


def _list_functions(language: Language, tree: tree_sitter.Tree, hole: Span) -> list[tree_sitter.Node]:
    """The functions around a hole, innermost first."""
    start, end = hole
    around = [
        node for node in captures(language, tree, hole, "function") if node.start_byte < start and end <= node.end_byte
    ]
    return sorted(around, key=lambda node: node.end_byte - node.start_byte)


def _list_bound(node: tree_sitter.Node, scope: tree_sitter.Node) -> set[bytes]:
    """The names that a statement may bind: of a definition its name, of others all names, but none around `scope`."""
    definition = node.child_by_field_name("definition") or node
    name = definition.child_by_field_name("name")
    if name is not None and definition.child_by_field_name("body") is not None:
        return {name.text or b""}
    if node.start_byte <= scope.start_byte and scope.end_byte <= node.end_byte:
        return set()
    return set(_NAME.findall(node.text or b""))


def _is_member(node: tree_sitter.Node) -> bool:
    """True for a name that is no variable: an attribute, or the keyword of an argument."""
    above = node.parent
    if node.type != "identifier" or above is None:
        return node.type not in ("identifier", "shorthand_property_identifier")
    if above.type == "attribute":
        return above.child_by_field_name("attribute") == node
    if above.type == "keyword_argument":
        return above.child_by_field_name("name") == node
    return False
