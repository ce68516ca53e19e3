"""Reads import statements: which names they bind, and which dotted path each name stands for. Knows no scopes."""

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import tree_sitter

from midfill_infill.refactor.planning.queries import find_comments
from midfill_infill.syntax.captures import text_of

Pair = tuple[str, str]
"""A name that an import binds and the dotted path that it stands for; the name "*" for all names of the path."""

_GENERICS: Final = re.compile(r"(?:\.|::)?<[^<>]*>")
_BRACKETS: Final = re.compile(r"(?<![\w\])>.])\(([^\W\d][\w.]*)\)")  # around nothing but a name
_SEPARATOR: Final = re.compile(r"::|\?\.|->|/")
_FROM: Final = re.compile(r"\bimport\s+(?P<what>.*?)\s*\bfrom\s*['\"](?P<path>[^'\"]+)['\"]", re.DOTALL)
_EQUALS: Final = re.compile(r"\bimport\s+([\w$]+)\s*=\s*(?:require\s*\(\s*['\"]([^'\"]+)['\"]\s*\)|([\w$.]+))")
_NAMED: Final = re.compile(r"\b(\w[\w$]*)(?:\s+as\s+([\w$]+))?")
_JAVA: Final = re.compile(r"\bimport\s+(?:static\s+)?([\w.]+?)(\.\*)?\s*;")
_GO: Final = re.compile(r"(?:(?<![\w.])(?!import\b)([\w.]+)\s+)?[\"`]([^\"`]+)[\"`]")
_VERSION: Final = re.compile(r"/v\d+$|\.v\d+$")
_RUST: Final = re.compile(r"\buse\s+(.*?);", re.DOTALL)


def plain(name: str) -> str:
    """A name as a dotted path, without white space, type arguments and language-specific syntax."""
    text = "".join(name.split()).replace("\\", "")  # with Python's joined lines
    before = ""
    while text != before:  # type arguments and brackets are nested
        before = text
        text = _GENERICS.sub("", _BRACKETS.sub(r"\1", text))
    return _SEPARATOR.sub(".", text).strip(".")


def _python(text: str) -> Iterator[Pair]:
    """`import a.b as c` and `from a import b as c`."""
    try:
        statements = ast.parse(text.strip()).body
    except (SyntaxError, ValueError):
        return
    for statement in statements:
        if isinstance(statement, ast.Import):
            for entry in statement.names:
                yield entry.asname or entry.name, entry.name
        elif isinstance(statement, ast.ImportFrom):
            module = "." * statement.level + (statement.module or "")
            for entry in statement.names:
                path = module if entry.name == "*" else f"{module}.{entry.name}"
                yield entry.asname or entry.name, path


def _ecmascript(text: str) -> Iterator[Pair]:
    """`import a, {b as c} from "d"` and `import a = require("b")`."""
    for match in _FROM.finditer(text):
        path = _module(match["path"])
        before_braces, _, in_braces = match["what"].partition("{")
        for name, alias in _NAMED.findall(in_braces):
            if name != "type":
                yield alias or name, _member(path, name)
        for name in re.findall(r"[\w$]+", before_braces):
            if name not in ("as", "type"):
                yield name, path
    for name, required, other_path in _EQUALS.findall(text):
        yield name, _module(required) if required else other_path


def _module(text: str) -> str:
    """The dotted path of a JavaScript module, given the text between the quotes."""
    return plain(text.removeprefix("node:").lstrip("./@"))


def _member(path: str, name: str) -> str:
    """The path of a member of a JavaScript module; the module's own path for its default export."""
    if name == "default":
        return path
    return f"{path}.{name}"


def _java(text: str) -> Iterator[Pair]:
    for path, star in _JAVA.findall(text):
        yield "*" if star else path.rpartition(".")[2], path


def _go(text: str) -> Iterator[Pair]:
    """`import a "b/c"`."""
    for alias, path in _GO.findall(text):
        if alias == "_":
            continue
        name = alias or _VERSION.sub("", path).rpartition("/")[2]
        if alias == ".":
            name = "*"
        yield name, plain(path)


def _rust(text: str) -> Iterator[Pair]:
    for tree in _RUST.findall(text):
        yield from _flatten("", "".join(re.sub(r"\s+as\s+", "@", tree).split()))


