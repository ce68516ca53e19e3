"""Finds the calls of a document, and resolves names to dotted paths by its import statements."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

import tree_sitter

from midfill_infill.refactor.planning.queries import find_matches
from midfill_infill.syntax.captures import text_of
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
_REQUIRE: Final = """
((variable_declarator value: [
  (call_expression function: (identifier) @_function)
  (member_expression object: (call_expression function: (identifier) @_function))
  (await_expression (call_expression function: (import) @_function))
]) @import (#match? @_function "^(require|import)$"))
"""
_SCRIPT_IMPORTS: Final = f"(import_statement) @import {_REQUIRE}"
# Import statements wherever they stand: in `try`, under `if`, in functions.
_IMPORTS: Final = {
    "python": "[(import_statement) (import_from_statement)] @import",
    "javascript": _SCRIPT_IMPORTS,
    "typescript": _SCRIPT_IMPORTS,
    "tsx": _SCRIPT_IMPORTS,
    "go": "(import_declaration) @import",
    "rust": "(use_declaration) @import",
    "java": "(import_declaration) @import",
}
_FUNCTIONS: Final = re.compile(r".*(?:function|method|lambda|closure|constructor|func_literal|generator).*")
_NAMES: Final = ("identifier", "shorthand_property_identifier_pattern")
_NOT_BOUND: Final = ("type", "value", "default_value", "right", "return_type")  # fields of a parameter

_AWAIT: Final = re.compile(r"^await\s+")  # of `await load<T>(x)`, where the grammar takes it for the function's name
_GENERICS: Final = re.compile(r"(?:\.|::)?<[^<>]*>")
_SEPARATOR: Final = re.compile(r"::|\?\.|->|/")
_FROM: Final = re.compile(r"\bimport\s+(?P<what>.*?)\s*\bfrom\s*['\"](?P<path>[^'\"]+)['\"]", re.DOTALL)
_REQUIRED: Final = re.compile(
    r"(?P<what>[\w$]+|\{[^}]*\})\s*=\s*(?:await\s+)?(?:require|import)\s*\(\s*['\"`](?P<path>[^'\"`]+)['\"`]\s*\)(?:\.(?P<part>[\w$]+))?"
)
_NAMED: Final = re.compile(r"\b(\w[\w$]*)(?:\s+as\s+([\w$]+))?")
_JAVA: Final = re.compile(r"\bimport\s+(?:static\s+)?([\w.]+?)(\.\*)?\s*;")
_GO: Final = re.compile(r"(?:(?<![\w.])(?!import\b)([\w.]+)\s+)?\"([^\"]+)\"")
_RUST: Final = re.compile(r"\buse\s+(.*?);", re.DOTALL)

Pair = tuple[str, str]
"""A name in the file, "*" for all of them, and what it stands for."""


@dataclass(frozen=True)
class Binding:
    """What a name stands for from byte `start` to `end`, the function or the file that its import stands in."""

    name: str
    path: str
    start: int
    end: int


@dataclass(frozen=True)
class Imports:
    """The names that import statements bind; "*" is a module's every name."""

    bindings: tuple[Binding, ...] = ()

    @property
    def names(self) -> dict[str, str]:
        return {each.name: each.path for each in self.bindings if each.name != "*"}

    def resolve(self, name: str, at: int) -> tuple[str, ...]:
        """The paths that a dotted name may stand for at a byte; empty if no import mentions it."""
        first, dot, rest = name.partition(".")
        seen = [each for each in self.bindings if each.start <= at < each.end]
        named = [each for each in seen if each.name == first]
        nearest = min((each.end - each.start for each in named), default=0)
        found = dict.fromkeys(each.path + dot + rest for each in named if each.end - each.start == nearest)
        return tuple(found) or tuple(f"{each.path}.{name}" for each in seen if each.name == "*")

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
    """The imports of a document, each with the function that it stands in."""
    language = document.language or ""
    if language not in _IMPORTS:
        return Imports()
    bindings = list[Binding]()
    for match in find_matches(document, _IMPORTS[language]):
        node = match["import"][0]
        scope = next(_list_functions(node), None)
        start, end = scope.byte_range if scope is not None else (0, len(document.source) + 1)
        bindings += (Binding(name, path, start, end) for name, path in _READERS[language](text_of(node)))
    return Imports(tuple(bindings))


def _list_functions(node: tree_sitter.Node) -> Iterator[tree_sitter.Node]:
    """The functions around a node, the innermost first."""
    above = node.parent
    while above is not None:
        if _FUNCTIONS.fullmatch(above.type) and above.child_by_field_name("body") is not None:
            yield above
        above = above.parent


def _is_shadowed(call: tree_sitter.Node, name: str, imports: Imports) -> bool:
    """True if a parameter of a function around the call has the name, nearer than an import."""
    own = [each for each in imports.bindings if each.name == name and each.start <= call.start_byte < each.end]
    nearest = max((each.start for each in own), default=0)
    around = (each for each in _list_functions(call) if each.start_byte > nearest or not own)
    return any(name in _list_parameters(each) for each in around)


def _list_parameters(function: tree_sitter.Node) -> set[str]:
    fields = (function.child_by_field_name(field) for field in ("parameters", "parameter", "declarator"))
    return {name for node in fields if node is not None for name in _list_names(node)}


def _list_names(node: tree_sitter.Node) -> Iterator[str]:
    if node.type in _NAMES:
        yield text_of(node)
    for index, child in enumerate(node.children):
        if node.field_name_for_child(index) not in _NOT_BOUND:
            yield from _list_names(child)


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
    for match in _REQUIRED.finditer(text):
        path = plain(match["path"].lstrip("./@"))
        if not match["what"].startswith("{"):
            yield match["what"], ".".join(filter(None, (path, match["part"])))
            continue
        for name, alias in re.findall(r"([\w$]+)(?:\s*:\s*([\w$]+))?", match["what"]):
            yield alias or name, f"{path}.{name}"


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
    the node type. `is_optional`: a call like `load?.(x)`.
    """

    kind: str
    start: int
    end: int
    name: str
    full: tuple[str, ...]
    is_broken: bool
    is_optional: bool = False

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
        name = plain(_AWAIT.sub("", ".".join(parts)))
        start = call.start_byte + (len(parts[0]) - len(_AWAIT.sub("", parts[0])) if parts else 0)
        is_shadowed = _is_shadowed(call, name.partition(".")[0], imports)
        full = () if is_shadowed else imports.resolve(name, call.start_byte)
        if "." in name or not is_shadowed:
            is_optional = any(child.type == "optional_chain" for child in call.children)
            yield CallSite(call.type, start, call.end_byte, name, full, call.has_error, is_optional)
