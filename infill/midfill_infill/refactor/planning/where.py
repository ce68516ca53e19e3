"""The conditions of `--where`: calls, length, comments of a function. Reads the tree."""

import operator
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final

from midfill_infill.errors import MidfillError
from midfill_infill.refactor.planning.calls import CallSite, find_calls
from midfill_infill.refactor.planning.queries import find_comments
from midfill_infill.syntax.captures import Function
from midfill_infill.text.document import Document

_FORM: Final = re.compile(
    r"(?P<not>not\s+)?(?:calls\s+(?P<callee>\S+)|(?P<no>no|has)\s+docstring|has\s+(?P<word>\w+)"
    r"|lines\s*(?P<operator><=|>=|<|>|=)\s*(?P<lines>\d+))"
)
_OPERATORS: Final[Mapping[str, Callable[[int, int], bool]]] = {
    "<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge, "=": operator.eq,
}  # fmt: skip
FORMS: Final = "calls NAME, has TODO, no docstring, lines > N, each with `not` before it"


Condition = Callable[[Document, Function], bool]


@lru_cache(maxsize=64)
def read_condition(text: str) -> Condition:
    """Raises `bad_selector`, naming the valid forms."""
    match = _FORM.fullmatch(text.strip())
    if match is None:
        raise MidfillError("bad_selector", f"--where {text!r} is not understood", next_step=f"write {FORMS}")
    holds = _compile(match)
    return (lambda document, function: not holds(document, function)) if match["not"] else holds


def _compile(match: re.Match[str]) -> Condition:
    if callee := match["callee"]:
        return lambda document, function: any(
            function.head <= call.start < function.end and call.calls_named(callee) for call in _calls(document)
        )
    if word := match["word"]:
        says = re.compile(rb"(?<!\w)" + re.escape(word.encode()) + rb"(?!\w)")
        return lambda document, function: any(
            function.start <= start < function.end and says.search(document.source, start, end)
            for start, end in _comments(document)
        )
    if match["no"]:
        wanted = match["no"] == "has"
        return lambda document, function: _has_docstring(document, function) == wanted
    compare, number = _OPERATORS[match["operator"]], int(match["lines"])
    return lambda document, function: compare(_count_lines(document, function), number)


def _count_lines(document: Document, function: Function) -> int:
    lines = document.source_lines
    return lines.at(max(function.end - 1, function.head)) - lines.at(function.head) + 1


def _has_docstring(document: Document, function: Function) -> bool:
    """In Python a string that opens the body, elsewhere a comment directly above the definition."""
    lines = document.source_lines
    assert document.syntax is not None
    if document.syntax.has_indented_blocks:
        return function.keep is not None
    above = lines.at(function.start) - 1
    return any(lines.at(max(end - 1, start)) == above and lines.first_char(lines.at(start)) == start
               for start, end in _comments(document))  # fmt: skip


@lru_cache(maxsize=4)
def _calls(document: Document) -> tuple[CallSite, ...]:
    return tuple(find_calls(document))


@lru_cache(maxsize=4)
def _comments(document: Document) -> tuple[tuple[int, int], ...]:
    return tuple(sorted(node.byte_range for node in find_comments(document)))
