"""Selects the holes of a file: stubs, functions by name or by `--where`, matches of a query, holes of a recipe."""

import operator
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache, cached_property, lru_cache
from pathlib import PurePosixPath
from typing import Final

import tree_sitter

from midfill_infill.errors import MidfillError
from midfill_infill.languages import REGISTRY
from midfill_infill.refactor.planning.calls import find_calls
from midfill_infill.refactor.planning.queries import compile_query, find_comments, find_holes
from midfill_infill.refactor.planning.recipes import get_recipe
from midfill_infill.syntax.bodies import body_hole
from midfill_infill.syntax.captures import Function
from midfill_infill.syntax.outline import outline
from midfill_infill.syntax.stubs import is_stub
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Hole


@dataclass(frozen=True)
class Selection:
    """What the user selects: the holes of the recipe, without a recipe those of the query, without both all bodies.

    Every other field restricts the holes: `stubs` to functions that are stubs, `names` to functions with one of these
    names (MODULE:FUNCTION), `where` to functions that meet all these conditions, and a query beside a recipe to what
    its `@fill` captures. `query` is the text of a tree-sitter query, whose `@fill` is filled and whose `@context` is
    shown to the model. `recipe` is "NAME" or "NAME=WORD". Raises MidfillError if a field cannot be understood.
    """

    stubs: bool = False
    names: tuple[str, ...] = ()
    query: str | None = None
    recipe: str | None = None
    where: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not (self.stubs or self.names or self.query is not None or self.recipe or self.where):
            raise MidfillError("no_selector", "nothing says what is to be filled")
        for name in self.names:
            if name.count(":") != 1 or not all(name.split(":")):
                raise MidfillError("bad_selector", f"--name {name!r} is not MODULE:FUNCTION")
        for text in self.where:
            read_condition(text)
        if self.query is not None:
            results = {language: _compile(self.query, language) for language in REGISTRY}
            if all(isinstance(result, str) for result in results.values()):
                language, reason = next(iter(results.items()))
                raise MidfillError("bad_query", f"no grammar takes the query ({language}: {reason})")
        if self.recipe is not None:
            get_recipe(self.recipe)

    @cached_property
    def languages(self) -> tuple[str, ...]:
        """The languages that the recipe knows; empty if it knows all, and without a recipe."""
        return get_recipe(self.recipe)[0].languages if self.recipe else ()

    def may_match(self, path: str, language: str) -> bool:
        """A cheap check before parsing: False only if the file certainly has no hole."""
        if self.names and not any(_fits_module(name.split(":")[0], path) for name in self.names):
            return False
        return not (self.stubs and REGISTRY[language].is_interface(path))

    def find(self, document: Document, path: str) -> tuple[Hole, ...]:
        """The selected holes in order. Of two holes that overlap only the outer one stays."""
        if document.syntax is None:
            return ()
        selected = (hole for hole, functions in self._find(document) if self._takes(document, path, functions))
        return tuple(_drop_overlaps(selected))

    def list_unfollowed(self, document: Document, path: str) -> Iterator[tuple[int, str]]:
        """What the recipe leaves as it is: a byte of the document's data, and the reason."""
        if document.syntax is None or self.recipe is None:
            return
        recipe, word = get_recipe(self.recipe)
        for at, reason in recipe.list_unfollowed(document, word):
            if not (self.names or self.where or self.stubs) or self._takes(document, path, _around(document, at)):
                yield document.to_data(at), reason

    def _find(self, document: Document) -> Iterator[tuple[Hole, list[Function]]]:
        """All holes, each with the functions around it, the innermost first; a body only with its own function."""
        if self.recipe is None and self.query is None:
            for function in outline(document).functions:
                if not self.stubs or is_stub(document, function):
                    yield body_hole(document, function), [function]
            return
        for hole in self._find_holes(document):
            around: list[Function] = []
            if self.names or self.where or self.stubs:
                around = _around(document, document.to_source(hole.start_byte))
            yield hole, around

    def _find_holes(self, document: Document) -> Iterable[Hole]:
        """The holes of the query, or of the recipe; with both, the recipe's holes inside of the query's holes."""
        queried = _find_queried(document, self.query)
        if self.recipe is None:
            return queried
        recipe, word = get_recipe(self.recipe)
        of_recipe = recipe.find(document, word)
        if self.query is None:
            return of_recipe
        spans = [range(hole.start_byte, hole.end_byte + 1) for hole in queried]
        return (hole for hole in of_recipe if any(hole.start_byte in span and hole.end_byte in span for span in spans))

    def _takes(self, document: Document, path: str, functions: list[Function]) -> bool:
        """True if the functions around a place meet `stubs`, `names` and `where`, each by any of them."""
        if self.stubs and not any(is_stub(document, function) for function in functions):
            return False
        if self.names and not any(_is_named(name, path, functions) for name in self.names):
            return False
        return all(any(read_condition(text)(document, function) for function in functions) for text in self.where)


