"""Lists what binds names in a document, and in which part of it each binding is known. Resolves no name."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Final

import tree_sitter

from midfill_infill.refactor.planning.binders import BINDERS, Binders, list_names
from midfill_infill.refactor.planning.imported import destructure, find_required, plain, read_import
from midfill_infill.refactor.planning.queries import find_matches
from midfill_infill.syntax.captures import text_of
from midfill_infill.text.document import Document

Span = tuple[int, int]
SCRIPTS: Final = ("javascript", "typescript", "tsx")
_COMPREHENSION: Final = "_comprehension"
_PROTOTYPES: Final = (  # nodes that declare a function without a body, so that nothing sees the parameters
    "declaration", "field_declaration", "type_definition", "parameter_declaration", "function_type", "method_signature",
    "function_signature", "call_signature", "construct_signature", "abstract_method_signature", "method_elem",
    "function_signature_item", "constructor_type",
)  # fmt: skip
_TYPE_ITEMS: Final = ("impl_item", "trait_item")
_BIND_AT_THEIR_END: Final = (  # nodes whose names are bound at the end of the node, not at the end of the name
    "assignment", "augmented_assignment", "named_expression", "function_definition", "class_definition"
)  # fmt: skip
_MAX_REASSIGNMENTS: Final = 16  # that are kept of one name in one scope


@dataclass(frozen=True)
class Binding:
    """A name that is known from byte `start` to byte `end`, and bound once the code before byte `effect` has run.
    `path` is the dotted path that it stands for; None if it is not imported. `written` is the name, but `a.b` for the
    `a` that `import a.b` binds. `space` is the only space of names (see `binders`) that the name is in, "" for all.
    """

    name: str
    path: str | None
    start: int
    end: int
    effect: int
    node: tree_sitter.Node = field(compare=False)
    written: str = ""
    space: str = ""


class Bindings:
    """The bindings of a document, and where its scopes are. All positions are bytes of the document's source."""

    def __init__(self, document: Document) -> None:
        self.language = document.language or ""
        self.size = len(document.source) + 1
        self._document = document
        self._rules = BINDERS.get(self.language, Binders())

    @cached_property
    def named(self) -> dict[str, list[Binding]]:
        """The bindings by name. "*" stands for all names of a module, "." for all names of the C++ namespace around."""
        bindings = [*self._read_imports(), *self._read_namespaces()]
        imported = {(binding.name, binding.node.start_byte) for binding in bindings}
        for binding in self._read_others():
            if (binding.name, binding.node.start_byte) not in imported:
                bindings.append(binding)
        named = defaultdict[str, list[Binding]](list)
        for binding in bindings:
            named[binding.name].append(binding)
        for binding in self._read_reassignments(named):
            named[binding.name].append(binding)
        return named

    @cached_property
    def bodies(self) -> list[Span]:
        """The bodies of functions, which run later than the code around them; not those of classes."""
        return self._list_extents(self._rules.functions - self._rules.classes)

    @cached_property
    def classes(self) -> set[Span]:
        """The bodies of classes whose names the functions in them do not see."""
        return set(self._list_extents(self._rules.classes))

    @cached_property
    def walls(self) -> list[Span]:
        """The bodies of scopes that see no name from outside."""
        return self._list_extents(self._rules.walls)

    def _list_extents(self, kinds: frozenset[str]) -> list[Span]:
        """The extents of all scopes whose node types are in `kinds`."""
        extents: list[Span] = []
        for node in self._list_nodes(kinds):
            extents += self._extents(node)
        return extents

    def _list_nodes(self, kinds: frozenset[str]) -> Iterator[tree_sitter.Node]:
        """The nodes of the document whose types are in `kinds`."""
        if not kinds:
            return
        query = " ".join(f"({kind}) @node" for kind in sorted(kinds))
        for match in find_matches(self._document, query):
            yield match["node"][0]

    def _read_imports(self) -> Iterator[Binding]:
        """The bindings of import statements, and of JavaScript's imports by a call."""
        if not self._rules.imports:
            return
        for match in find_matches(self._document, self._rules.imports):
            if "pattern" in match:
                yield from self._read_pattern(match["pattern"][0], match["value"][0])
                continue
            node = match["import"][0]
            kind = {"python": "function", "cpp": "here"}.get(self.language, "block")
            for name, path in read_import(node, self.language):
                bound_name = name
                if self.language == "python" and name == path and "." in name:
                    bound_name, _, _ = name.partition(".")  # `import a.b` binds `a`
                    path = bound_name
                yield from self._bind(kind, node, path, node, name=bound_name, written=name)

    def _read_pattern(self, pattern: tree_sitter.Node, value: tree_sitter.Node) -> Iterator[Binding]:
        """The bindings of the names that a pattern takes out of a module that JavaScript imports by a call."""
        path = find_required(value)
        if path:
            for node, member_path in destructure(pattern, path):
                yield from self._bind(_kind_of(pattern), node, member_path, node)

    def _read_namespaces(self) -> Iterator[Binding]:
        """The bindings of C++ namespaces: "." in each body, and every function that one of the bodies of a namespace
        declares in all of them.
        """
        bodies = defaultdict[str, list[tree_sitter.Node]](list)
        for node in self._list_nodes(self._rules.namespaces):
            namespaces = [outer for outer in (node, *list_above(node)) if outer.type == node.type]
            names = [outer.child_by_field_name("name") for outer in reversed(namespaces)]
            path = plain(".".join(text_of(name) for name in names if name is not None))
            body = node.child_by_field_name("body")
            if body is not None and path:
                bodies[path].append(body)
                yield Binding(".", path, body.start_byte, body.end_byte, body.start_byte, node)
        for path, bodies_of_path in bodies.items():
            for name_node in _list_declared(bodies_of_path):
                name = text_of(name_node)
                for body in bodies_of_path:
                    yield Binding(name, f"{path}.{name}", body.start_byte, body.end_byte, 0, name_node)

    def _read_others(self) -> Iterator[Binding]:
        """The bindings that are not imports: definitions, parameters, declarations and assignments."""
        for kind, space, node in self._captures:
            if kind == "loose" or (space == "value" and _is_rust_method_name(node)):
                continue
            for name_node in list_names(node):
                yield from self._bind(kind, node, None, name_node, space=space)

    @cached_property
    def _captures(self) -> list[tuple[str, str, tree_sitter.Node]]:
        """The captures of `Binders.binds`: the two parts of the capture's name around the dot, and the node."""
        captures: list[tuple[str, str, tree_sitter.Node]] = []
        if not self._rules.binds:
            return captures
        for match in find_matches(self._document, self._rules.binds):
            for capture, nodes in match.items():
                kind, _, space = capture.partition(".")
                captures += [(kind, space, node) for node in nodes]
        return captures

    @cached_property
    def _declared(self) -> set[tuple[str, str, Span]]:
        """What Python functions declare with `global` or `nonlocal`: this word, a name, and the function's body."""
        declared: set[tuple[str, str, Span]] = set()
        for kind, word, node in self._captures:
            if kind == "loose" and word != "again":
                for span in self._spans(self._rules.functions, node):
                    declared.add((word, text_of(node), span))
        return declared

    def _read_reassignments(self, named: dict[str, list[Binding]]) -> Iterator[Binding]:
        """The bindings of JavaScript's assignments to names that are declared elsewhere, in the scopes of these names.
        Leaves out an assignment if no import binds the name and none is assigned, because it changes no meaning.
        """
        imported = {name for name, bound in named.items() if any(binding.path is not None for binding in bound)}
        counts: Counter[tuple[str, int, int]] = Counter()
        for kind, word, target in self._captures:
            if (kind, word) != ("loose", "again"):
                continue
            assignment = target.parent
            assert assignment is not None
            path = find_required(assignment.child_by_field_name("right"))
            paths: dict[int, str] = {}  # by the byte where a name begins
            if path:
                paths = {node.start_byte: member_path for node, member_path in destructure(target, path)}
            for node in list_names(target):
                name = text_of(node)
                start = node.start_byte
                if name not in imported and start not in paths:
                    continue
                around = [binding for binding in named.get(name, ()) if binding.start <= start < binding.end]
                if not around:
                    continue
                innermost = min(around, key=lambda binding: binding.end - binding.start)
                key = (name, innermost.start, innermost.end)
                if start in paths or counts[key] < _MAX_REASSIGNMENTS:
                    counts[key] += 1
                    span = (innermost.start, innermost.end)
                    yield Binding(name, paths.get(start), *span, assignment.end_byte, node, name)

    def _bind(
        self,
        kind: str,
        node: tree_sitter.Node,
        path: str | None,
        name_node: tree_sitter.Node,
        *,
        name: str = "",
        written: str = "",
        space: str = "",
    ) -> Iterator[Binding]:
        """The bindings of one name, one for each span of its scope; `kind` says which scope, see `binders`."""
        bound_name = name or text_of(name_node)
        above = node.parent
        assert above is not None
        if kind == "here" and above.parent is not None and above.parent.type == "field_declaration_list":
            kind = "block"  # all of a C++ class knows its members
        if kind == "own":
            spans = self._own_spans(node)
        elif kind == "function":
            spans = self._spans(self._rules.functions, node, bound_name)
        else:
            spans = self._spans(self._rules.functions | self._rules.blocks, node, bound_name)
        first = {"after": above.end_byte, "here": node.end_byte}.get(kind, 0)
        is_hoisted = kind == "own" or node.type in self._rules.hoists or above.type == "function_declaration"
        bound_at = above.end_byte if above.type in _BIND_AT_THEIR_END else node.end_byte
        for start, end in spans:
            effect = start if is_hoisted else max(start, bound_at)
            yield Binding(bound_name, path, max(start, first), end, effect, name_node, written or bound_name, space)

    def _own_spans(self, node: tree_sitter.Node) -> list[Span]:
        """The extents of the scope that a node is a part of; none for parameters of functions without a body."""
        scopes = self._rules.functions | self._rules.blocks | self._rules.owners
        for depth, above in enumerate(list_above(node)):
            if above.type in scopes:
                return self._extents(above)
            if above.type in _PROTOTYPES and (depth or above.type != "parameter_declaration"):
                break  # a parameter's own declaration is no prototype, one further out is that of a function pointer
        return []

    def _spans(self, scopes: frozenset[str], node: tree_sitter.Node, name: str = "") -> list[Span]:
        """The extents of the scope that `name` is bound in at a node: the nearest one around it of the types `scopes`.
        `global NAME` in a scope means the whole file instead, `nonlocal NAME` the next scope around it.
        """
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
        """The spans in which the names that a scope binds are known."""
        if scope.type.endswith(_COMPREHENSION) or scope.type == "generator_expression":
            return _comprehension_extents(scope)
        body = scope.child_by_field_name("body")
        is_function = scope.type in self._rules.functions
        if is_function and (self.language in (*SCRIPTS, "go") or body is None):
            return [(_parameters_start(scope), scope.end_byte)]
        if is_function or scope.type in ("mod_item", "for_expression", *_TYPE_ITEMS):
            return [body.byte_range] if body is not None else []
        if scope.type == "if_expression":
            consequence = scope.child_by_field_name("consequence")
            if consequence is not None:
                return [(scope.start_byte, consequence.end_byte)]
        return [scope.byte_range]


