"""The interface of a language: grammar, queries, conventions. Knows no particular language."""

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib import import_module
from typing import Final

import tree_sitter

# Types of nodes whose text is not code: comments, and insides of strings; and types, whose commas separate no values.
_COMMENT_TYPE: Final = re.compile("comment$")
_INERT_TYPE: Final = re.compile(
    "_content$|_fragment$|^escape_sequence$|^regex_pattern$|^jsx_text$|^(rune|char|character|raw_string)_literal$"
    "|^(type|template)_(arguments?|parameters?|argument_list|parameter_list)$|^(lambda|closure)_parameters$"
)
# A source with more than one error byte in so many bytes is parsed again, by each of the `readings`.
MIN_BYTES_PER_ERROR: Final = 500
# A reading is taken if the best tree until then has more than this many times its error bytes.
MIN_IMPROVEMENT: Final = 1.5
# How long a grammar that may loop may parse, in seconds of the processor. A file with an error on each line needs less
# than a tenth of it.
PARSING_S: Final = 0.25
PARSING_S_PER_BYTE: Final = 2e-5
_READ_BYTES: Final = 2**16
# Nodes whose later lines keep their white space. A node of neighboring strings is none of these, because code may
# indent each string.
_TEXT_TYPES: Final = frozenset(
    ("comment", "block_comment", "line_comment", "doc_comment", "html_comment", "string", "template_string")
    + ("string_literal", "raw_string_literal", "interpreted_string_literal", "multiline_string_literal")
)


