"""Reads what binds the names of a document, and where each name has that meaning. Resolves no name."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
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
        self.language, self.size = document.language or "", len(document.source) + 1
        self._document, self._rules = document, BINDERS.get(self.language, Binders())

    @cached_property
    def named(self) -> dict[str, list[Binding]]:
        """By name; "*" is a module's every name, "." every name of the namespace around."""
        found = [*self._read_imports(), *self._read_namespaces()]
        known = {(each.name, each.node.start_byte) for each in found}
        found += (each for each in self._read_others() if (each.name, each.node.start_byte) not in known)
        named = defaultdict[str, list[Binding]](list)
        for each in found:
            named[each.name].append(each)
        for each in self._read_again(named):
            named[each.name].append(each)
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
        return [span for node in self._list(kinds) for span in self._extents(node)]

    def _list(self, kinds: frozenset[str]) -> Iterator[tree_sitter.Node]:
        if kinds:
            query = " ".join(f"({kind}) @node" for kind in sorted(kinds))
            yield from (match["node"][0] for match in find_matches(self._document, query))

    def _read_imports(self) -> Iterator[Binding]:
        if not self._rules.imports:
            return
        for match in find_matches(self._document, self._rules.imports):
            if "pattern" in match:
                path = find_required(match["value"][0])
                for node, full in destructure(match["pattern"][0], path) if path else ():
                    yield from self._bind(_kind_of(match["pattern"][0]), node, full, node)
                continue
            node = match["import"][0]
            kind = {"python": "function", "cpp": "here"}.get(self.language, "block")
            for name, path in READERS[self.language](text_of(node)):
                is_long = self.language == "python" and name == path and "." in name
                top = name.partition(".")[0] if is_long else name
                yield from self._bind(kind, node, top if is_long else path, node, top, name)

    def _read_namespaces(self) -> Iterator[Binding]:
        """In a C++ namespace its names are known, and the functions that it defines by their paths."""
        bodies = defaultdict[str, list[tree_sitter.Node]](list)
        for node in self._list(self._rules.namespaces):
            names = [_name_of(each) for each in (node, *list_above(node)) if each.type == node.type]
            path, body = plain(".".join(reversed([name for name in names if name]))), node.child_by_field_name("body")
            if body is not None and path:
                bodies[path].append(body)
                yield Binding(".", path, body.start_byte, body.end_byte, body.start_byte, node)
        for path, parts in bodies.items():
            declarators = (child.child_by_field_name("declarator") for body in parts for child in body.named_children)
            for name in (name for each in declarators if each is not None for name in list_names(each)):
                called = text_of(name)
                yield from (Binding(called, f"{path}.{called}", *body.byte_range, 0, name) for body in parts)

    def _read_others(self) -> Iterator[Binding]:
        for kind, space, node in self._marks:
            if kind == "loose" or (space == "value" and _is_member(node)):
                continue
            for name in list_names(node):
                yield from self._bind(kind, node, None, name, space=space)

    @cached_property
    def _marks(self) -> list[tuple[str, str, tree_sitter.Node]]:
        """The captures of what binds, each with its kind and its space."""
        if not self._rules.binds:
            return []
        found = find_matches(self._document, self._rules.binds)
        marks = [(mark.partition("."), node) for match in found for mark, nodes in match.items() for node in nodes]
        return [(kind, space, node) for (kind, _, space), node in marks]

    @cached_property
    def _declared(self) -> set[tuple[str, str, Span]]:
        """The names that Python functions declare to be `global` or `nonlocal`, with the functions' bodies."""
        loose = [(space, node) for kind, space, node in self._marks if kind == "loose" and space != "again"]
        scopes = self._rules.functions
        return {(space, text_of(node), span) for space, node in loose for span in self._spans(scopes, node)}

    def _read_again(self, named: dict[str, list[Binding]]) -> Iterator[Binding]:
        """Assignments of JavaScript, in the scopes of the names that they assign to."""
        followed = {name for name, bound in named.items() if any(each.path is not None for each in bound)}
        seen = Counter[tuple[str, int, int]]()
        for target in (node for kind, space, node in self._marks if (kind, space) == ("loose", "again")):
            assignment = target.parent
            assert assignment is not None
            path = find_required(assignment.child_by_field_name("right"))
            paths = {node.start_byte: full for node, full in destructure(target, path)} if path else {}
            for node in list_names(target):
                at, name = node.start_byte, text_of(node)
                if name not in followed and at not in paths:
                    continue
                around = [each for each in named.get(name, ()) if each.start <= at < each.end]
                first = min(around, key=lambda each: each.size, default=None)
                if first is not None and (at in paths or seen[name, first.start, first.end] < _MAX_AGAIN):
                    seen[name, first.start, first.end] += 1
                    yield Binding(name, paths.get(at), first.start, first.end, assignment.end_byte, node, name)

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
        is_member = above.parent is not None and above.parent.type == "field_declaration_list"
        kind = "block" if kind == "here" and is_member else kind
        scopes = self._rules.functions | (self._rules.blocks if kind != "function" else frozenset())
        spans = self._own(node) if kind == "own" else self._spans(scopes, node, called)
        first = {"after": above.end_byte, "here": node.end_byte}.get(kind, 0)
        is_hoisted = kind == "own" or node.type in self._rules.hoists or above.type == "function_declaration"
        effect = above.end_byte if above.type in _LATE else node.end_byte
        for start, end in spans:
            since = start if is_hoisted else max(start, effect)
            yield Binding(called, path, max(start, first), end, since, name, written or called, space)

    def _own(self, node: tree_sitter.Node) -> list[Span]:
        scopes = self._rules.functions | self._rules.blocks | self._rules.owners
        for place, above in enumerate(list_above(node)):
            if above.type in scopes:
                return self._extents(above)
            if above.type in _PROTOTYPES and (place or above.type != "parameter_declaration"):
                break
        return []

    def _spans(self, scopes: frozenset[str], node: tree_sitter.Node, name: str = "") -> list[Span]:
        """The extents of the nearest scope around a node in which it does not declare a name to be of another one."""
        for above in list_above(node):
            extents = self._extents(above) if above.type in scopes and not _is_open(above) else []
            if not any(start <= node.start_byte < end for start, end in extents):
                continue
            if name and ("global", name, extents[0]) in self._declared:
                break
            if not name or ("nonlocal", name, extents[0]) not in self._declared:
                return extents
        return [(0, self.size)]

    def _extents(self, scope: tree_sitter.Node) -> list[Span]:
        """Where the names of a scope are known; those of a class not in its functions."""
        body = scope.child_by_field_name("body")
        if scope.type.endswith(_COMPREHENSION) or scope.type == "generator_expression":
            clause = next((each for each in scope.children if each.type == "for_in_clause"), None)
            first = clause.child_by_field_name("right") if clause is not None else None
            return [scope.byte_range] if first is None else _without(scope.byte_range, [first.byte_range])
        if scope.type in self._rules.functions and (self.language in (*SCRIPTS, "go") or body is None):
            parts = map(scope.child_by_field_name, ("receiver", "parameters", "parameter", "body"))
            return [(next((each.start_byte for each in parts if each is not None), scope.start_byte), scope.end_byte)]
        if scope.type in self._rules.functions or scope.type in ("mod_item", "for_expression", *_MEMBERS):
            return [body.byte_range] if body is not None else []
        if scope.type == "if_expression" and (then := scope.child_by_field_name("consequence")) is not None:
            return [(scope.start_byte, then.end_byte)]
        return [scope.byte_range]


