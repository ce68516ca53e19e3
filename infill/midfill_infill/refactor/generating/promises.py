"""What a recipe promises of each fill, checked on the syntax tree before the fill counts as clean. Asks no engine."""

import ast
import re
from collections import Counter
from collections.abc import Callable, Collection
from typing import Final

from midfill_infill.refactor.planning.calls import find_calls
from midfill_infill.refactor.writing.imports import bound_name, find_undefined
from midfill_infill.syntax.outline import outline
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Edit, Patch

Promise = Callable[[Document, Edit, Collection[str]], str | None]
"""Says how a fill of a document, with the imports that it needs, breaks a promise; None if it keeps it."""


def keeps_functions(document: Document, edit: Edit, imports: Collection[str]) -> str | None:
    """The functions around the fill stay where and what they are."""
    if document.syntax is None:
        return None
    end = edit.start_byte + len(edit.replacement.rstrip())
    before = _list_functions(document, edit.start_byte, edit.end_byte)
    after = _list_functions(document.put(Patch((edit,))), edit.start_byte, end)
    return None if before == after else "the fill ends its function or changes others"


def keeps_signature(document: Document, edit: Edit, imports: Collection[str]) -> str | None:
    """Only types are added to a signature, and each is defined."""
    parts = document.data[edit.start_byte : edit.end_byte], edit.replacement
    old, new = (_read_signature(_show(document, part)) for part in parts)
    if old is None or new is None:
        return "the fill is no signature" if new is None else "its signature cannot be read"
    if _strip_types(old) != _strip_types(new):
        return "the fill changes more than types"
    pairs = zip(_list_types(old), _list_types(new), strict=True)
    if any(one is not None and (other is None or ast.dump(one) != ast.dump(other)) for one, other in pairs):
        return "the fill changes a type that was there"
    before, after = find_undefined(document.source), find_undefined(document.put(Patch((edit,))).source)
    unknown = (after or frozenset()) - (before or frozenset()) - set(map(bound_name, imports))
    return f"nothing defines {', '.join(sorted(unknown))}" if unknown else None


def keeps_code(document: Document, edit: Edit, imports: Collection[str]) -> str | None:
    """Only a docstring is added."""
    try:
        body = ast.parse(_show(document, edit.replacement).strip()).body
    except (SyntaxError, ValueError):
        body = []
    is_text = len(body) == 1 and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant)
    return None if is_text else "the fill is more than a docstring"


def keeps_call(document: Document, edit: Edit, imports: Collection[str]) -> str | None:
    """A call takes the place of a call."""
    was, now = _list_calls(document), _list_calls(document.put(Patch((edit,))))
    is_call = (edit.start_byte, edit.start_byte + len(edit.replacement)) in now
    return None if is_call or (edit.start_byte, edit.end_byte) not in was else "the fill is no single call"


_NAMES_NEW: Final = re.compile(r"(?<!:):(?!:)")
PROMISES: Final[dict[str, Promise]] = {
    "add-type-hints": keeps_signature,
    "add-docstrings": keeps_code,
    "migrate-call": keeps_call,
}


def find_promise(recipe: str | None) -> Promise:
    """The promise of "NAME" or "NAME=WORD". Of other recipes, and of calls that no function is named for, it is that
    other functions stay.
    """
    name, _, word = (recipe or "").partition("=")
    is_free = name == "migrate-call" and _NAMES_NEW.search(word) is None
    return keeps_functions if is_free else PROMISES.get(name, keeps_functions)


def _list_functions(document: Document, start: int, end: int) -> tuple[Counter[tuple[str, ...]], list[tuple[str, ...]]]:
    """The paths of the functions that begin outside of a range, and of those around it."""
    functions = outline(document).functions
    spans = [(each.path, document.to_raw(each.head), document.to_raw(each.end)) for each in functions]
    outside = Counter(path for path, head, _ in spans if not start <= head < end)
    return outside, [path for path, head, last in spans if head < start and end <= last]


def _list_calls(document: Document) -> set[tuple[int, int]]:
    return {(document.to_raw(call.start), document.to_raw(call.end)) for call in find_calls(document)}


def _show(document: Document, data: bytes) -> str:
    return data.decode(document.encoding, "replace")


def _read_signature(text: str) -> ast.FunctionDef | None:
    """The function of a signature from behind the opening bracket to the colon."""
    try:
        (function,) = ast.parse(f"def f({text} pass").body
    except (SyntaxError, ValueError):
        return None
    return function if isinstance(function, ast.FunctionDef) else None


def _list_types(function: ast.FunctionDef) -> list[ast.expr | None]:
    return [*(each.annotation for each in _list_parameters(function)), function.returns]


def _list_parameters(function: ast.FunctionDef) -> list[ast.arg]:
    own = function.args
    stars = [each for each in (own.vararg, own.kwarg) if each is not None]
    return [*own.posonlyargs, *own.args, *own.kwonlyargs, *stars]


def _strip_types(function: ast.FunctionDef) -> str:
    """The signature's tree without types."""
    own = function.args
    names = [[each.arg for each in kind] for kind in (own.posonlyargs, own.args, own.kwonlyargs)]
    stars = [each and each.arg for each in (own.vararg, own.kwarg)]
    defaults = [each and ast.dump(each) for each in (*own.defaults, *own.kw_defaults)]
    return repr((names, stars, len(own.defaults), defaults))
