"""What a recipe promises of each fill, checked on the syntax tree before the fill counts as clean. Asks no engine."""

import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Callable, Collection
from typing import Final

from midfill_infill.refactor.generating import hints
from midfill_infill.refactor.planning.calls import find_calls
from midfill_infill.refactor.planning.queries import find_matches
from midfill_infill.refactor.writing.imports import bound_name, find_undefined
from midfill_infill.refactor.writing.quoted import unquote
from midfill_infill.syntax.captures import Function
from midfill_infill.syntax.outline import find_header_end, outline
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Edit, Patch

Promise = Callable[[Document, Edit, Collection[str]], str | None]
"""Says how a fill of a document, with the imports that it needs, breaks a promise; None if it keeps it."""


def keeps_functions(document: Document, edit: Edit, imports: Collection[str]) -> str | None:
    """The functions around the fill stay where and what they are, and it has code where code was."""
    if document.syntax is None:
        return None
    filled, end = document.put(Patch((edit,))), edit.start_byte + len(edit.replacement)
    old, new = (document, (edit.start_byte, edit.end_byte)), (filled, (edit.start_byte, end))
    code = edit.start_byte + len(edit.replacement.rstrip())
    if _list_functions(*old, edit.end_byte) != _list_functions(*new, code):
        is_call = old[1] in _list_calls(document)  # which may change in a decorator or in a default
        if not is_call or _list_functions(*old, edit.end_byte, cut=True) != _list_functions(*new, code, cut=True):
            return "the fill ends its function or changes others"
    if _has_code(filled, edit.start_byte, end):
        return None
    is_empty = _is_empty(filled, edit.start_byte, end)
    return "the fill is no code" if is_empty or _has_code(document, edit.start_byte, edit.end_byte) else None


def keeps_arm(document: Document, edit: Edit, imports: Collection[str]) -> str | None:
    """As `keeps_functions`, and the fill stays in its arm of a `match`."""
    code = edit.start_byte + len(edit.replacement.rstrip())
    before = _count_arms(document, edit.start_byte, edit.end_byte)
    is_kept = before == _count_arms(document.put(Patch((edit,))), edit.start_byte, code)
    return keeps_functions(document, edit, imports) if is_kept else "the fill ends its arm"


def keeps_signature(document: Document, edit: Edit, imports: Collection[str]) -> str | None:
    """Only types are added to a signature, and each is defined, also if it is quoted."""
    parts = [_show(document, part) for part in (document.data[edit.start_byte : edit.end_byte], edit.replacement)]
    old, new = map(hints.read_signature, parts)
    comments = map(hints.list_comments, parts)
    if old is None or new is None:
        return "the fill is no signature" if new is None else "its signature cannot be read"
    if hints.strip_types(old) != hints.strip_types(new) or next(comments) != next(comments):
        return "the fill changes more than types"
    pairs = list(zip(hints.list_types(old), hints.list_types(new), strict=True))
    if any(one is not None and (other is None or ast.dump(one) != ast.dump(other)) for one, other in pairs):
        return "the fill changes a type that was there"
    added = [other for one, other in pairs if one is None and other is not None]
    if not all(map(hints.is_type, added)):
        return "the fill has a type that is none"
    filled = document.put(Patch((edit,)))
    known = {*map(bound_name, imports), *hints.list_parameters_around(filled, filled.to_source(edit.start_byte))}
    used = {name for each in added for name in hints.list_names(each)} - known
    unknown = used & (find_undefined(unquote(filled.source)) or frozenset())
    return f"nothing defines {', '.join(sorted(unknown))}" if unknown else None


def keeps_code(document: Document, edit: Edit, imports: Collection[str]) -> str | None:
    """Only a docstring is added."""
    text = _show(document, edit.replacement).strip()
    try:
        tokens = [token.type for token in tokenize.generate_tokens(io.StringIO(text).readline)]
        is_text = isinstance(ast.literal_eval(text), str)
    except (SyntaxError, ValueError, tokenize.TokenError):
        return "the fill is more than a docstring"
    is_alone = is_text and all(type_ == tokenize.STRING or type_ in _SILENT for type_ in tokens)
    before, after = (_read_code(each) for each in (document, document.put(Patch((edit,)))))
    return None if is_alone and before == after else "the fill is more than a docstring"


