"""The interface of a language: grammar, queries, conventions. Knows no particular language."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib import import_module
from typing import Final

import tree_sitter

# Nodes whose commas and brackets do not divide the code around them.
_COMMENT: Final = re.compile("comment$")
_INERT: Final = re.compile(
    "_content$|_fragment$|^escape_sequence$|^regex_pattern$|^jsx_text$|^(rune|char|character|raw_string)_literal$"
    "|^(type|template)_(arguments?|parameters?|argument_list|parameter_list)$|^(lambda|closure)_parameters$"
)
# A source is parsed only once if its share of error bytes is below one in this many.
TOLERABLE_ERRORS: Final = 500
# A second parse must leave less than this share of the errors.
WORTH_A_GUESS: Final = 1.5


@dataclass(frozen=True)
class Language:
    """One row of the registry. The captures of its queries:

    `@function` a definition with `@body`, and `@name` and `@owner` (a class named outside of it) if it has them;
    `@whole` a node that contains a function and its decorators, and ends with it; `@keep` a docstring;
    `@scope` with `@scope.name` a class, module or the like; `@import` an import, which is always part of the context;
    `@stub` a placeholder statement; `@deliberate` a body that is never a stub; `@trivial` a body that may be empty;
    `@verbatim` text whose lines are not indented; `@block` a list of statements; `@unfinished` a node that the grammar
    accepts although a part is missing, unless it is `@finished` too; `@bound` a
    parameter or variable where it gets its value.
    """

    id: str
    title: str
    extensions: tuple[str, ...]
    grammar: str
    """Module and function of the grammar wheel, as "tree_sitter_python:language"."""
    queries: tuple[str, ...]
    """Names of the `.scm` files beside the language's module, joined to one query."""
    indent: str = "    "
    comment: str = "//"
    """The start of a line comment."""
    statement: str = "midfill();"
    """A harmless statement that stands for a hole while the rest is parsed."""
    openings: tuple[str, ...] = (
        "midfill,", "if (midfill) {", "}", "} else {", "midfill(", ");", "midfill(midfill, {", "});", "},", "]",
    )  # fmt: skip
    """Lines that open, continue or close a block or list: masks for a hole that no statement fits."""
    finds_unbound: bool = False
    """True if the grammar's fields tell which names a statement binds."""
    globals: frozenset[str] = frozenset()
    """Built-in names that code uses without an owner."""
    has_indented_blocks: bool = False
    """True if indentation is syntax."""
    has_coding_cookie: bool = False
    """True if a comment at the file's start may name its encoding (PEP 263)."""
    header: bytes | None = None
    """A regular expression for the first line of a function, its name in group 1; finds functions in a broken tree."""
    scope_header: bytes | None = None
    """As `header`, for functions and classes; a language has both or neither."""
    readings: tuple[Callable[[bytes], bytes], ...] = ()
    """Rewrites of equal length for a source with errors, each applied to the last, such as blanking macros."""
    read_within: Callable[[bytes], bytes] | None = None
    """Blanks the parts that the grammar cannot parse, such as markup around scripts; keeps the length."""
    interfaces: tuple[str, ...] = ()
    """Extensions of files that only declare: nothing in them is a stub."""
    names: frozenset[str] | None = None
    """Built-in names and attributes; None if no list is kept."""
    compiles: Callable[[str], bool] | None = None
    """True if the language's own compiler takes a source; None if there is none at hand."""
    rules: tuple[str, ...] = ()
    """As `queries`, for what a grammar takes and no compiler does: `@misplaced`; `@in.function`, `@in.async` and so on,
    which need such a node around them in their `@function`; `@once`, a name bound once in a `@region` or `@function`.
    """
    line_end: bytes | None = None
    """A regular expression for the text around a line break that ends a statement; None if line breaks are white space.
    """
    joins_lines: tuple[bytes, ...] = ()
    """Opening brackets within which no line break ends a statement."""

    @cached_property
    def _grammar(self) -> tree_sitter.Language:
        module, _, function = self.grammar.partition(":")
        return tree_sitter.Language(getattr(import_module(module), function)())

    @cached_property
    def query(self) -> tree_sitter.Query:
        return self._read(self.queries)

    @cached_property
    def misplaced(self) -> tree_sitter.Query:
        """The query of `rules`."""
        return self._read(self.rules)

    @cached_property
    def inert(self) -> tree_sitter.Query:
        """Captures every `@comment`, and as `@inert` the insides of strings, types and the like."""
        grammar = self._grammar
        kinds = filter(grammar.node_kind_is_visible, filter(grammar.node_kind_is_named, range(grammar.node_kind_count)))
        names = {grammar.node_kind_for_id(kind) or "" for kind in kinds}
        comments, others = filter(_COMMENT.search, names), filter(_INERT.search, names)
        return self.compile("\n".join([*map("({}) @comment".format, comments), *map("({}) @inert".format, others)]))

    def _read(self, names: tuple[str, ...]) -> tree_sitter.Query:
        from importlib.resources import files  # the pre-commit hook often parses nothing

        folder = files(__package__)
        return tree_sitter.Query(self._grammar, "\n".join(folder.joinpath(name).read_text("utf-8") for name in names))

    def compile(self, query: str) -> tree_sitter.Query:
        """Compiles a query. Raises tree_sitter.QueryError if the grammar rejects it."""
        return tree_sitter.Query(self._grammar, query)

    def parse(self, source: bytes, old: tree_sitter.Tree | None = None) -> tree_sitter.Tree:
        """Parses UTF-8 `source`; unparsable text becomes ERROR and MISSING nodes. If `old` is an edited tree of the
        text before, only the affected parts are parsed again.
        """
        if self.read_within is not None:  # blanking may change text far from an edit
            source, old = self.read_within(source), None
        parser = tree_sitter.Parser(self._grammar)
        tree = parser.parse(source) if old is None else parser.parse(source, old)
        weight, reading = weigh_errors(tree), source
        for read in self.readings if old is None else ():
            if weight * TOLERABLE_ERRORS <= len(source):
                break
            reading = read(reading)
            found = parser.parse(reading)
            if (lighter := weigh_errors(found)) * WORTH_A_GUESS < weight:
                tree, weight = found, lighter
        return tree

    def parse_once(self, source: bytes) -> tree_sitter.Tree:
        """The tree of a whole document. The last ones are kept, so do not edit it."""
        return _parse_once(self, source)

    def list_texts(self, source: bytes) -> list[tuple[int, int]]:
        """The spans of strings and comments of several lines, in no particular order."""
        found, pending = [], [self.parse_once(source).root_node]
        while pending:
            node = pending.pop()
            if node.type in _TEXTS:
                found.append(node.byte_range)
            else:
                pending.extend(child for child in node.children if child.start_point.row < child.end_point.row)
        return found

    def is_interface(self, name: str) -> bool:
        return name.endswith(self.interfaces)


# Strings with escapes over their lines, a run of strings excepted, which code may indent.
_TEXTS: Final = frozenset(
    ("comment", "block_comment", "line_comment", "doc_comment", "html_comment", "string", "template_string")
    + ("string_literal", "raw_string_literal", "interpreted_string_literal", "multiline_string_literal")
)


@lru_cache(maxsize=2)
def _parse_once(language: Language, source: bytes) -> tree_sitter.Tree:
    return language.parse(source)


def list_errors(tree: tree_sitter.Tree) -> Iterator[tree_sitter.Node]:
    """All ERROR and MISSING nodes."""
    pending = [tree.root_node]
    while pending:
        node = pending.pop()
        if node.is_error or node.is_missing:
            yield node
        pending.extend(child for child in node.children if child.has_error or child.is_error or child.is_missing)


def weigh_errors(tree: tree_sitter.Tree) -> int:
    """Number of source bytes in ERROR nodes, plus one per MISSING node."""
    return sum(max(1, _width(node) - sum(map(_width, node.children))) for node in list_errors(tree))


def _width(node: tree_sitter.Node) -> int:
    return node.end_byte - node.start_byte
