"""Reads functions, scopes and imports from a tree by the captures of its language's query. Knows no document."""

import re
from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, replace

import tree_sitter

from midfill_infill.languages import Language

Span = tuple[int, int]


@dataclass(frozen=True)
class Function:
    """One function that has a body. Offsets count bytes of the document's source."""

    path: tuple[str, ...]  # names of the classes, modules and functions around it, and its own name; () without a name
    start: int  # of its decorators, `export` or `template`
    head: int  # where its definition starts, behind these
    end: int
    body: Span  # empty if there is no code yet
    docstring: Span | None = None  # a fill of the body keeps it
    first_opener: int | None = None  # where the first statement starts that opens its line, for the body's indentation
    statements: int = 0  # the number of statements; docstring and comments do not count
    is_placeholder: bool = False  # its only statement is one; `stubs.is_stub` says whether the function is a stub
    is_expression: bool = False  # its body is no block but an expression, as in a lambda
    is_deliberate: bool = False  # short on purpose, as an abstract method is: never a stub
    is_trivial: bool = False  # may be empty without being a stub, as a constructor or a nameless function
    is_broken: bool = False  # contains a syntax error, so its start and end may be wrong

    @property
    def name(self) -> str | None:
        """The whole `path`, joined by dots; None for a function without a name."""
        return ".".join(self.path) or None


@dataclass(frozen=True)
class Outline:
    """The functions, scopes and imports of a source, in text order. Scopes are spans and names of classes, modules and
    the like.
    """

    has_error: bool
    functions: tuple[Function, ...]
    scopes: tuple[tuple[Span, str], ...]
    imports: tuple[Span, ...]


def read_outline(language: Language, source: bytes, tree: tree_sitter.Tree | None = None) -> Outline:
    """The outline of UTF-8 `source`, as far as its tree shows it; parses `source` unless `tree` is given."""
    root = (tree or language.parse(source)).root_node
    captured = _Captures(source)
    for _, match in tree_sitter.QueryCursor(language.query).matches(root):
        captured.add(match)
    functions = [captured.describe(node, body) for node, body in captured.functions.values()]
    return Outline(
        has_error=root.has_error,
        functions=tuple(_qualify(functions, captured.scopes)),
        scopes=tuple(sorted(captured.scopes)),
        imports=tuple(sorted(captured.spans["import"])),
    )


class _Captures:
    """The matches of a language's query, grouped by capture."""

    def __init__(self, source: bytes) -> None:
        self._source = source
        self.functions: dict[Span, tuple[tree_sitter.Node, tree_sitter.Node]] = {}  # function and body, by body span
        self.paths: dict[Span, tuple[str, ...]] = {}  # of named functions, by body span
        self.scopes: list[tuple[Span, str]] = []
        self.spans: dict[str, set[Span]] = defaultdict(set)  # of other captures, by capture name

    def add(self, match: dict[str, list[tree_sitter.Node]]) -> None:
        """Takes in the captures of one match."""
        if "function" in match:
            function = match["function"][0]
            body = match["body"][0]
            span = body.byte_range
            self.functions.setdefault(span, (function, body))
            if "name" in match:
                owners = map(_type_name, match.get("owner", []))
                name = text_of(match["name"][0])
                self.paths[span] = (*owners, *_split_path(name))
        elif "scope" in match:
            scope = match["scope"][0]
            name = _type_name(match["scope.name"][0])
            self.scopes.append((scope.byte_range, name))
        else:
            for capture, nodes in match.items():
                self.spans[capture].update(node.byte_range for node in nodes)

    def _opens_line(self, node: tree_sitter.Node) -> bool:
        """True if nothing but white space stands before a node in its line."""
        line_start = node.start_byte - node.start_point.column
        return not self._source[line_start : node.start_byte].strip()

    def describe(self, node: tree_sitter.Node, body: tree_sitter.Node) -> Function:
        """The function of a definition and its body; its path has no names of scopes yet."""
        span = body.byte_range
        is_expression = span not in self.spans["block"]
        statements = [statement.byte_range for statement in list_statements(body)]
        docstring = None
        if statements and statements[0] in self.spans["keep"]:
            docstring = statements.pop(0)
        whole = node
        if node.parent is not None and node.parent.byte_range in self.spans["whole"]:
            whole = node.parent
        openers = (statement.start_byte for statement in _list_own_statements(body) if self._opens_line(statement))
        return Function(
            path=self.paths.get(span, ()),
            start=whole.start_byte,
            head=node.start_byte,
            end=node.end_byte,
            body=span,
            docstring=docstring,
            first_opener=next(openers, None),
            statements=1 if is_expression else len(statements),
            is_placeholder=not is_expression and len(statements) == 1 and statements[0] in self.spans["stub"],
            is_expression=is_expression,
            is_deliberate=span in self.spans["deliberate"],
            is_trivial=span in self.spans["trivial"] or span not in self.paths,
            is_broken=node.has_error,
        )


def _list_own_statements(body: tree_sitter.Node) -> Iterator[tree_sitter.Node]:
    """The statements of a body. A label or a directive may stand at the margin, so the statements in it on later lines
    take its place.
    """
    for statement in list_statements(body):
        if not statement.type.startswith(("preproc", "label")):
            yield statement
            continue
        for inner in _list_own_statements(statement):
            if inner.start_point.row > statement.start_point.row:
                yield inner


def list_statements(body: tree_sitter.Node) -> Iterator[tree_sitter.Node]:
    """The statements of a block, without comments."""
    for child in body.named_children:
        if child.type == "statement_list":
            yield from list_statements(child)
        elif not child.is_extra and child.type != "empty_statement":
            yield child


def text_of(node: tree_sitter.Node) -> str:
    return (node.text or b"").decode("utf-8", "replace")


def _split_path(name: str) -> tuple[str, ...]:
    """The parts of a name such as `A::b`, `A.b` or `exports.b`, without the quotes and brackets of computed names."""
    if name.isidentifier():
        return (name,)
    parts = re.split(r"::|\.", "".join(name.split()))
    return tuple(part.strip(" \"'`[]#*&") for part in parts if part)


def _type_name(node: tree_sitter.Node) -> str:
    """The bare name of a type: `*List[T]`, `List<T>` and `(l *List)` are all `List`."""
    bare = re.sub(r"[<\[].*", "", text_of(node), flags=re.DOTALL)
    names = re.findall(r"[\w$:.]+", bare)
    if not names:
        return ""
    return str(names[-1]).replace("::", ".")


def _qualify(functions: list[Function], scopes: list[tuple[Span, str]]) -> list[Function]:
    """Prefixes each function's path with the names of the classes, modules and functions around it."""
    all_scopes = list(scopes)
    for function in functions:
        if function.path:
            all_scopes.append(((function.head, function.end), function.path[-1]))
    pending = deque(sorted(all_scopes))
    open_scopes: list[tuple[Span, str]] = []
    qualified: list[Function] = []
    for function in sorted(functions, key=lambda function: (function.head, -function.end)):
        while pending and pending[0][0][0] <= function.head:
            open_scopes.append(pending.popleft())
        open_scopes = [(span, name) for span, name in open_scopes if span[1] > function.head]
        outer = [name for (start, end), name in open_scopes if start < function.head and function.end <= end]
        if outer and function.path:
            function = replace(function, path=(*outer, *function.path))
        qualified.append(function)
    return qualified