def keeps_call(document: Document, edit: Edit, imports: Collection[str]) -> str | None:
    """A call takes the place of a call."""
    was, now = _list_calls(document), _list_calls(document.put(Patch((edit,))))
    is_call = (edit.start_byte, edit.start_byte + len(edit.replacement)) in now
    return None if is_call or (edit.start_byte, edit.end_byte) not in was else "the fill is no single call"


_NAMES_NEW: Final = re.compile(r"(?<!:):(?!:)")
PROMISES: Final[dict[str, Promise]] = {
    "add-type-hints": keeps_signature,
    "add-docstrings": keeps_code,
    "fill-match-arms": keeps_arm,
    "migrate-call": keeps_call,
}


def find_promise(recipe: str | None) -> Promise:
    """The promise of "NAME" or "NAME=WORD". Of other recipes, and of calls that no function is named for, it is that
    other functions stay.
    """
    name, _, word = (recipe or "").partition("=")
    is_free = name == "migrate-call" and _NAMES_NEW.search(word) is None
    return keeps_functions if is_free else PROMISES.get(name, keeps_functions)


_SILENT: Final = (tokenize.NEWLINE, tokenize.NL, tokenize.ENDMARKER)


def _read_code(document: Document) -> str | None:
    """A module's tree without docstrings; None if it cannot be read."""
    try:
        tree = ast.parse(document.source.decode("utf-8", "replace"))
    except (SyntaxError, ValueError, RecursionError):
        return None
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node):
            del node.body[0]
    return ast.dump(tree)


_DOCUMENTED: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module)
Header = tuple[tuple[str, ...], bytes]
"""A function's path, and its decorators and signature without white space if a fill touches them."""


def _list_functions(
    document: Document, span: tuple[int, int], code: int, *, cut: bool = False
) -> tuple[Counter[Header], list[Header]]:
    """The functions that a range does not hold as a whole, and those that hold it up to the byte `code`."""
    outside, around = Counter[Header](), list[Header]()
    for each in outline(document).functions:
        first, head, last = map(document.to_raw, (each.start, each.head, _find_end(document, each)))
        header = _read_header(document, each, span, cut=cut)
        outside[header] += not (span[0] <= first and last <= span[1])
        around += [header] if head < span[0] and code <= last else []
    return +outside, around


def _find_end(document: Document, function: Function) -> int:
    """The end of a function; one that is all comments yet, as Python's may be, ends before the next one."""
    if function.body[0] < function.body[1]:
        return function.end
    after = (each.start for each in outline(document).functions if each.start >= function.end)
    return min(after, default=len(document.source))


def _read_header(document: Document, function: Function, span: tuple[int, int], *, cut: bool) -> Header:
    assert document.syntax is not None
    is_indented = document.syntax.has_indented_blocks
    behind = find_header_end(document.source_lines, function) if is_indented else function.body[0]
    first, last = document.to_raw(function.start if is_indented else function.head), document.to_raw(behind)
    if last <= span[0] or span[1] < first:
        return function.path, b""
    parts = (first, span[0]), (span[1], last)
    if cut and all(start <= end for start, end in parts):
        return function.path, b" ".join(document.data[start:end] for start, end in parts)
    return function.path, b"".join(document.data[first:last].split())


def _count_arms(document: Document, start: int, end: int) -> int:
    """The arms that begin before a range and hold it."""
    found = find_matches(document, "(case_clause) @arm")
    spans = (tuple(map(document.to_raw, match["arm"][0].byte_range)) for match in found)
    return sum(first < start and end <= last for first, last in spans)


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
    around = [each for each in outline(document).functions if each.head < first and last <= _find_end(document, each)]
    return bool(around) and not around[-1].statements


def _list_calls(document: Document) -> set[tuple[int, int]]:
    calls = (call for call in find_calls(document) if not call.name.endswith(")"))
    return {(document.to_raw(call.start), document.to_raw(call.end)) for call in calls}


def _show(document: Document, data: bytes) -> str:
    return data.decode(document.encoding, "replace")