def _flatten(prefix: str, tree: str) -> Iterator[Pair]:
    """The pairs of a Rust tree such as `a::{b, c@d}` below the path `prefix`; `@` stands for ` as `."""
    if tree.endswith("}") and "{" in tree:
        head, _, inside = tree[:-1].partition("{")
        for part in _split(inside):
            yield from _flatten(prefix + head, part)
        return
    path, _, alias = tree.partition("@")
    dotted = plain(prefix + path)
    module, _, last = dotted.rpartition(".")
    if last == "self":
        dotted = module
        module, _, last = dotted.rpartition(".")
    if last == "*":
        yield "*", module
    else:
        yield alias or last, dotted


def _split(text: str) -> Iterator[str]:
    """The parts of a list between commas outside of braces."""
    depth = start = 0
    for position, char in enumerate(text):
        if char == "{":
            depth += 1
        elif char == "}":
            depth -= 1
        elif char == "," and depth == 0:
            yield text[start:position]
            start = position + 1
    if text[start:]:
        yield text[start:]


def _cpp(text: str) -> Iterator[Pair]:
    """`using a::b;`, `using namespace a;` and `namespace a = b::c;`."""
    words = " ".join(text.rstrip("; \n").split())
    kind, _, rest = words.partition(" ")
    if kind == "namespace":
        name, _, path = rest.partition("=")
        yield name.strip(), plain(path)
    elif rest.startswith("namespace "):
        yield "*", plain(rest.removeprefix("namespace "))
    elif not rest.startswith("enum "):
        for part in rest.split(","):
            path = plain(part.strip().removeprefix("typename "))
            yield path.rpartition(".")[2], path


_READERS: Final[Mapping[str, Callable[[str], Iterator[Pair]]]] = {
    "python": _python,
    "java": _java,
    "go": _go,
    "rust": _rust,
    "cpp": _cpp,
    **dict.fromkeys(("javascript", "typescript", "tsx"), _ecmascript),
}


def read_import(statement: tree_sitter.Node, language: str) -> Iterator[Pair]:
    """The pairs of an import statement, whatever its comments say."""
    text = bytearray(statement.text or b"")
    for comment in find_comments(statement):
        start, end = (byte - statement.start_byte for byte in comment.byte_range)
        text[start:end] = b" " * (end - start)
    return _READERS[language](text.decode("utf-8", "replace"))


def find_required(node: tree_sitter.Node | None) -> str | None:
    """The path of an expression such as `(await import("a")).b` or `require("a").b`; None for any other expression."""
    if node is None:
        return None
    if node.type in ("await_expression", "parenthesized_expression", "non_null_expression", "as_expression"):
        return find_required(node.named_children[0] if node.named_children else None)
    if node.type == "member_expression":
        path = find_required(node.child_by_field_name("object"))
        name = node.child_by_field_name("property")
        if path is None or name is None:
            return None
        return _member(path, text_of(name))
    function = node.child_by_field_name("function")
    arguments = node.child_by_field_name("arguments")
    if node.type != "call_expression" or function is None or arguments is None:
        return None
    given = [argument for argument in arguments.named_children if argument.type != "comment"]
    if text_of(function) not in ("require", "import") or not given:
        return None
    module = given[0]
    if module.type not in ("string", "template_string") or b"${" in (module.text or b""):
        return None
    return _module(text_of(module).strip("'\"`"))


def destructure(pattern: tree_sitter.Node, path: str) -> Iterator[tuple[tree_sitter.Node, str]]:
    """The nodes of the names that a JavaScript pattern takes out of the module or value `path`, with their paths."""
    if pattern.type == "identifier":
        yield pattern, path
    elif pattern.type == "shorthand_property_identifier_pattern":
        yield pattern, _member(path, text_of(pattern))
    elif pattern.type in ("object_pattern", "rest_pattern"):
        for child in pattern.named_children:
            yield from destructure(child, path)
    elif pattern.type == "pair_pattern":
        key = pattern.child_by_field_name("key")
        value = pattern.child_by_field_name("value")
        if key is not None and value is not None:
            yield from destructure(value, _member(path, text_of(key)))
    else:  # a parameter with a type, or a target with a default
        inner = pattern.child_by_field_name("pattern") or pattern.child_by_field_name("left")
        if inner is not None:
            yield from destructure(inner, path)