def _around(document: Document, at: int) -> list[Function]:
    """The functions around a byte of the source, the innermost first."""
    return [function for function in reversed(outline(document).functions) if function.start <= at <= function.end]


def _is_named(name: str, path: str, functions: list[Function]) -> bool:
    """True if one of the functions has the name MODULE:FUNCTION. Code outside of functions has the empty name."""
    module, pattern = name.split(":")
    dotted = pattern.replace("::", ".")
    names = [function.name or "" for function in functions] or [""]
    return _fits_module(module, path) and any(fnmatchcase(function_name, dotted) for function_name in names)


def _drop_overlaps(holes: Iterable[Hole]) -> Iterator[Hole]:
    outer: Hole | None = None
    for hole in sorted(dict.fromkeys(holes), key=lambda hole: (hole.start_byte, -hole.end_byte)):
        if outer is None or (hole.start_byte >= outer.end_byte and hole.start_byte != outer.start_byte):
            yield hole
            outer = hole


@cache
def _fits_module(pattern: str, path: str) -> bool:
    """True if a file has a module name: `a/b/c.py` is `a.b.c`, `b.c` and `c`; `a/b/__init__.py` is `a.b` and `b`."""
    parts = PurePosixPath(path).with_suffix("").parts
    if parts[-1] == "__init__" and len(parts) > 1:
        parts = parts[:-1]
    return any(fnmatchcase(".".join(parts[start:]), pattern) for start in range(len(parts)))


@cache
def _compile(query: str, language: str) -> tree_sitter.Query | str:
    """The query compiled for a language, or the reason why it cannot be."""
    try:
        compiled = compile_query(query, language)
    except (tree_sitter.QueryError, ValueError) as error:
        return str(error)
    names = [compiled.capture_name(number) for number in range(compiled.capture_count)]
    return compiled if "fill" in names else "it has no capture @fill"


def _find_queried(document: Document, query: str | None) -> Iterator[Hole]:
    """The holes that a query captures; none without one, or in a language whose grammar rejects it."""
    if query is not None and document.language is not None and not isinstance(_compile(query, document.language), str):
        yield from find_holes(document, query)


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
    """The condition that a text of `--where` says. Raises `bad_selector`, which names the valid forms."""
    match = _FORM.fullmatch(text.strip())
    if match is None:
        raise MidfillError("bad_selector", f"--where {text!r} is not understood", f"write {FORMS}")
    holds = _compile_condition(match)
    if match["not"]:
        return lambda document, function: not holds(document, function)
    return holds


def _compile_condition(match: re.Match[str]) -> Condition:
    """The condition of a match of `_FORM`, without its `not`."""
    if callee := match["callee"]:
        return lambda document, function: _has_one(
            document.derive(_list_calls_named, callee), function.head, function.end
        )
    if word := match["word"]:
        return lambda document, function: _has_one(
            document.derive(_list_comments_with, word), function.start, function.end
        )
    if match["no"]:
        is_wanted = match["no"] == "has"
        return lambda document, function: _has_docstring(document, function) == is_wanted
    compare, limit = _OPERATORS[match["operator"]], int(match["lines"])
    return lambda document, function: compare(_count_lines(document, function), limit)


def _count_lines(document: Document, function: Function) -> int:
    lines = document.source_lines
    return lines.at(max(function.end - 1, function.head)) - lines.at(function.head) + 1


def _has_docstring(document: Document, function: Function) -> bool:
    """True for a string at the start of the body (Python) or a comment directly above the definition (others)."""
    assert document.syntax is not None
    if document.syntax.has_indented_blocks:
        return function.docstring is not None
    return document.source_lines.at(function.start) - 1 in document.derive(_find_comment_ends)


def _has_one(positions: list[int], start: int, end: int) -> bool:
    """True if one of the sorted `positions` is in a range."""
    index = bisect_left(positions, start)
    return index < len(positions) and positions[index] < end


def _list_calls_named(document: Document, callee: str) -> list[int]:
    """Where the calls of a function begin."""
    return sorted(call.start for call in find_calls(document) if call.calls_named(callee))


def _list_comments_with(document: Document, word: str) -> list[int]:
    """Where the comments with a word begin."""
    form = re.compile(rb"(?<!\w)%b(?!\w)" % re.escape(word.encode()))
    return sorted(start for start, end in _list_comments(document) if form.search(document.source, start, end))


def _find_comment_ends(document: Document) -> frozenset[int]:
    """The last lines of the comments that have no code before them."""
    lines = document.source_lines
    ends: set[int] = set()
    for start, end in _list_comments(document):
        if lines.first_char(lines.at(start)) == start:
            ends.add(lines.at(max(end - 1, start)))
    return frozenset(ends)


def _list_comments(document: Document) -> list[tuple[int, int]]:
    assert document.syntax is not None
    root = document.syntax.parse_once(document.source).root_node
    return [comment.byte_range for comment in find_comments(root)]
