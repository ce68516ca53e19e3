"""Reads what binds the names of a document, and where each name has that meaning. Resolves no name."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Final

import tree_sitter

from midfill_infill.refactor.planning.binders import BINDERS, Binders, list_names
from midfill_infill.refactor.planning.imported import READERS, destructure, find_required, plain
from midfill_infill.refactor.planning.queries import find_matches
from midfill_infill.syntax.captures import text_of
from midfill_infill.text.document import Document

Span = tuple[int, int]
SCRIPTS: Final = ("javascript", "typescript", "tsx")
_COMPREHENSION: Final = "_comprehension"
_PROTOTYPES: Final = (  # whose parameters no body sees
    "declaration", "field_declaration", "type_definition", "parameter_declaration", "function_type", "method_signature",
    "function_signature", "call_signature", "construct_signature", "abstract_method_signature", "method_elem",
    "function_signature_item", "constructor_type",
)  # fmt: skip
_MEMBERS: Final = ("impl_item", "trait_item")
_LATE: Final = (  # hold from the end of the statement on
    "assignment", "augmented_assignment", "named_expression", "function_definition", "class_definition"
)  # fmt: skip
_MAX_AGAIN: Final = 16  # assignments to one name that are kept


@dataclass(frozen=True)
class Binding:
    """What a name stands for from byte `start` to `end`: a dotted path, or None for no import. `written` is the name,
    or the longer one that an `import a.b` makes known. From `effect` on it holds. `space` is "" for all spaces.
    """

    name: str
    path: str | None
    start: int
    end: int
    effect: int
    node: tree_sitter.Node = field(compare=False)
    written: str = ""
    space: str = ""

    @property
    def size(self) -> int:
        return self.end - self.start


class Bindings:
    """The bindings of a document."""

    def __init__(self, document: Document) -> None:
        self.language = document.language or ""
        self.size = len(document.source) + 1
        self._document = document
        self._rules = BINDERS.get(self.language, Binders())

    @cached_property
    def named(self) -> dict[str, list[Binding]]:
        """By name; "*" is a module's every name, "." every name of the namespace around."""
        bindings = [*self._read_imports(), *self._read_namespaces()]
        known = {(binding.name, binding.node.start_byte) for binding in bindings}
        for binding in self._read_others():
            if (binding.name, binding.node.start_byte) not in known:
                bindings.append(binding)
        named = defaultdict[str, list[Binding]](list)
        for binding in bindings:
            named[binding.name].append(binding)
        for binding in self._read_again(named):
            named[binding.name].append(binding)
        return named

    @cached_property
    def bodies(self) -> list[Span]:
        """Where functions run."""
        return self._list_extents(self._rules.functions - self._rules.classes)

    @cached_property
    def classes(self) -> set[Span]:
        """The bodies whose names no function in them sees."""
        return set(self._list_extents(self._rules.classes))

    @cached_property
    def walls(self) -> list[Span]:
        """Where no name from outside is seen."""
        return self._list_extents(self._rules.walls)

    def _list_extents(self, kinds: frozenset[str]) -> list[Span]:
        """Where the names of some kinds of scopes are known."""
        extents: list[Span] = []
        for node in self._list(kinds):
            extents += self._extents(node)
        return extents

    def _list(self, kinds: frozenset[str]) -> Iterator[tree_sitter.Node]:
        """The nodes of some kinds."""
        if not kinds:
            return
        query = " ".join(f"({kind}) @node" for kind in sorted(kinds))
        for match in find_matches(self._document, query):
            yield match["node"][0]

    def _read_imports(self) -> Iterator[Binding]:
        """What import statements and imports by calls bind."""
        if not self._rules.imports:
            return
        for match in find_matches(self._document, self._rules.imports):
            if "pattern" in match:
                yield from self._read_pattern(match["pattern"][0], match["value"][0])
                continue
            node = match["import"][0]
            kind = {"python": "function", "cpp": "here"}.get(self.language, "block")
            for name, path in READERS[self.language](text_of(node)):
                top = name
                if self.language == "python" and name == path and "." in name:
                    top, _, _ = name.partition(".")
                    path = top
                yield from self._bind(kind, node, path, node, top, name)

    def _read_pattern(self, pattern: tree_sitter.Node, value: tree_sitter.Node) -> Iterator[Binding]:
        """The names that a pattern takes out of a module that JavaScript imports by a call."""
        path = find_required(value)
        if path:
            for node, full in destructure(pattern, path):
                yield from self._bind(_kind_of(pattern), node, full, node)

    def _read_namespaces(self) -> Iterator[Binding]:
        """In a C++ namespace its names are known, and the functions that it defines by their paths."""
        bodies = defaultdict[str, list[tree_sitter.Node]](list)
        for node in self._list(self._rules.namespaces):
            names = [_name_of(outer) for outer in (node, *list_above(node)) if outer.type == node.type]
            path = plain(".".join(filter(None, reversed(names))))
            body = node.child_by_field_name("body")
            if body is not None and path:
                bodies[path].append(body)
                yield Binding(".", path, body.start_byte, body.end_byte, body.start_byte, node)
        for path, parts in bodies.items():
            for name in _list_declared(parts):
                called = text_of(name)
                for body in parts:
                    yield Binding(called, f"{path}.{called}", body.start_byte, body.end_byte, 0, name)

    def _read_others(self) -> Iterator[Binding]:
        """What binds names to something else than imports."""
        for kind, space, node in self._marks:
            if kind == "loose" or (space == "value" and _is_member(node)):
                continue
            for name in list_names(node):
                yield from self._bind(kind, node, None, name, space=space)

    @cached_property
    def _marks(self) -> list[tuple[str, str, tree_sitter.Node]]:
        """The captures of what binds, each with its kind and its space."""
        marks: list[tuple[str, str, tree_sitter.Node]] = []
        if not self._rules.binds:
            return marks
        for match in find_matches(self._document, self._rules.binds):
            for mark, nodes in match.items():
                kind, _, space = mark.partition(".")
                marks += [(kind, space, node) for node in nodes]
        return marks

    @cached_property
    def _declared(self) -> set[tuple[str, str, Span]]:
        """The names that Python functions declare to be `global` or `nonlocal`, with the functions' bodies."""
        declared: set[tuple[str, str, Span]] = set()
        for kind, space, node in self._marks:
            if kind == "loose" and space != "again":
                for span in self._spans(self._rules.functions, node):
                    declared.add((space, text_of(node), span))
        return declared

    def _read_again(self, named: dict[str, list[Binding]]) -> Iterator[Binding]:
        """Assignments of JavaScript, in the scopes of the names that they assign to."""
        followed = {name for name, bound in named.items() if any(binding.path is not None for binding in bound)}
        counts: Counter[tuple[str, int, int]] = Counter()
        for kind, space, target in self._marks:
            if (kind, space) != ("loose", "again"):
                continue
            assignment = target.parent
            assert assignment is not None
            path = find_required(assignment.child_by_field_name("right"))
            paths: dict[int, str] = {}
            if path:
                paths = {node.start_byte: full for node, full in destructure(target, path)}
            for node in list_names(target):
                name = text_of(node)
                at = node.start_byte
                if name not in followed and at not in paths:
                    continue
                around = [binding for binding in named.get(name, ()) if binding.start <= at < binding.end]
                if not around:
                    continue
                scope = min(around, key=lambda binding: binding.size)
                key = (name, scope.start, scope.end)
                if at in paths or counts[key] < _MAX_AGAIN:
                    counts[key] += 1
                    yield Binding(name, paths.get(at), scope.start, scope.end, assignment.end_byte, node, name)

    def _bind(
        self,
        kind: str,
        node: tree_sitter.Node,
        path: str | None,
        name: tree_sitter.Node,
        called: str = "",
        written: str = "",
        space: str = "",
    ) -> Iterator[Binding]:
        """The bindings of a name, one for each part of its scope."""
        called = called or text_of(name)
        above = node.parent
        assert above is not None
        if kind == "here" and above.parent is not None and above.parent.type == "field_declaration_list":
            kind = "block"
        if kind == "own":
            spans = self._own(node)
        elif kind == "function":
            spans = self._spans(self._rules.functions, node, called)
        else:
            spans = self._spans(self._rules.functions | self._rules.blocks, node, called)
        first = {"after": above.end_byte, "here": node.end_byte}.get(kind, 0)
        is_hoisted = kind == "own" or node.type in self._rules.hoists or above.type == "function_declaration"
        effect = above.end_byte if above.type in _LATE else node.end_byte
        for start, end in spans:
            since = start if is_hoisted else max(start, effect)
            yield Binding(called, path, max(start, first), end, since, name, written or called, space)

    def _own(self, node: tree_sitter.Node) -> list[Span]:
        """Where a name is known in the nearest scope around it."""
        scopes = self._rules.functions | self._rules.blocks | self._rules.owners
        for depth, above in enumerate(list_above(node)):
            if above.type in scopes:
                return self._extents(above)
            if above.type in _PROTOTYPES and (depth or above.type != "parameter_declaration"):
                break
        return []

    def _spans(self, scopes: frozenset[str], node: tree_sitter.Node, name: str = "") -> list[Span]:
        """The extents of the nearest scope around a node in which it does not declare a name to be of another one."""
        for above in list_above(node):
            if above.type not in scopes or _is_open(above):
                continue
            extents = self._extents(above)
            if not any(start <= node.start_byte < end for start, end in extents):
                continue
            if name and ("global", name, extents[0]) in self._declared:
                break
            if not name or ("nonlocal", name, extents[0]) not in self._declared:
                return extents
        return [(0, self.size)]

    def _extents(self, scope: tree_sitter.Node) -> list[Span]:
        """Where the names of a scope are known; those of a class not in its functions."""
        if scope.type.endswith(_COMPREHENSION) or scope.type == "generator_expression":
            return _comprehension_extents(scope)
        body = scope.child_by_field_name("body")
        is_function = scope.type in self._rules.functions
        if is_function and (self.language in (*SCRIPTS, "go") or body is None):
            return [(_parameters_start(scope), scope.end_byte)]
        if is_function or scope.type in ("mod_item", "for_expression", *_MEMBERS):
            return [body.byte_range] if body is not None else []
        if scope.type == "if_expression":
            consequence = scope.child_by_field_name("consequence")
            if consequence is not None:
                return [(scope.start_byte, consequence.end_byte)]
        return [scope.byte_range]


