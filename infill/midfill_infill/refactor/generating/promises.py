"""Checks what a recipe promises of each fill, on the syntax tree, before the fill counts as good. Asks no engine."""

import ast
import io
import tokenize
from collections import Counter
from collections.abc import Callable, Collection
from itertools import chain
from typing import Final

from midfill_infill.refactor.generating import hints
from midfill_infill.refactor.planning.calls import find_calls
from midfill_infill.refactor.planning.queries import find_matches
from midfill_infill.refactor.planning.recipes.migrate_call import read_word
from midfill_infill.refactor.writing.imports import bound_name, find_undefined
from midfill_infill.refactor.writing.quoted import unquote
from midfill_infill.syntax.captures import Function
from midfill_infill.syntax.outline import find_header_end, outline
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Edit, Patch

Promise = Callable[[Document, Edit, Collection[str]], str | None]
"""Says how a fill breaks a promise, given its document, its edit and the imports that it needs; None if it does not."""
Header = tuple[tuple[str, ...], bytes]
"""A function's path, and the text of its decorators and signature, which is empty unless a fill touches that."""
_DOCUMENTED: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module)
_BLANK_TOKENS: Final = (tokenize.NEWLINE, tokenize.NL, tokenize.ENDMARKER)


def keeps_functions(document: Document, edit: Edit, imports: Collection[str]) -> str | None:
    """Promises that the functions around the fill and outside of it stay as they are, and that the fill has code unless
    its hole had none and its function has other statements.
    """
    if document.syntax is None:
        return None
    filled = document.with_patch(Patch((edit,)))
    end = edit.start_byte + len(edit.replacement)
    code_end = edit.start_byte + len(edit.replacement.rstrip())
    old_span = (edit.start_byte, edit.end_byte)
    new_span = (edit.start_byte, end)
    if _list_functions(document, old_span, edit.end_byte) != _list_functions(filled, new_span, code_end):
        if old_span not in _list_call_spans(document):
            return "the fill ends its function or changes others"
        # A call may be in the header of a function, in a decorator or a default: then the rest of the header must stay.
        old = _list_functions(document, old_span, edit.end_byte, cut=True)
        if old != _list_functions(filled, new_span, code_end, cut=True):
            return "the fill ends its function or changes others"
    if _has_code(filled, edit.start_byte, end):
        return None
    if _is_empty(filled, edit.start_byte, end) or _has_code(document, edit.start_byte, edit.end_byte):
        return "the fill is not code"
    return None


def keeps_arm(document: Document, edit: Edit, imports: Collection[str]) -> str | None:
    """Promises that the fill stays in its arm of a `match`, and what `keeps_functions` promises."""
    code_end = edit.start_byte + len(edit.replacement.rstrip())
    num_before = _count_arms(document, edit.start_byte, edit.end_byte)
    if num_before != _count_arms(document.with_patch(Patch((edit,))), edit.start_byte, code_end):
        return "the fill ends its arm"
    return keeps_functions(document, edit, imports)


def keeps_signature(document: Document, edit: Edit, imports: Collection[str]) -> str | None:
    """Promises that the fill only adds types to a signature, and that every name in them is defined."""
    old_text = _decode(document, document.data[edit.start_byte : edit.end_byte])
    new_text = _decode(document, edit.replacement)
    old = hints.read_signature(old_text)
    new = hints.read_signature(new_text)
    if new is None:
        return "the fill is not one signature"
    if old is None:
        return "its signature cannot be read"
    if hints.strip_types(old) != hints.strip_types(new):
        return "the fill changes more than types"
    if hints.list_comments(old_text) != hints.list_comments(new_text):
        return "the fill changes more than types"
    added: list[ast.expr] = []
    for old_type, new_type in zip(hints.list_types(old), hints.list_types(new), strict=True):
        if old_type is None:
            if new_type is not None:
                added.append(new_type)
        elif new_type is None or ast.dump(old_type) != ast.dump(new_type):
            return "the fill changes a type that was there"
    if not all(hints.is_type(type_) for type_ in added):
        return "the fill has an annotation that is not a type"
    filled = document.with_patch(Patch((edit,)))
    parameters = hints.list_parameters_around(filled, filled.to_source(edit.start_byte))
    defined = {*map(bound_name, imports), *parameters}
    used = set(chain.from_iterable(hints.list_names(type_) for type_ in added))
    undefined = (used - defined) & (find_undefined(unquote(filled.source)) or frozenset())
    if undefined:
        return f"nothing defines {', '.join(sorted(undefined))}"
    return None


def keeps_code(document: Document, edit: Edit, imports: Collection[str]) -> str | None:
    """Promises that the fill adds nothing but a docstring."""
    text = _decode(document, edit.replacement).strip()
    try:
        tokens = [token.type for token in tokenize.generate_tokens(io.StringIO(text).readline)]
        is_text = isinstance(ast.literal_eval(text), str)
    except (SyntaxError, ValueError, tokenize.TokenError):
        return "the fill is more than a docstring"
    has_only_strings = all(type_ == tokenize.STRING or type_ in _BLANK_TOKENS for type_ in tokens)
    filled = document.with_patch(Patch((edit,)))
    if is_text and has_only_strings and _read_code(document) == _read_code(filled):
        return None
    return "the fill is more than a docstring"


