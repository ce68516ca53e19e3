"""Adds docstrings to public functions without one: those that ruff's D102 and D103 report, except stubs."""

import re
from collections.abc import Iterator
from typing import Final

import tree_sitter

from midfill_infill.refactor.planning.queries import compile_query
from midfill_infill.refactor.planning.recipes.recipe import Recipe
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Hole, HoleKind

_DEFINITION: Final = "[(function_definition) (class_definition)] @definition"
_PUBLIC_MARKS: Final = ("__new__", "__call__")
_STRING: Final = ("string", "concatenated_string")
_PLACEHOLDERS: Final = ("pass_statement", "ellipsis")
_EXPORTS: Final = re.compile(rb"^__all__\b", re.MULTILINE)
_WORD: Final = re.compile(rb"""['"]([A-Za-z_]\w*)['"]""")


def find(document: Document, word: str) -> Iterator[Hole]:
    """An empty hole between quotes below each header, or before a body on the header's line.

    Stubs and broken functions are skipped. Names with a leading underscore and everything inside them, names missing in
    `__all__`, and nested functions are private.
    """
    is_private = document.path is not None and _is_private_module(document.path.parts)
    if document.syntax is None or is_private:
        return
    root = document.syntax.parse(document.source).root_node
    exported = _read_exports(root, document.source)
    private: dict[int, bool] = {}
    for _, match in tree_sitter.QueryCursor(compile_query(_DEFINITION, "python")).matches(root):
        (node,) = match["definition"]
        owner = _owner(node)
        name = _name(node)
        private[node.id] = _is_private(node, name, owner, exported) or (owner is not None and private[owner.id])
        if node.type == "function_definition" and not private[node.id] and (hole := _hole(document, node, owner)):
            yield hole


def _is_private_module(parts: tuple[str, ...]) -> bool:
    """`__init__.py` is none."""
    names = (part.partition(".")[0] for part in parts)
    return any(name.startswith("_") and not (name.startswith("__") and name.endswith("__")) for name in names)


def _read_exports(root: tree_sitter.Node, source: bytes) -> frozenset[bytes] | None:
    """The names in `__all__`; None without one."""
    if not _EXPORTS.search(source):
        return None
    statements = [node for node in root.children if (node.text or b"").startswith(b"__all__")]
    return frozenset(name for node in statements for name in _WORD.findall(node.text or b""))


def _owner(node: tree_sitter.Node) -> tree_sitter.Node | None:
    """The innermost class or function around a definition."""
    above = node.parent
    while above is not None and above.type not in ("class_definition", "function_definition"):
        above = above.parent
    return above


def _name(node: tree_sitter.Node) -> bytes:
    found = node.child_by_field_name("name")
    return (found.text if found is not None else None) or b""


def _is_private(
    node: tree_sitter.Node, name: bytes, owner: tree_sitter.Node | None, exported: frozenset[bytes] | None
) -> bool:
    if owner is None:
        return name.startswith(b"_") or (exported is not None and name not in exported)
    if owner.type == "function_definition":
        return True
    if node.type == "class_definition":
        return name.startswith(b"_")
    if name.startswith(b"_") and name.decode() not in _PUBLIC_MARKS:
        return True
    return any(text in (b"override", name + b".setter", name + b".deleter") for text in _decorators(node))


def _decorators(node: tree_sitter.Node) -> Iterator[bytes]:
    if node.parent is None or node.parent.type != "decorated_definition":
        return
    for child in node.parent.children:
        if child.type == "decorator":
            text = (child.text or b"").removeprefix(b"@").strip()
            yield text
            yield text.rpartition(b".")[2]


def _hole(document: Document, node: tree_sitter.Node, owner: tree_sitter.Node | None) -> Hole | None:
    body = node.child_by_field_name("body")
    colon = next((child for child in reversed(node.children) if child.type == ":"), None)
    first = next((child for child in body.named_children if child.type != "comment"), None) if body else None
    if body is None or colon is None or first is None or node.has_error:
        return None
    if _is_string(first) or _is_placeholder(body, first) or b"overload" in _decorators(node):
        return None
    lines = document.source_lines
    name = _name(node) if owner is None else _name(owner) + b"." + _name(node)
    header = lines.at(colon.start_byte)
    if lines.at(first.start_byte) != header:
        indent = lines.indent(lines.at(first.start_byte)).replace(b"\f", b"").decode("ascii")
        start = end = document.to_raw(lines.end(header))
        tail = '"""'
    else:
        indent = lines.indent(lines.at(node.start_byte)).replace(b"\f", b"").decode("ascii") + document.indent_unit
        start, end = document.to_raw(colon.end_byte), document.to_raw(first.start_byte)
        tail = f'"""\n{indent}'
    kind: HoleKind = "cursor" if start == end else "range"
    return Hole(start, end, kind=kind, name=name.decode(), lead=f'\n{indent}"""', tail=tail, indent=indent)


def _is_string(statement: tree_sitter.Node) -> bool:
    if statement.type != "expression_statement" or statement.named_child_count != 1:
        return False
    child = statement.named_children[0]
    return child.type in _STRING and not (child.text or b"").lower().startswith((b"b", b"f"))


def _is_placeholder(body: tree_sitter.Node, first: tree_sitter.Node) -> bool:
    """Whether a function is a stub or only a declaration."""
    if sum(child.type != "comment" for child in body.named_children) > 1:
        return False
    if first.type == "raise_statement":
        return (first.text or b"").startswith(b"raise NotImplemented")
    inner = first.named_children[0] if first.type == "expression_statement" and first.named_children else first
    return inner.type in _PLACEHOLDERS


RECIPE = Recipe(
    name="add-docstrings", title="describe public functions that have no docstring", languages=("python",), find=find
)
