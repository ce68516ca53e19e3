"""Unquotes Python types for tools that read names: `def f(a: 'T')` becomes `def f(a: (T))`. Knows no files."""

import ast
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Final

import tree_sitter

from midfill_infill.languages import get_language
from midfill_infill.text.encoding import UTF8_BOM

# Type parameters and `type` statements, which Python 3.11 does not read.
_TYPE_PARAMETERS: Final = """
(function_definition type_parameters: (_) @blank) (class_definition type_parameters: (_) @blank)
(type_alias_statement "type" @word) (type_alias_statement left: (type (generic_type (type_parameter) @blank)))
"""
_ROUNDS: Final = 3  # a quoted type may hold another one


def parse_type(text: str) -> ast.expr | None:
    """The syntax tree of a type, given the text between its quotes; None if that is no expression."""
    try:
        return ast.parse(f"({text.strip().removeprefix('*')}\n)", mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def list_quoted(node: ast.AST) -> Iterator[ast.Constant]:
    """The strings in a type that are quoted types; not the values of `Literal` nor the metadata of `Annotated`."""
    if isinstance(node, ast.Constant):
        if isinstance(node.value, str):
            yield node
        return
    children: Sequence[ast.AST] = list(ast.iter_child_nodes(node))
    if isinstance(node, ast.Subscript):
        name = node.value.attr if isinstance(node.value, ast.Attribute) else getattr(node.value, "id", "")
        if name == "Literal":
            return
        if name == "Annotated" and isinstance(node.slice, ast.Tuple):
            children = node.slice.elts[:1]
    for child in children:
        yield from list_quoted(child)


@lru_cache(maxsize=16)
def unquote(source: bytes) -> bytes:
    """A module with its quoted types in brackets. If this Python cannot read it, first blanks its type parameters."""
    source = source.removeprefix(UTF8_BOM)
    unquoted = source if _parse(source) is not None else _blank_type_parameters(source)
    for _ in range(_ROUNDS):
        tree = _parse(unquoted)
        types = list(_list_types(tree)) if tree is not None else []
        if not types:
            break
        line_starts = [0, *accumulate(map(len, unquoted.splitlines(keepends=True)))]
        for quoted in sorted(types, key=lambda quoted: (quoted.lineno, quoted.col_offset), reverse=True):
            start, end = (line_starts[line - 1] + column for line, column in _ends(quoted))
            unquoted = unquoted[:start] + b"(%b)" % str(quoted.value).encode() + unquoted[end:]
    return unquoted


def _ends(node: ast.Constant) -> tuple[tuple[int, int], tuple[int, int]]:
    """The start and the end of a node, each as its line (from 1) and its column in bytes (from 0)."""
    assert node.end_lineno is not None and node.end_col_offset is not None
    return (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)


@lru_cache(maxsize=2)
def _parse(source: bytes) -> ast.Module | None:
    """The tree of a module; None if it cannot be read."""
    try:
        return ast.parse(source.decode("utf-8", "replace"))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _list_types(tree: ast.Module) -> Iterator[ast.Constant]:
    """The strings in the annotations of a module that are types and can be parsed."""
    for node in ast.walk(tree):
        for type_ in (getattr(node, "annotation", None), getattr(node, "returns", None)):
            if not isinstance(type_, ast.expr):
                continue
            for quoted in list_quoted(type_):
                text = str(quoted.value)
                if not text.strip().startswith("*") and parse_type(text) is not None:
                    yield quoted


def _blank_type_parameters(source: bytes) -> bytes:
    """A module of the same size, with spaces for its type parameters, and `_ = ` for the word of a `type` statement."""
    language = get_language("python")
    root, blanked = language.parse_once(source).root_node, bytearray(source)
    for _, match in tree_sitter.QueryCursor(language.compile(_TYPE_PARAMETERS)).matches(root):
        for node in match.get("word", []):
            blanked[node.start_byte : node.end_byte] = b"_ = "
        for node in match.get("blank", []):
            text = source[node.start_byte : node.end_byte]
            blanked[node.start_byte : node.end_byte] = b"".join(b"\n" if byte == ord("\n") else b" " for byte in text)
    return bytes(blanked)
