"""Finds names that the code behind a hole uses and nothing else binds, and names before it that nothing uses."""

import re
from typing import Final

import tree_sitter

from midfill_infill.languages import Language
from midfill_infill.syntax.problems import Span, captures, list_names

MAX_READ: Final = 20_000  # bytes of code before and behind the hole whose tree is read
MAX_UNBOUND: Final = 4
MAX_UNUSED: Final = 8
MAX_FUNCTION: Final = 8_000  # bytes of a function whose unused names are found: 20 ms
MAX_BYTES: Final = 80  # of a name
_NAME: Final = re.compile(rb"[\w$\x80-\xff]+")
_STAR: Final = re.compile(rb"(?m)^\s*from\s.*\simport\s+\*")


def find_unbound(language: Language, source: bytes, tree: tree_sitter.Tree, hole: Span, end: int) -> list[str]:
    """Names in the order of their first use, up to the byte `end` at most. Empty for other languages, if a
    wildcard import may bind names, and if there are many: then something else is missing.
    """
    if not language.finds_unbound or _STAR.search(source):
        return []
    functions = _list_functions(language, tree, hole)
    scope = functions[-1] if functions else tree.root_node
    behind = hole[1], min(end, scope.end_byte, hole[1] + MAX_READ)
    used: dict[str, None] = {}
    start = max(scope.start_byte, hole[0] - MAX_READ)
    bound = {node.text or b"" for node, binds in list_names(tree, (start, hole[0])) if binds or not _is_member(node)}
    bound.update(_NAME.findall(source, scope.start_byte, start))  # faster, though it takes comments for names
    for node, binds in list_names(tree, behind):
        name = node.text or b""
        if binds:
            bound.add(name)
        elif len(name) <= MAX_BYTES and not _is_member(node):
            used[name.decode("utf-8", "replace")] = None
    for node in tree.root_node.named_children if used and scope != tree.root_node else ():
        bound |= _list_bound(node, scope)
    known = {name.decode("utf-8", "replace") for name in bound} | language.globals
    unbound = [name for name in used if name not in known and not name.startswith("__")]
    return unbound if len(unbound) <= MAX_UNBOUND else []


def find_unused(language: Language, tree: tree_sitter.Tree, hole: Span) -> list[str]:
    """Parameters and variables that a hole's function binds before it and that nothing else there uses, last first."""
    functions = _list_functions(language, tree, hole)
    span = functions[0].byte_range if functions else hole
    if not functions or span[1] - span[0] > MAX_FUNCTION:
        return []
    nested = [node.byte_range for node in captures(language, tree, span, "function") if span[0] < node.start_byte]
    found = captures(language, tree, span, "bound")
    bound = {node.start_byte: (node.text or b"").decode("utf-8", "replace") for node in found}
    used = {node.text for node, _ in list_names(tree, span) if node.start_byte not in bound and not _is_member(node)}
    listed: dict[str, None] = {}
    for start, name in sorted(bound.items(), reverse=True):
        is_own = span[0] < start < hole[0] and not any(first <= start < end for first, end in nested)
        if is_own and name.encode() not in used and not name.startswith("_") and name not in language.globals:
            listed[name] = None
    return [name for name in listed if len(name) <= MAX_BYTES][:MAX_UNUSED]


def _list_functions(language: Language, tree: tree_sitter.Tree, hole: Span) -> list[tree_sitter.Node]:
    """The functions around a hole, innermost first."""
    found = captures(language, tree, hole, "function")
    around = (node for node in found if node.start_byte < hole[0] and hole[1] <= node.end_byte)
    return sorted(around, key=lambda node: node.end_byte - node.start_byte)


def _list_bound(node: tree_sitter.Node, scope: tree_sitter.Node) -> set[bytes]:
    """The name of a definition at the top; of other statements all names."""
    definition = node.child_by_field_name("definition") or node
    name = definition.child_by_field_name("name")
    if name is not None and definition.child_by_field_name("body") is not None:
        return {name.text or b""}
    if node.start_byte <= scope.start_byte and scope.end_byte <= node.end_byte:
        return set()
    return set(_NAME.findall(node.text or b""))


def _is_member(node: tree_sitter.Node) -> bool:
    """True for a name that belongs to something else: an attribute, a keyword."""
    if node.type != "identifier" or (above := node.parent) is None:
        return node.type not in ("identifier", "shorthand_property_identifier")
    field = {"attribute": "attribute", "keyword_argument": "name"}.get(above.type)
    return field is not None and above.child_by_field_name(field) == node
