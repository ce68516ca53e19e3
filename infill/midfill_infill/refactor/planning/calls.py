"""Finds the calls of a document, and resolves names to dotted paths by its import statements."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from midfill_infill.refactor.planning.queries import find_matches
from midfill_infill.syntax.captures import text_of
from midfill_infill.syntax.outline import outline
from midfill_infill.text.document import Document

_CALL: Final = "(call_expression function: (_) @function) @call"
_NEW: Final = "(new_expression constructor: (_) @function) @call"
_QUERIES: Final = {
    "python": "(call function: (_) @function) @call",
    "javascript": _CALL + _NEW,
    "typescript": _CALL + _NEW,
    "tsx": _CALL + _NEW,
    "go": _CALL + "(composite_literal type: (_) @function) @call",
    "rust": _CALL + "(macro_invocation macro: (_) @function) @call",
    "c": _CALL,
    "cpp": _CALL + "(new_expression type: (_) @function) @call",
    "java": "(method_invocation object: (_)? @object name: (_) @function) @call"
    "(object_creation_expression type: (_) @function) @call",
}
LANGUAGES: Final = tuple(_QUERIES)

_GENERICS: Final = re.compile(r"(?:\.|::)?<[^<>]*>")
_SEPARATOR: Final = re.compile(r"::|\?\.|->|/")
_FROM: Final = re.compile(r"\bimport\s+(?P<what>.*?)\s*\bfrom\s*['\"](?P<path>[^'\"]+)['\"]", re.DOTALL)
_NAMED: Final = re.compile(r"\b(\w[\w$]*)(?:\s+as\s+([\w$]+))?")
_JAVA: Final = re.compile(r"\bimport\s+(?:static\s+)?([\w.]+?)(\.\*)?\s*;")
_GO: Final = re.compile(r"(?:(?<![\w.])(?!import\b)([\w.]+)\s+)?\"([^\"]+)\"")
_RUST: Final = re.compile(r"\buse\s+(.*?);", re.DOTALL)

Pair = tuple[str, str]
"""A name in the file, "*" for all of them, and what it stands for."""


@dataclass(frozen=True)
class Imports:
    """`names` maps names to dotted paths; `stars` are modules imported with a star."""

    names: dict[str, str]
    stars: tuple[str, ...] = ()

    def resolve(self, name: str) -> tuple[str, ...]:
        """The paths a dotted name may stand for; empty if no import mentions it."""
        first, dot, rest = name.partition(".")
        if first in self.names:
            return (self.names[first] + dot + rest,)
        return tuple(f"{star}.{name}" for star in self.stars)

    def spell(self, path: str) -> str | None:
        """The shortest way to write a dotted path in this file; None if no import helps."""
        found = [name + path[len(stands_for) :] for name, stands_for in self.names.items() if _leads(stands_for, path)]
        return min(found, key=len, default=None)


def _leads(start: str, path: str) -> bool:
    """True if `path` equals `start` or is inside it."""
    first, _, rest = path[len(start) + 1 :].partition(".")
    return path == start or (path.startswith(f"{start}.") and (not rest or first[:1].isupper()))


def plain(name: str) -> str:
    """A name as a dotted path, without white space, type arguments and language-specific syntax."""
    text, last = "".join(name.split()), ""
    while text != last:
        text, last = _GENERICS.sub("", text), text
    return _SEPARATOR.sub(".", text).strip(".")


def read_imports(document: Document) -> Imports:
    """The imports of a document."""
    read = _READERS.get(document.language or "")
    if read is None:
        return Imports({})
    names, stars = dict[str, str](), []
    for start, end in outline(document).imports:
        for name, path in read(document.source[start:end].decode("utf-8", "replace")):
            if name == "*":
                stars.append(path)
            else:
                names[name] = path
    return Imports(names, tuple(stars))


def _python(text: str) -> Iterator[Pair]:
    try:
        statements = ast.parse(text.strip()).body
    except (SyntaxError, ValueError):
        return
    for statement in statements:
        if isinstance(statement, ast.Import):
            yield from ((entry.asname or entry.name, entry.name) for entry in statement.names)
        elif isinstance(statement, ast.ImportFrom):
            module = "." * statement.level + (statement.module or "")
            for entry in statement.names:
                is_star = entry.name == "*"
                yield entry.asname or entry.name, module if is_star else f"{module}.{entry.name}"


def _ecmascript(text: str) -> Iterator[Pair]:
    for match in _FROM.finditer(text):
        path = plain(match["path"].lstrip("./@"))
        whole, _, named = match["what"].partition("{")
        for name, alias in _NAMED.findall(named):
            if name != "type":
                yield alias or name, f"{path}.{name}"
        for name in re.findall(r"[\w$]+", whole):
            if name not in ("as", "type"):
                yield name, path


def _java(text: str) -> Iterator[Pair]:
    for path, star in _JAVA.findall(text):
        yield "*" if star else path.rpartition(".")[2], path


def _go(text: str) -> Iterator[Pair]:
    for alias, path in _GO.findall(text):
        if alias != "_":
            yield "*" if alias == "." else alias or path.rpartition("/")[2], plain(path)


def _rust(text: str) -> Iterator[Pair]:
    for tree in _RUST.findall(text):
        yield from _flatten("", "".join(re.sub(r"\s+as\s+", "@", tree).split()))


def _flatten(prefix: str, tree: str) -> Iterator[Pair]:
    """`a::{b, c as d}` as pairs; `@` stands for `as`."""
    if tree.endswith("}") and "{" in tree:
        head, _, inside = tree[:-1].partition("{")
        for part in _split(inside):
            yield from _flatten(prefix + head, part)
        return
    path, _, alias = tree.partition("@")
    dotted = plain(prefix + path)
    last = dotted.rpartition(".")[2]
    if last == "self":
        dotted = dotted.rpartition(".")[0]
        last = dotted.rpartition(".")[2]
    yield ("*", dotted.rpartition(".")[0]) if last == "*" else (alias or last, dotted)


def _split(text: str) -> Iterator[str]:
    depth, start = 0, 0
    for place, sign in enumerate(text):
        depth += (sign == "{") - (sign == "}")
        if sign == "," and depth == 0:
            yield text[start:place]
            start = place + 1
    if text[start:]:
        yield text[start:]


_SCRIPTS: Final = dict.fromkeys(("javascript", "typescript", "tsx"), _ecmascript)
_READERS: Final = {"python": _python, "java": _java, "go": _go, "rust": _rust, **_SCRIPTS}


@dataclass(frozen=True)
class CallSite:
    """`start` to `end` in source bytes. `name` is as written, `full` the possible resolved names, all dotted; `kind` is
    the node type.
    """

    kind: str
    start: int
    end: int
    name: str
    full: tuple[str, ...]
    is_broken: bool

    def calls(self, pattern: str) -> bool:
        """True if this calls `pattern`; the import path may be longer."""
        wanted = plain(pattern)
        if fnmatchcase(self.name, wanted):
            return True
        return "." in wanted and any(fnmatchcase(f".{path}", f"*.{wanted}") for path in self.full)

    def calls_named(self, pattern: str) -> bool:
        """Like `calls`, but a name without dots also matches methods and attributes of that name."""
        return self.calls(pattern) or fnmatchcase(self.name.rpartition(".")[2], pattern)


def find_calls(document: Document) -> Iterator[CallSite]:
    """Every call in tree order, outer ones first; none in languages without calls."""
    if document.language not in _QUERIES:
        return
    imports = read_imports(document)
    for match in find_matches(document, _QUERIES[document.language]):
        call = match["call"][0]
        parts = [text_of(node) for key in ("object", "function") for node in match.get(key, [])]
        name = plain(".".join(parts))
        yield CallSite(call.type, call.start_byte, call.end_byte, name, imports.resolve(name), call.has_error)