def _is_open(node: tree_sitter.Node) -> bool:
    """True for declarations of C++ whose names are known outside of them."""
    above = node.parent if node.type == "declaration_list" else None
    return above is not None and above.child_by_field_name("name") is None


def list_above(node: tree_sitter.Node) -> Iterator[tree_sitter.Node]:
    above = node.parent
    while above is not None:
        yield above
        above = above.parent


def _name_of(node: tree_sitter.Node) -> str:
    name = node.child_by_field_name("name")
    return text_of(name) if name is not None else ""


def _kind_of(pattern: tree_sitter.Node) -> str:
    """How the declaration around a pattern binds; a pattern of a parameter belongs to its function."""
    kinds = {"lexical_declaration": "block", "variable_declaration": "function"}
    above = [each.type for each in list_above(pattern)][:2]
    return next((kinds[each] for each in above if each in kinds), "own")


def _is_member(node: tree_sitter.Node) -> bool:
    """True for a function that only its type knows, as in Rust."""
    above = [each.type for each in list_above(node)][:3]
    return above[0] == "function_item" and above[-1] in _MEMBERS if above else False


def _without(span: Span, holes: list[Span]) -> list[Span]:
    """A span in parts, around other spans."""
    parts, start = [], span[0]
    for first, last in sorted(holes):
        parts.append((start, first))
        start = last
    return [part for part in [*parts, (start, span[1])] if part[0] < part[1]]