def keeps_call(document: Document, edit: Edit, imports: Collection[str]) -> str | None:
    """Promises that the fill of a hole that is a call is one call too."""
    if (edit.start_byte, edit.end_byte) not in _list_call_spans(document):
        return None
    end = edit.start_byte + len(edit.replacement)
    if (edit.start_byte, end) in _list_call_spans(document.with_patch(Patch((edit,)))):
        return None
    return "the fill is not a single call"


PROMISES: Final[dict[str, Promise]] = {
    "add-type-hints": keeps_signature,
    "add-docstrings": keeps_code,
    "fill-match-arms": keeps_arm,
    "migrate-call": keeps_call,
}


def find_promise(recipe: str | None) -> Promise:
    """The promise of the recipe "NAME" or "NAME=WORD". It is `keeps_functions` for recipes without one of their own,
    for None, and for calls whose new function the user has not named.
    """
    name, _, word = (recipe or "").partition("=")
    if name == "migrate-call" and not read_word(word)[1]:
        return keeps_functions
    return PROMISES.get(name, keeps_functions)


def _read_code(document: Document) -> str | None:
    """The syntax tree of a Python module without docstrings, as text; None if it cannot be parsed."""
    try:
        tree = ast.parse(document.source.decode("utf-8-sig", "replace"))
    except (SyntaxError, ValueError, RecursionError):
        return None
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node):
            del node.body[0]
    return ast.dump(tree)


def _list_functions(
    document: Document, span: tuple[int, int], code_end: int, *, cut: bool = False
) -> tuple[Counter[Header], list[Header]]:
    """The functions that are not wholly inside of a range, and those around it, at least to the end of its code, at the
    byte `code_end`. For `cut` see `_read_header`.
    """
    start, end = span
    outside: Counter[Header] = Counter()
    around: list[Header] = []
    for function in outline(document).functions:
        first = document.to_data(function.start)
        head = document.to_data(function.head)
        last = document.to_data(_find_end(document, function))
        header = _read_header(document, function, span, cut=cut)
        if first < start or end < last:
            outside[header] += 1
        if head < start and code_end <= last:
            around.append(header)
    return outside, around


def _find_end(document: Document, function: Function) -> int:
    """The byte where a function ends. One whose body is empty or has only comments ends where the next one begins."""
    body_start, body_end = function.body
    if body_start < body_end:
        return function.end
    following = (other.start for other in outline(document).functions if other.start >= function.end)
    return min(following, default=len(document.source))


def _read_header(document: Document, function: Function, span: tuple[int, int], *, cut: bool) -> Header:
    """The header of a function, whose text is empty unless it touches `span`; with `cut` it leaves out the span."""
    assert document.syntax is not None
    start, end = span
    body_start, body_end = function.body
    if end < document.to_data(function.start) or body_start < body_end and document.to_data(body_end) <= start:
        return function.path, b""  # a shortcut: most functions of a file are far from the fill
    if document.syntax.has_indented_blocks:
        first = document.to_data(function.start)
        last = document.to_data(find_header_end(document.source_lines, function))
    else:
        first = document.to_data(function.head)
        last = document.to_data(function.body[0])
    if last <= start or end < first:
        return function.path, b""
    if cut and first <= start and end <= last:
        return function.path, document.data[first:start] + b" " + document.data[end:last]
    return function.path, b"".join(document.data[first:last].split())


def _count_arms(document: Document, start: int, end: int) -> int:
    """The number of arms of a `match` that begin before a range and include it."""
    num_arms = 0
    for match in find_matches(document, "(case_clause) @arm"):
        first, last = map(document.to_data, match["arm"][0].byte_range)
        if first < start and end <= last:
            num_arms += 1
    return num_arms


def _has_code(document: Document, start: int, end: int) -> bool:
    """True if a range has more than comments and white space."""
    assert document.syntax is not None
    first, last = document.to_source(start), document.to_source(end)
    pending = [document.syntax.parse_once(document.source).root_node]
    while pending:
        node = pending.pop()
        if "comment" in node.type or node.end_byte <= first or last <= node.start_byte:
            continue
        if not node.children and node.end_byte > node.start_byte and not (node.text or b"").isspace():
            return True
        pending += node.children
    return False


def _is_empty(document: Document, start: int, end: int) -> bool:
    """True if the innermost function around a range has no statement."""
    first, last = document.to_source(start), document.to_source(end)
    functions = outline(document).functions
    around = [function for function in functions if function.head < first and last <= _find_end(document, function)]
    return bool(around) and not around[-1].statements


def _list_call_spans(document: Document) -> set[tuple[int, int]]:
    """The calls of a document, without calls of what another call returns."""
    spans: set[tuple[int, int]] = set()
    for call in find_calls(document):
        if not call.name.endswith(")"):
            spans.add((document.to_data(call.start), document.to_data(call.end)))
    return spans


def _decode(document: Document, data: bytes) -> str:
    return data.decode(document.encoding, "replace")
