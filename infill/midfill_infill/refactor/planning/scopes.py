"""Resolves names where they are used: what binds them there, an import or something else. Knows no calls."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import takewhile
from typing import Final

import tree_sitter

from midfill_infill.refactor.planning.bindings import SCRIPTS, Binding, Bindings, Span, list_above
from midfill_infill.text.document import Document

_BRANCHES: Final = ("try_statement", "if_statement", "if_expression", "match_statement", "preproc_if", "preproc_ifdef")
_MAY_NOT_RUN: Final = (*_BRANCHES, "for_statement", "while_statement")  # but what is tried does
_STANDARD: Final = ("std", "core", "alloc", "java", "javax")  # whose wildcard imports hide no function of others


@dataclass(frozen=True)
class Meaning:
    """The paths that a name may stand for. `is_other`: it certainly is something else. `doubt` says why it may be.
    `is_local`: what binds it is inside of a function or the like.
    """

    paths: tuple[str, ...] = ()
    is_other: bool = False
    doubt: str = ""
    is_local: bool = False


class _Nested:
    """Spans of which any two are apart or one holds the other."""

    def __init__(self, spans: Iterable[Span]) -> None:
        self._spans = sorted(set(spans), key=lambda span: (span[0], -span[1]))
        self._starts = [start for start, _ in self._spans]
        self._outer: list[int] = []
        held = [-1]
        for index, (start, _) in enumerate(self._spans):
            while held[-1] >= 0 and self._spans[held[-1]][1] <= start:
                held.pop()
            self._outer.append(held[-1])
            held.append(index)

    def around(self, at: int) -> Iterator[Span]:
        """The spans that hold a byte, the innermost first."""
        index = bisect_right(self._starts, at) - 1
        while index >= 0:
            start, end = self._spans[index]
            if at < end:
                yield start, end
            index = self._outer[index]


class Scopes:
    """The names of a document."""

    def __init__(self, document: Document) -> None:
        self.language = document.language or ""
        self._document = document
        self._read = Bindings(document)
        self._whole = (0, self._read.size)
        self._groups: dict[str, tuple[_Nested, dict[Span, list[Binding]]]] = {}

    @property
    def bindings(self) -> dict[str, list[Binding]]:
        """By name; "*" is a module's every name, "." every name of the namespace around."""
        return self._read.named

    @cached_property
    def imports(self) -> list[Binding]:
        """The bindings that stand for paths, but for those of every name."""
        imports: list[Binding] = []
        for name, bound in self.bindings.items():
            if name not in ("*", "."):
                imports += [binding for binding in bound if binding.path is not None]
        return imports

    def resolve(self, name: str, at: int, space: str = "") -> Meaning:
        """What a dotted name stands for at a byte, its first part being in a space of names."""
        first, dot, rest = name.partition(".")
        wall = self._wall(at)
        if self.language == "rust" and first == "super" and rest:
            return self.resolve(rest, max(wall[0] - 1, 0), space)
        nested, groups = self._group(first)
        for span in nested.around(at):
            seen = [binding for binding in groups[span] if self._sees(binding, at, wall, space)]
            if seen:
                return self._choose(seen, at, dot + rest)
        paths: dict[str, None] = {}
        foreign: set[str | None] = set()
        for star in (*self.bindings.get("*", ()), *self.bindings.get(".", ())):
            if not self._sees(star, at, wall, ""):
                continue
            paths[self._above(f"{star.path}.{name}", star)] = None
            if star.name == "*" and str(star.path).split(".")[0] not in _STANDARD:
                foreign.add(star.path)
        doubt = ""
        if len(foreign) > 1:
            doubt = f"{len(foreign)} wildcard imports may bind {first}"
        return Meaning(tuple(filter(None, paths)), False, doubt)

    def _group(self, name: str) -> tuple[_Nested, dict[Span, list[Binding]]]:
        """The bindings of a name by where they are known, each in the order in which they take effect."""
        if name not in self._groups:
            groups: dict[Span, list[Binding]] = {}
            for binding in sorted(self.bindings.get(name, ()), key=lambda binding: binding.effect):
                groups.setdefault((binding.start, binding.end), []).append(binding)
            self._groups[name] = _Nested(groups), groups
        return self._groups[name]

    def _above(self, path: str, binding: Binding) -> str:
        """The path of a name that Rust takes from the module around, as it is known there."""
        if self.language != "rust" or not path.startswith("super."):
            return path
        outer = self.resolve(path.removeprefix("super."), max(self._wall(binding.start)[0] - 1, 0))
        return next(iter(outer.paths), path)

    @cached_property
    def _walls(self) -> _Nested:
        return _Nested(self._read.walls)

    @cached_property
    def _bodies(self) -> _Nested:
        return _Nested(self._read.bodies)

    def _wall(self, at: int) -> Span:
        return next(self._walls.around(at), self._whole)

    def _sees(self, binding: Binding, at: int, wall: Span, space: str) -> bool:
        """True if a binding may hold at a byte."""
        if not binding.start <= at < binding.end or binding.start < wall[0]:
            return False
        if binding.space and space and binding.space != space:
            return False
        is_member = (binding.start, binding.end) in self._read.classes
        return not is_member or self._sees_member(binding, at)

    def _sees_member(self, binding: Binding, at: int) -> bool:
        """True in the body of a class, behind what binds a name there."""
        return binding.effect <= at and self.level(at) == self.level_of(binding)

    def _choose(self, bound: list[Binding], at: int, rest: str) -> Meaning:
        """Of several bindings in one scope those that may hold at a byte."""
        live = self._find_live(bound, at)
        imports: list[Binding] = []
        others: list[Binding] = []
        paths: dict[str, None] = {}
        for binding in live:
            if binding.path is None:
                others.append(binding)
            else:
                imports.append(binding)
                paths[self._above(binding.path + rest, binding)] = None
        if not imports:
            return Meaning(is_other=True, is_local=self._is_local(live[0]))
        doubtful = [other for other in others if not any(_is_fallback(other, binding) for binding in imports)]
        if len(paths) > 1:
            first = imports[0]
            different = [binding for binding in imports if binding.path != first.path]
            if not all(_is_fallback(binding, first) for binding in different):
                doubtful += imports[1:]
        if not doubtful:
            return Meaning(tuple(paths))
        line = self._document.source_lines.at(doubtful[0].node.start_byte) + 1
        return Meaning(tuple(paths), False, f"line {line} binds {bound[0].name} to something else")

    def _is_local(self, binding: Binding) -> bool:
        """False for what a file, and in other languages a class or a namespace, defines for all."""
        is_inner = binding.start > 0 and self.language in ("python", *SCRIPTS)
        return is_inner or self.level_of(binding) != self._whole

    def _find_live(self, bound: list[Binding], at: int) -> list[Binding]:
        """The bindings that may be the last ones to have taken effect, the last first."""
        if len(bound) == 1 or self.language == "rust":  # where conditional compilation takes one
            return bound
        before = bound
        around: set[tuple[Span, Span]] = set()
        if self.level(at) == self.level_of(bound[0]):
            before = list(takewhile(lambda binding: binding.effect <= at, bound))
            around.update(_list_branches(self.node_at(at)))
        live: list[Binding] = []
        for binding in reversed(before or bound):
            live.append(binding)
            is_sure = self.level(binding.node.start_byte) == self.level_of(binding)
            if is_sure and all(branch in around for branch in _list_branches(binding.node)):
                break
        return live

    def runs_before(self, binding: Binding, at: int) -> bool:
        """False if a binding holds under a condition that a byte does not stand under."""
        around = set(_list_branches(self.node_at(at), _MAY_NOT_RUN))
        return all(branch in around for branch in _list_branches(binding.node, _MAY_NOT_RUN))

    def node_at(self, at: int) -> tree_sitter.Node:
        return self.root.descendant_for_byte_range(at, at) or self.root

    def level(self, at: int) -> Span:
        """The body of the function that a byte is in; the whole file outside of functions."""
        return next(self._bodies.around(at), self._whole)

    def level_of(self, binding: Binding) -> Span:
        """The body of the function that a binding's scope is in or is."""
        around = (span for span in self._bodies.around(binding.start) if binding.end <= span[1])
        return next(around, self._whole)

    @cached_property
    def root(self) -> tree_sitter.Node:
        assert self._document.syntax is not None
        return self._document.syntax.parse_once(self._document.source).root_node


@lru_cache(maxsize=4)
def read_scopes(document: Document) -> Scopes:
    """The scopes of a document; the last ones are kept."""
    return Scopes(document)


def _list_branches(node: tree_sitter.Node, kinds: tuple[str, ...] = _BRANCHES) -> Iterator[tuple[Span, Span]]:
    """The statements around a node that run only one of their parts, each with that part."""
    last = node
    for above in list_above(node):
        is_tried = above.type == "try_statement" and above.child_by_field_name("body") == last
        if above.type in kinds and not (is_tried and kinds is _MAY_NOT_RUN):
            yield (above.start_byte, above.end_byte), (last.start_byte, last.end_byte)
        last = above


def _is_fallback(one: Binding, other: Binding) -> bool:
    """True if only one of two bindings holds, or the first is before a `try` that may bind the name anew."""
    branches = dict(_list_branches(one.node))
    for whole, part in _list_branches(other.node):
        if branches.get(whole, part) != part:
            return True
    if one.effect > other.effect:
        return False
    return any(above.type == "try_statement" for above in list_above(other.node))