@dataclass(frozen=True)
class Language:
    """One row of the registry. The captures of its queries:

    `@function` a definition with `@body`, and `@name` and `@owner` if it has them: the type of a method that is defined
    outside of that type. `@whole` a function with its decorators; `@keep` a docstring; `@scope` with `@scope.name` a
    class, module or the like; `@import` an import, which is always part of the context. `@stub` a statement that only
    holds the place of a body, such as `pass`; `@deliberate` a body that is short on purpose and never a stub, as that
    of an abstract method; `@trivial` a body that may be empty. `@literal` a statement that is a literal alone;
    `@verbatim` text whose lines are not indented; `@block` a list of statements. `@unfinished` a node that the grammar
    accepts although a part is missing, unless it is `@finished` too. `@bound` a parameter or variable where it gets its
    value.
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
    """Lines that open, continue or close a block or list: they stand for a hole where `statement` does not fit."""
    heads: tuple[str, ...] = ()
    """Parts of lines that stand for a hole in the head of a statement or definition, where no name fits."""
    finds_unbound: bool = False
    """True if the grammar's fields tell which names a statement binds, so that undefined names can be found."""
    globals: frozenset[str] = frozenset()
    """Built-in names that need no import and no owner: they are never reported as undefined."""
    has_indented_blocks: bool = False
    """True if indentation is syntax."""
    has_coding_cookie: bool = False
    """True if a comment at the file's start may name its encoding (PEP 263)."""
    header: bytes | None = None
    """Matches the first line of a function, its name in group 1: finds functions where the tree is broken."""
    scope_header: bytes | None = None
    """As `header`, for functions and classes; a language has both or neither."""
    readings: tuple[Callable[[bytes], bytes], ...] = ()
    """Rewrites of a source with too many errors, such as blanking macros. Each keeps the length and gets what the one
    before returned.
    """
    read_within: Callable[[bytes], bytes] | None = None
    """Blanks the parts that the grammar cannot parse, such as markup around scripts; keeps the length."""
    interfaces: tuple[str, ...] = ()
    """Extensions of files that only declare: nothing in them is a stub."""
    names: frozenset[str] | None = None
    """All built-in names and attributes, `globals` included, for proposals; None if no list is kept."""
    compiles: Callable[[str], bool] | None = None
    """Whether the language's own compiler accepts a source; None if there is none at hand."""
    rules: tuple[str, ...] = ()
    """Query files like `queries`, for code that the grammar accepts and no compiler does. `@misplaced` is always wrong.
    `@in.async`, `@in.loop` and so on are wrong unless a node with `@async`, `@loop` is around them, within the same
    `@function`. A name with `@once` is wrong if it is bound a second time in its `@region` or `@function`.
    """
    line_end: bytes | None = None
    """Matches a line break that ends a statement, with the text around it; None if line breaks are white space."""
    joining_brackets: tuple[bytes, ...] = ()
    """Opening brackets within which no line break ends a statement."""
    may_loop: bool = False
    """True if the grammar loops forever on some sources, so that parsing needs a limit."""

    @cached_property
    def _grammar(self) -> tree_sitter.Language:
        module, _, function = self.grammar.partition(":")
        return tree_sitter.Language(getattr(import_module(module), function)())

    @cached_property
    def query(self) -> tree_sitter.Query:
        return self._load_query(self.queries)

    @cached_property
    def misplaced(self) -> tree_sitter.Query:
        """The query of `rules`."""
        return self._load_query(self.rules)

    @cached_property
    def inert(self) -> tree_sitter.Query:
        """Captures every `@comment`, and as `@inert` the insides of strings, types and the like."""
        grammar = self._grammar
        patterns: list[str] = []
        for kind in range(grammar.node_kind_count):
            if not grammar.node_kind_is_named(kind) or not grammar.node_kind_is_visible(kind):
                continue
            name = grammar.node_kind_for_id(kind) or ""
            if _COMMENT_TYPE.search(name):
                patterns.append(f"({name}) @comment")
            if _INERT_TYPE.search(name):
                patterns.append(f"({name}) @inert")
        return self.compile("\n".join(dict.fromkeys(patterns)))

    def _load_query(self, names: tuple[str, ...]) -> tree_sitter.Query:
        from importlib.resources import files  # slow to import, and the pre-commit hook often parses nothing

        folder = files(__package__)
        return tree_sitter.Query(self._grammar, "\n".join(folder.joinpath(name).read_text("utf-8") for name in names))

    def compile(self, query: str) -> tree_sitter.Query:
        """Compiles a query. Raises tree_sitter.QueryError if the grammar rejects it."""
        return tree_sitter.Query(self._grammar, query)

    def parse(self, source: bytes, old: tree_sitter.Tree | None = None) -> tree_sitter.Tree:
        """Parses UTF-8 `source`; text that cannot be parsed becomes ERROR and MISSING nodes. `old` is the tree of the
        text before with the edit told to it: only what the edit affects is parsed again, and by no `readings`. The tree
        of a source on which the grammar loops is that of blanks behind an unclosed bracket.
        """
        parser = tree_sitter.Parser(self._grammar)
        if self.read_within is not None:  # blanking may change text far from an edit, so `old` is of no use
            return self._parse_readings(parser, self.read_within(source))
        if old is not None:
            return self._parse_within_limit(parser, source, old)
        return self._parse_readings(parser, source)

    def _parse_readings(self, parser: tree_sitter.Parser, source: bytes) -> tree_sitter.Tree:
        """The tree of `source`, or of the one of its `readings` that has far fewer errors."""
        tree = self._parse_within_limit(parser, source)
        weight = weigh_errors(tree)
        reading = source
        for rewrite in self.readings:
            if weight * MIN_BYTES_PER_ERROR <= len(source):
                break
            reading = rewrite(reading)
            reading_tree = self._parse_within_limit(parser, reading)
            reading_weight = weigh_errors(reading_tree)
            if reading_weight * MIN_IMPROVEMENT < weight:
                tree, weight = reading_tree, reading_weight
        return tree

    def _parse_within_limit(
        self, parser: tree_sitter.Parser, source: bytes, old: tree_sitter.Tree | None = None
    ) -> tree_sitter.Tree:
        """What `parser` makes of a source, or if the grammar loops on it, of blanks behind an unclosed bracket."""
        known = old
        if self.may_loop:
            known = _parse_in_time(parser, source, old)
            if known is None:
                return parser.parse(b"(" + re.sub(rb"[^\r\n]", b" ", source[1:]))
            if known.root_node.has_error:  # error recovery differs between an incremental and a full parse
                known = old
        return parser.parse(source) if known is None else parser.parse(source, known)

    def accepts(self, source: bytes) -> bool:
        """True if the language's own compiler takes UTF-8 `source`, or there is none at hand."""
        return self.compiles is None or self.compiles(source.decode("utf-8", "replace"))

    def parse_once(self, source: bytes) -> tree_sitter.Tree:
        """The tree of a whole document, which is kept for the next call: do not edit it."""
        return _parse_once(self, source)

    def list_texts(self, source: bytes) -> list[tuple[int, int]]:
        """The spans of strings and comments that go over several lines, in no particular order."""
        spans: list[tuple[int, int]] = []
        pending = [self.parse_once(source).root_node]
        while pending:
            node = pending.pop()
            if node.type in _TEXT_TYPES:
                spans.append(node.byte_range)
            else:
                pending.extend(child for child in node.children if child.start_point.row < child.end_point.row)
        return spans

    def is_interface(self, name: str) -> bool:
        return name.endswith(self.interfaces)


def _parse_in_time(parser: tree_sitter.Parser, source: bytes, old: tree_sitter.Tree | None) -> tree_sitter.Tree | None:
    """The tree of a source, whose nodes have no text; None if parsing reaches the limit."""
    view = memoryview(source)
    end_s = time.thread_time() + PARSING_S + PARSING_S_PER_BYTE * len(source)

    def read(offset: int, _: tree_sitter.Point) -> memoryview:
        return view[offset : offset + _READ_BYTES]

    def is_over(_offset: int, _has_error: bool) -> bool:
        return time.thread_time() > end_s

    try:
        if old is None:
            return parser.parse(read, progress_callback=is_over)
        return parser.parse(read, old, progress_callback=is_over)
    except ValueError:  # stopped by `is_over`
        return None
    finally:
        parser.reset()


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
