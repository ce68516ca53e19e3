"""Reads the Python signatures that a fill wrote: their types, all but their types, and the names that types need."""

import ast
import io
import tokenize
from collections.abc import Iterator

from midfill_infill.refactor.writing.quoted import list_quoted, parse_type
from midfill_infill.text.document import Document


def read_signature(text: str) -> ast.FunctionDef | None:
    """The function that has a signature, given as text from after the opening bracket to the colon; else None."""
    try:
        (function,) = ast.parse(f"def f({text} pass").body
    except (SyntaxError, ValueError):
        return None
    if not isinstance(function, ast.FunctionDef) or not text.rstrip().endswith(":"):
        return None
    return function if len(function.body) == 1 and isinstance(function.body[0], ast.Pass) else None


def list_types(function: ast.FunctionDef) -> list[ast.expr | None]:
    """The types of all parameters and of the result, None where there is none."""
    types = [parameter.annotation for parameter in _list_parameters(function)]
    return [*types, function.returns]


def _list_parameters(function: ast.FunctionDef) -> list[ast.arg]:
    arguments = function.args
    stars = [star for star in (arguments.vararg, arguments.kwarg) if star is not None]
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *stars]


def strip_types(function: ast.FunctionDef) -> str:
    """The names, stars and defaults of a signature as text, to compare two signatures without their types."""
    arguments = function.args
    kinds = (arguments.posonlyargs, arguments.args, arguments.kwonlyargs)
    names = [[parameter.arg for parameter in kind] for kind in kinds]
    stars = [star and star.arg for star in (arguments.vararg, arguments.kwarg)]
    defaults = [default and ast.dump(default) for default in (*arguments.defaults, *arguments.kw_defaults)]
    return repr((names, stars, len(arguments.defaults), defaults))


def list_comments(text: str) -> list[str]:
    """The comments in the text of a signature; none if it cannot be read."""
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
        return is_type(node.value) and _has_type_arguments(node)
    return isinstance(node, ast.Name)


def _has_type_arguments(node: ast.Subscript) -> bool:
    """True if the brackets of a type hold types; `Literal` may hold anything, `Annotated` anything after the first."""
    name = getattr(node.value, "id", "")
    if isinstance(node.value, ast.Attribute):
        name = node.value.attr
    if name == "Literal":
        return True
    arguments = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    if name == "Annotated":
        arguments = arguments[:1]
    return all(map(_is_argument, arguments))


def _is_argument(node: ast.expr) -> bool:
    """True for a type, `...`, or a list of these as in `Callable[[int, str], None]`."""
    if isinstance(node, ast.List | ast.Tuple):
        return all(_is_argument(element) for element in node.elts)
    return (isinstance(node, ast.Constant) and node.value is ...) or is_type(node)


def list_names(node: ast.expr) -> Iterator[str]:
    """The names in a type, also those in its quoted parts."""
    for part in ast.walk(node):
        if isinstance(part, ast.Name):
            yield part.id
    for quoted in list_quoted(node):
        inner = parse_type(str(quoted.value))
        if inner is not None:
            yield from list_names(inner)


def list_parameters_around(document: Document, at: int) -> set[str]:
    """The names of the type parameters that the functions and classes around a byte of the source declare."""
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
