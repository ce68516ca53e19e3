"""Reads signatures that a fill wrote: what changed but types, and which names the added types need."""

import ast
import io
import tokenize
from collections.abc import Iterator
from typing import Final

from midfill_infill.refactor.writing.quoted import list_quoted, parse_type
from midfill_infill.text.document import Document

_TYPES: Final = (ast.Name, ast.Attribute, ast.Subscript, ast.BinOp, ast.Constant)


def read_signature(text: str) -> ast.FunctionDef | None:
    """The function of a signature from behind the opening bracket to the colon."""
    try:
        (function,) = ast.parse(f"def f({text} pass").body
    except (SyntaxError, ValueError):
        return None
    if not isinstance(function, ast.FunctionDef) or not text.rstrip().endswith(":"):
        return None
    return function if len(function.body) == 1 and isinstance(function.body[0], ast.Pass) else None


def list_types(function: ast.FunctionDef) -> list[ast.expr | None]:
    types = [parameter.annotation for parameter in _list_parameters(function)]
    return [*types, function.returns]


def _list_parameters(function: ast.FunctionDef) -> list[ast.arg]:
    own = function.args
    stars = [star for star in (own.vararg, own.kwarg) if star is not None]
    return [*own.posonlyargs, *own.args, *own.kwonlyargs, *stars]


def strip_types(function: ast.FunctionDef) -> str:
    """The signature's tree without types."""
    own = function.args
    kinds = (own.posonlyargs, own.args, own.kwonlyargs)
    names = [[parameter.arg for parameter in kind] for kind in kinds]
    stars = [star and star.arg for star in (own.vararg, own.kwarg)]
    defaults = [default and ast.dump(default) for default in (*own.defaults, *own.kw_defaults)]
    return repr((names, stars, len(own.defaults), defaults))


def list_comments(text: str) -> list[str]:
    """The comments of a signature; empty if it cannot be read."""
    try:
        tokens = tokenize.generate_tokens(io.StringIO(f"def f({text} pass\n").readline)
        return [token.string for token in tokens if token.type == tokenize.COMMENT]
    except (tokenize.TokenError, SyntaxError):
        return []


def is_type(node: ast.expr) -> bool:
    """True for an expression that type checkers read as a type: nothing in it is called or computed."""
    if isinstance(node, ast.Constant):
        inner = parse_type(node.value) if isinstance(node.value, str) else None
        return node.value is None or (inner is not None and is_type(inner))
    if isinstance(node, ast.Attribute):
        return is_type(node.value) and not isinstance(node.value, ast.Constant)
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.BitOr) and is_type(node.left) and is_type(node.right)
    if isinstance(node, ast.Starred):
        return is_type(node.value)
    if isinstance(node, ast.Subscript):
        return is_type(node.value) and (_is_free(node) or all(map(_is_argument, _list_arguments(node))))
    return isinstance(node, ast.Name)


def _is_free(node: ast.Subscript) -> bool:
    """True if what stands in the brackets is not all types."""
    name = getattr(node.value, "id", "")
    if isinstance(node.value, ast.Attribute):
        name = node.value.attr
    if name == "Annotated":
        return all(map(_is_argument, _list_arguments(node)[:1]))
    return name == "Literal"


def _list_arguments(node: ast.Subscript) -> list[ast.expr]:
    if isinstance(node.slice, ast.Tuple):
        return node.slice.elts
    return [node.slice]


def _is_argument(node: ast.expr) -> bool:
    if isinstance(node, ast.List | ast.Tuple):
        return all(map(_is_argument, node.elts))
    return (isinstance(node, ast.Constant) and node.value is ...) or is_type(node)


def list_names(node: ast.expr) -> Iterator[str]:
    """The names that a type needs, those in its quoted parts too."""
    for part in ast.walk(node):
        if isinstance(part, ast.Name):
            yield part.id
    for quoted in list_quoted(node):
        inner = parse_type(str(quoted.value))
        if inner is not None:
            yield from list_names(inner)


def list_parameters_around(document: Document, at: int) -> set[str]:
    """The type parameters of the functions and classes around a byte of the source."""
    assert document.syntax is not None
    node = document.syntax.parse_once(document.source).root_node.descendant_for_byte_range(at, at)
    names: set[str] = set()
    while node is not None:
        parameters = node.child_by_field_name("type_parameters")
        if parameters is not None:
            for parameter in parameters.named_children:
                text = (parameter.text or b"").decode("utf-8", "replace").lstrip("*")
                names.add(text.partition(":")[0].partition("=")[0].strip())
        node = node.parent
    return names
