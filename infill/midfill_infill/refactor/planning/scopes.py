"""Tells what a name means where it is used: the path that an import gives it, or something else. Knows no calls."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Final

import tree_sitter

from midfill_infill.refactor.planning.bindings import SCRIPTS, Binding, Bindings, Span, list_above
from midfill_infill.text.document import Document

_BRANCHES: Final = ("try_statement", "if_statement", "if_expression", "match_statement", "preproc_if", "preproc_ifdef")
_MAY_NOT_RUN: Final = (*_BRANCHES, "for_statement", "while_statement")
_STANDARD: Final = ("std", "core", "alloc", "java", "javax")  # their wildcard imports hide no function of others


@dataclass(frozen=True)
class Meaning:
    """The dotted paths that a name may stand for. `is_other`: it certainly stands for something else than an import.
    `doubt`: why it may stand for something else, "" if it cannot. `is_local`: it is bound inside of a function or
    another inner scope, and to something else than an import.
    """

    paths: tuple[str, ...] = ()
    is_other: bool = False
    doubt: str = ""
    is_local: bool = False


class _Nested:
    """Spans of which any two are either apart or nested; finds those around a byte."""

    def __init__(self, spans: Iterable[Span]) -> None:
        self._spans = sorted(set(spans), key=lambda span: (span[0], -span[1]))
        self._starts = [start for start, _ in self._spans]
        self._outer: list[int] = []  # for each span the index of the next one around it, -1 for none
        still_open = [-1]
        for index, (start, _) in enumerate(self._spans):
            while still_open[-1] >= 0 and self._spans[still_open[-1]][1] <= start:
                still_open.pop()
            self._outer.append(still_open[-1])
            still_open.append(index)

    def around(self, at: int) -> Iterator[Span]:
        """The spans that include a byte, the innermost first."""
        index = bisect_right(self._starts, at) - 1
        while index >= 0:
            start, end = self._spans[index]
            if at < end:
                yield start, end
            index = self._outer[index]


class Scopes:
    """What the names of a document mean. Positions are bytes of its source."""

    def __init__(self, document: Document) -> None:
        self.language = document.language or ""
        self._document = document
        self._bindings = Bindings(document)
        self._whole = (0, self._bindings.size)
        self._groups: dict[str, tuple[_Nested, dict[Span, list[Binding]]]] = {}

    @property
    def bindings(self) -> dict[str, list[Binding]]:
        """The bindings by name, as in `Bindings.named`."""
        return self._bindings.named

    @cached_property
    def imports(self) -> list[Binding]:
        """The bindings that stand for a path; without "*" and ".", which stand for many names."""
        imports: list[Binding] = []
        for name, bound in self.bindings.items():
            if name not in ("*", "."):
                imports += [binding for binding in bound if binding.path is not None]
        return imports

    def resolve(self, name: str, at: int, space: str = "") -> Meaning:
        """What a dotted name means at a byte. `space` is the space of names that its first part is in, "" for any."""
        first, dot, rest = name.partition(".")
        wall = self._wall(at)
        if self.language == "rust" and first == "super" and rest:
            return self.resolve(rest, max(wall[0] - 1, 0), space)
        nested, groups = self._group(first)
        for span in nested.around(at):
            visible = self._list_visible(groups[span], at, wall, space)
            if visible:
                return self._choose(visible, at, dot + rest)
        paths: dict[str, None] = {}
        wildcard_modules: set[str | None] = set()
        for star in (*self.bindings.get("*", ()), *self.bindings.get(".", ())):
            if not self._list_visible([star], at, wall, ""):
                continue
            paths[self._follow_super(f"{star.path}.{name}", star)] = None
            if star.name == "*" and str(star.path).split(".")[0] not in _STANDARD:
                wildcard_modules.add(star.path)
        doubt = ""
        if len(wildcard_modules) > 1:
            doubt = f"{len(wildcard_modules)} wildcard imports may bind {first}"
        return Meaning(tuple(filter(None, paths)), False, doubt)

    def _group(self, name: str) -> tuple[_Nested, dict[Span, list[Binding]]]:
        """The spans in which a name is bound, and its bindings by span, in the order in which they take effect."""
        if name not in self._groups:
            groups: dict[Span, list[Binding]] = {}
            for binding in sorted(self.bindings.get(name, ()), key=lambda binding: binding.effect):
                groups.setdefault((binding.start, binding.end), []).append(binding)
            self._groups[name] = _Nested(groups), groups
        return self._groups[name]

    def _follow_super(self, path: str, binding: Binding) -> str:
        """The path that Rust's `super.NAME` means in the module around; any other path as it is."""
        if self.language != "rust" or not path.startswith("super."):
            return path
        outer = self.resolve(path.removeprefix("super."), max(self._wall(binding.start)[0] - 1, 0))
        return next(iter(outer.paths), path)

    @cached_property
    def _walls(self) -> _Nested:
        return _Nested(self._bindings.walls)

    @cached_property
    def _bodies(self) -> _Nested:
        return _Nested(self._bindings.bodies)

    def _wall(self, at: int) -> Span:
        """The innermost scope around a byte that sees no name from outside; the whole file without one."""
        return next(self._walls.around(at), self._whole)

    def _list_visible(self, bindings: list[Binding], at: int, wall: Span, space: str) -> list[Binding]:
        """Those of the bindings of one scope, in order, that are known at a byte, whose wall is `wall`, for a name in
        `space`. The names of a class are known behind them, and in no function of the class.
        """
        start, end = bindings[0].start, bindings[0].end
        if not start <= at < end or start < wall[0]:
            return []
        if (start, end) in self._bindings.classes:
            bindings = _take_earlier(bindings, at) if self.level(at) == self.level_of(bindings[0]) else []
        if space:
            return [binding for binding in bindings if binding.space in ("", space)]
        return bindings

    def _choose(self, bindings: list[Binding], at: int, rest: str) -> Meaning:
        """What a name means at a byte, given its bindings in one scope. `rest` follows the name in a dotted name."""
        live = self._find_live(bindings, at)
        imports: list[Binding] = []
        others: list[Binding] = []
        paths: dict[str, None] = {}
        for binding in live:
            if binding.path is None:
                others.append(binding)
            else:
                imports.append(binding)
                paths[self._follow_super(binding.path + rest, binding)] = None
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
        return Meaning(tuple(paths), False, f"line {line} binds {bindings[0].name} to something else")

    def _is_local(self, binding: Binding) -> bool:
        """False for what a file binds outside of functions; in Python and scripts only for what it binds at the top."""
        is_inner = binding.start > 0 and self.language in ("python", *SCRIPTS)
        return is_inner or self.level_of(binding) != self._whole

    def _find_live(self, bindings: list[Binding], at: int) -> list[Binding]:
        """The bindings that may be the last one to have taken effect when the code at a byte runs, the last first."""
        if len(bindings) == 1 or self.language == "rust":  # in Rust, conditional compilation chooses one of several
            return bindings
        earlier = bindings  # the code of a function runs at any time after what is around it
        branches_at: set[tuple[Span, Span]] = set()
        if self.level(at) == self.level_of(bindings[0]):
            earlier = _take_earlier(bindings, at)
            branches_at.update(_list_branches(self.node_at(at)))
        live: list[Binding] = []
        for binding in reversed(earlier or bindings):
            live.append(binding)
            has_run = self.level(binding.node.start_byte) == self.level_of(binding)
            if has_run and all(branch in branches_at for branch in _list_branches(binding.node)):
                break  # it certainly has taken effect, which hides every earlier binding
        return live

    def runs_before(self, binding: Binding, at: int) -> bool:
        """False if a binding is in a branch or a loop that may not run, and a byte is outside of that."""
        branches_at = set(_list_branches(self.node_at(at), _MAY_NOT_RUN))
        return all(branch in branches_at for branch in _list_branches(binding.node, _MAY_NOT_RUN))

    def node_at(self, at: int) -> tree_sitter.Node:
        return self.root.descendant_for_byte_range(at, at) or self.root

    def level(self, at: int) -> Span:
        """The body of the function that a byte is in; the whole file outside of functions."""
        return next(self._bodies.around(at), self._whole)

    def level_of(self, binding: Binding) -> Span:
        """The body of the innermost function that includes a binding's scope or is that; else the whole file."""
        around = (span for span in self._bodies.around(binding.start) if binding.end <= span[1])
        return next(around, self._whole)

    @cached_property
    def root(self) -> tree_sitter.Node:
        assert self._document.syntax is not None
        return self._document.syntax.parse_once(self._document.source).root_node