def _list_declared(bodies: Sequence[tree_sitter.Node]) -> Iterator[tree_sitter.Node]:
    """The names that the statements directly in one of `bodies` declare."""
    for body in bodies:
        for child in body.named_children:
            declarator = child.child_by_field_name("declarator")
            if declarator is not None:
                yield from list_names(declarator)


def _comprehension_extents(comprehension: tree_sitter.Node) -> list[Span]:
    """A comprehension without the iterable of its first `for`, which is evaluated in the scope around it."""
    for child in comprehension.children:
        if child.type == "for_in_clause":
            first = child.child_by_field_name("right")
            if first is not None:
                return _without(comprehension.byte_range, [first.byte_range])
            break
    return [comprehension.byte_range]


def _parameters_start(function: tree_sitter.Node) -> int:
    """The byte from which on the names are known that a function binds: where its parameters begin."""
    for field_name in ("receiver", "parameters", "parameter", "body"):
        part = function.child_by_field_name(field_name)
        if part is not None:
            return part.start_byte
    return function.start_byte


def _is_open(node: tree_sitter.Node) -> bool:
    """True for the braces of `extern "C"` and of a C++ namespace without a name: the scope around knows the names."""
    above = node.parent if node.type == "declaration_list" else None
    return above is not None and above.child_by_field_name("name") is None


def list_above(node: tree_sitter.Node) -> Iterator[tree_sitter.Node]:
    """The nodes around a node, the innermost first."""
    above = node.parent
    while above is not None:
        yield above
        above = above.parent


def _kind_of(pattern: tree_sitter.Node) -> str:
    """The kind of binding (see `binders`) of JavaScript's declaration around a pattern; `own` for a parameter."""
    kinds = {"lexical_declaration": "block", "variable_declaration": "function"}
    for above in islice(list_above(pattern), 2):
        if above.type in kinds:
            return kinds[above.type]
    return "own"


def _is_rust_method_name(node: tree_sitter.Node) -> bool:
    """True for the name of a function in an `impl` or a `trait`, which is known only through its type."""
    above = list(islice(list_above(node), 3))
    if not above or above[0].type != "function_item":
        return False
    return above[0].child_by_field_name("name") == node and above[-1].type in _TYPE_ITEMS


def _without(span: Span, left_out: list[Span]) -> list[Span]:
    """The parts of a span that are outside of the spans `left_out`."""
    parts: list[Span] = []
    start, end = span
    for first, last in (*sorted(left_out), (end, end)):
        if start < first:
            parts.append((start, first))
        start = last
    return parts
