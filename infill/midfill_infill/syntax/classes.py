"""Finds which classes derive from which, in a document and in the Python package around it. Knows names, no imports."""

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Final

from midfill_infill.syntax.captures import read_outline
from midfill_infill.syntax.outline import outline, require_syntax
from midfill_infill.text.document import Document

MAX_FILES: Final = 1500
MAX_FILE_BYTES: Final = 256 * 1024

_CLASS: Final = re.compile(
    rb"\bclass\s+(?P<name>\w+)(?:<[^<>{}]*>)?\s*(?:\((?P<python>[^()]*(?:\([^()]*\)[^()]*)*)\)\s*:"
    rb"|(?P<others>(?:extends|implements|:)[^{};=]+)\{|:(?=\s*[rRuU]?\"{3}))"
)
# Patterns of docstrings that say what kind of class it is. The kind counts as one more base class.
_DOCSTRING_START: Final = rb"""\s*[rRuU]?(\"{3}|'{3})"""
_KINDS: Final = {
    "Interface": re.compile(_DOCSTRING_START + rb"\s*(\w+\s+){0,2}(?i:interface|protocol)\s+(for|of|to|that)\b"),
    "Null": re.compile(_DOCSTRING_START + rb"\s*(\w+\s+)?(?i:no-?op|placeholder|dummy)\b"),
}
_METHOD: Final = re.compile(rb"(?m)^[ \t]+(?:async[ \t]+)?def[ \t]+(\w+)")
_CLASS_END: Final = re.compile(rb"(?m)^(?=[^\s#)\]}])")


@dataclass(frozen=True)
class Kin:
    """What the package of a class tells of its relatives."""

    is_base: bool = False  # it has subclasses
    derived: frozenset[str] = frozenset()  # methods of its subclasses
    inherited: frozenset[str] = frozenset()  # methods of its base classes that have code


def find_bases(document: Document, owner: str) -> frozenset[str]:
    """The words in the list of bases of class `owner`, and the kinds of class that its docstring states."""
    words: set[str] = set()
    for name, bases in document.derive(_read_classes):
        if name == owner:
            words |= bases
    return frozenset(words - {"object"})


def is_overridden(document: Document, owner: str, method: str) -> bool:
    """True if a direct or indirect subclass of `owner` in the document has the method."""
    classes = document.derive(_read_classes)
    family = {owner}
    size = 0
    while len(family) > size:
        size = len(family)
        family |= {name for name, bases in classes if bases & family}
    methods = {function.path[-2:] for function in outline(document).functions}
    return any((name, method) in methods for name in family - {owner})


def find_kin(document: Document, owner: str) -> Kin:
    """The relatives of class `owner` in the document and in the files of its package, up to `MAX_FILES` files."""
    bases = find_bases(document, owner)
    base_definition = re.compile(rb"class\s+(?:%b)\b[^:]*:" % b"|".join(re.escape(name.encode()) for name in bases))
    derived: set[bytes] = set()
    inherited: set[str] = set()
    is_base = False
    for source in chain((document.source,), _read_package(document.path)):
        for methods in _list_derived(source, owner):
            is_base = True
            derived.update(methods)
        if bases and base_definition.search(source):
            for function in read_outline(require_syntax(document), source).functions:
                is_method = len(function.path) > 1 and function.path[-2] in bases
                if is_method and function.statements and not (function.is_placeholder or function.is_deliberate):
                    inherited.add(function.path[-1])
    return Kin(is_base, frozenset(name.decode() for name in derived), frozenset(inherited))


def _list_derived(source: bytes, owner: str) -> Iterator[list[bytes]]:
    """For each class in a Python source that derives from `owner`: the names of its methods."""
    name = owner.encode()
    if name not in source:
        return
    derives = rb"class\s+\w+\s*\((?:[^()]|\([^()]*\))*\b" + re.escape(name) + rb"\b(?:[^()]|\([^()]*\))*\)\s*:"
    for match in re.finditer(derives, source):
        body_start = source.find(b"\n", match.end()) + 1
        end = _CLASS_END.search(source, body_start)
        yield _METHOD.findall(source, match.end(), end.start() if end else len(source))


def _read_package(path: Path | None) -> Iterator[bytes]:
    """The contents of the Python files in the folder of `path` and, if that is a package, in the whole package. Leaves
    out links, large and unreadable files.
    """
    if path is None:
        return
    folder = os.path.dirname(os.path.abspath(path))
    for file in islice(_list_package(folder), MAX_FILES):
        try:
            status = os.lstat(file)
            if stat.S_ISREG(status.st_mode) and status.st_size <= MAX_FILE_BYTES:
                with open(file, "rb") as opened:
                    yield opened.read()
        except OSError:
            continue


def _list_package(folder: str) -> Iterator[str]:
    """The Python files of a folder; if it is a package, also of its subfolders, then of the packages around it."""
    is_package = _is_package(folder)
    listed = ""
    top = folder
    while True:
        for here, folders, names in os.walk(top):
            inner = [name for name in folders if is_package and name[0] != "." and os.path.join(here, name) != listed]
            folders[:] = sorted(inner)
            for name in sorted(names):
                if name.endswith(".py"):
                    yield os.path.join(here, name)
        listed = top
        top = os.path.dirname(top)
        if not is_package or not _is_package(top):
            return


def _is_package(folder: str) -> bool:
    return os.path.exists(os.path.join(folder, "__init__.py"))


def _read_classes(document: Document) -> tuple[tuple[str, frozenset[str]], ...]:
    """The name of each class of the document with the words of its bases and the kinds that its docstring states."""
    classes: list[tuple[str, frozenset[str]]] = []
    for match in _CLASS.finditer(document.source):
        listed = match["python"] or match["others"] or b""
        bases = set(re.findall(r"\w+", listed.decode("utf-8", "replace")))
        for kind, docstring in _KINDS.items():
            if docstring.match(document.source, match.end()):
                bases.add(kind)
        classes.append((match["name"].decode(), frozenset(bases)))
    return tuple(classes)
