"""What a plan asks of each file: its stubs, functions by name, the matches of a query, or a recipe. Reads no tree.

A selection is plain data, so that it can be journaled and can key the cache of plans.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatchcase
from functools import cache, cached_property
from pathlib import PurePosixPath
from typing import Final

import tree_sitter

from midfill_infill.errors import MidfillError
from midfill_infill.languages import REGISTRY
from midfill_infill.refactor.planning.hints import may_have_python_stub
from midfill_infill.refactor.planning.recipes import get_recipe
from midfill_infill.syntax.bodies import body_hole
from midfill_infill.syntax.holes import find_stubs, hole_at_range
from midfill_infill.syntax.outline import outline
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Hole

# A change in what selectors find makes plans of before unfit.
_VERSION: Final = 2


@dataclass(frozen=True)
class Selection:
    """All that is given is joined. `query` is the text of a query, `recipe` "NAME[=WORD]".

    A query's `@fill` is what is filled; the lines of its `@context` are shown to the model wherever they are.
    """

    stubs: bool = False
    names: tuple[str, ...] = ()
    query: str | None = None
    recipe: str | None = None

    def __post_init__(self) -> None:
        if not (self.stubs or self.names or self.query is not None or self.recipe):
            raise MidfillError("no_selector", "nothing says what is to be filled")
        for name in self.names:
            if name.count(":") != 1 or not all(name.split(":")):
                raise MidfillError("bad_selector", f"--name {name!r} is not MODULE:FUNCTION")
        if self.query is not None:
            _compile_somewhere(self.query)
        if self.recipe is not None:
            get_recipe(self.recipe)

    @cached_property
    def key(self) -> bytes:
        """Tells selections apart that find different holes."""
        return hashlib.sha256(json.dumps([_VERSION, asdict(self)], sort_keys=True).encode()).digest()

    @cached_property
    def needs_only_python_stubs(self) -> bool:
        return self.stubs and not (self.names or self.query is not None or self.recipe)

    def may_match(self, path: str, data: bytes, language: str) -> bool:
        """A cheap look before parsing: False only where there is surely nothing."""
        if self.names and not any(_fits_module(name.split(":")[0], path) for name in self.names):
            if not (self.stubs or self.query is not None or self.recipe):
                return False
        if self.needs_only_python_stubs:
            return not REGISTRY[language].is_interface(path) and (language != "python" or may_have_python_stub(data))
        if self.recipe and not (self.stubs or self.names or self.query is not None):
            recipe, _ = get_recipe(self.recipe)
            return not recipe.languages or language in recipe.languages
        return True

    def find(self, document: Document, path: str) -> tuple[Hole, ...]:
        """The holes of a document in its order. Of two that overlap the outer one stays."""
        found: list[Hole] = []
        if self.stubs:
            found += find_stubs(document)
        for name in self.names:
            found += _named(document, path, *name.split(":"))
        if self.query is not None:
            found += _queried(document, self.query)
        if self.recipe is not None:
            recipe, word = get_recipe(self.recipe)
            if not recipe.languages or document.language in recipe.languages:
                found += recipe.find(document, word)
        return tuple(_disjoint(found))


def _disjoint(holes: Iterable[Hole]) -> Iterator[Hole]:
    last: Hole | None = None
    for hole in sorted(dict.fromkeys(holes), key=lambda hole: (hole.start_byte, -hole.end_byte)):
        if last is None or (hole.start_byte >= last.end_byte and hole.start_byte != last.start_byte):
            yield hole
            last = hole


def _module_names(path: str) -> list[str]:
    """`src/pkg/mod.py` is `src.pkg.mod`, `pkg.mod` and `mod`; a package's `__init__` goes by the package's name."""
    parts = PurePosixPath(path).with_suffix("").parts
    if parts[-1] == "__init__" and len(parts) > 1:
        parts = parts[:-1]
    return [".".join(parts[start:]) for start in range(len(parts))]


@cache
def _fits_module(pattern: str, path: str) -> bool:
    return any(fnmatchcase(name, pattern) for name in _module_names(path))


def _named(document: Document, path: str, module: str, function: str) -> Iterator[Hole]:
    if document.syntax is None or not _fits_module(module, path):
        return
    for found in outline(document).functions:
        if found.name is not None and fnmatchcase(found.name, function.replace("::", ".")):
            yield body_hole(document, found)


@cache
def _compile(query: str, language: str) -> tree_sitter.Query | str:
    """The query for a language, or what its grammar says against it."""
    try:
        compiled = REGISTRY[language].compile(query)
    except (tree_sitter.QueryError, ValueError) as error:
        return str(error)
    names = [compiled.capture_name(number) for number in range(compiled.capture_count)]
    return compiled if "fill" in names else "it has no capture @fill"


def _compile_somewhere(query: str) -> None:
    """Raises `bad_query` where no grammar takes it, with the words of the one that got furthest."""
    results = {language: _compile(query, language) for language in REGISTRY}
    said = [f"{language}: {result}" for language, result in results.items() if isinstance(result, str)]
    if len(said) == len(results):
        raise MidfillError("bad_query", f"no grammar takes the query ({said[0]})")


def _queried(document: Document, query: str) -> Iterator[Hole]:
    if document.language is None or document.syntax is None:
        return
    compiled = _compile(query, document.language)
    if isinstance(compiled, str):
        return
    root = document.syntax.parse(document.source).root_node
    for _, match in tree_sitter.QueryCursor(compiled).matches(root):
        seen = tuple(_range(document, node) for node in match.get("context", []))
        for node in match.get("fill", []):
            yield replace(hole_at_range(document, *_range(document, node)), context=seen)


def _range(document: Document, node: tree_sitter.Node) -> tuple[int, int]:
    return document.to_raw(node.start_byte), document.to_raw(node.end_byte)