@lru_cache(maxsize=4)
def read_scopes(document: Document) -> Scopes:
    """The scopes of a document. Those of the last documents are kept, because many callers ask for the same one."""
    return Scopes(document)


def _take_earlier(bindings: list[Binding], at: int) -> list[Binding]:
    """Those of the bindings, which are in the order of their effect, that have taken effect at a byte."""
    return bindings[: bisect_right(bindings, at, key=lambda binding: binding.effect)]


def _list_branches(node: tree_sitter.Node, kinds: tuple[str, ...] = _BRANCHES) -> Iterator[tuple[Span, Span]]:
    """The branching statements around a node, each with its part that the node is in. With `_MAY_NOT_RUN` without the
    body of a `try`, which always runs.
    """
    part = node
    for above in list_above(node):
        is_tried = above.type == "try_statement" and above.child_by_field_name("body") == part
        if above.type in kinds and not (is_tried and kinds is _MAY_NOT_RUN):
            yield (above.start_byte, above.end_byte), (part.start_byte, part.end_byte)
        part = above


def _is_fallback(binding: Binding, other: Binding) -> bool:
    """True if two bindings are in different branches of a statement, or the first takes effect before the second, which
    is in a `try`: so one stands in for the other.
    """
    branches = dict(_list_branches(binding.node))
    for whole, part in _list_branches(other.node):
        if branches.get(whole, part) != part:
            return True
    if binding.effect > other.effect:
        return False
    return any(above.type == "try_statement" for above in list_above(other.node))