def _list_declared(bodies: Sequence[tree_sitter.Node]) -> Iterator[tree_sitter.Node]:
    """The names that the statements of some bodies declare."""
    for body in bodies:
        for child in body.named_children:
            declarator = child.child_by_field_name("declarator")
            if declarator is not None:
                yield from list_names(declarator)


def _comprehension_extents(comprehension: tree_sitter.Node) -> list[Span]:
    """All of a comprehension but what its first clause goes through, which is read outside."""
    for child in comprehension.children:
        if child.type == "for_in_clause":
            first = child.child_by_field_name("right")
            if first is not None:
                return _without(comprehension.byte_range, [first.byte_range])
            break
    return [comprehension.byte_range]


def _parameters_start(function: tree_sitter.Node) -> int:
    """Where the parameters of a function begin, and with them what only it knows."""
    for field_name in ("receiver", "parameters", "parameter", "body"):
        part = function.child_by_field_name(field_name)
        if part is not None:
            return part.start_byte
    return function.start_byte


def _is_open(node: tree_sitter.Node) -> bool:
    """True for declarations of C++ whose names are known outside of them."""
    above = node.parent if node.type == "declaration_list" else None
    return above is not None and above.child_by_field_name("name") is None


def list_above(node: tree_sitter.Node) -> Iterator[tree_sitter.Node]:
    """The nodes around a node, the innermost first."""
    above = node.parent
    while above is not None:
        yield above
        above = above.parent


def _name_of(node: tree_sitter.Node) -> str:
    """The name of a definition; empty without one."""
    name = node.child_by_field_name("name")
    if name is None:
        return ""
    return text_of(name)


def _kind_of(pattern: tree_sitter.Node) -> str:
    """How the declaration around a pattern binds; a pattern of a parameter belongs to its function."""
    kinds = {"lexical_declaration": "block", "variable_declaration": "function"}
    for above in islice(list_above(pattern), 2):
        if above.type in kinds:
            return kinds[above.type]
    return "own"


def _is_member(node: tree_sitter.Node) -> bool:
    """True for a function that only its type knows, as in Rust."""
    above = [outer.type for outer in islice(list_above(node), 3)]
    if not above:
        return False
    return above[0] == "function_item" and above[-1] in _MEMBERS


def _without(span: Span, holes: list[Span]) -> list[Span]:
    """A span in parts, around other spans."""
    parts: list[Span] = []
    start, end = span
    for first, last in (*sorted(holes), (end, end)):
        if start < first:
            parts.append((start, first))
        start = last
    return parts
