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
# Docstrings that say what kind of class it is; the kind is listed among its base classes.
_OPENED: Final = rb"""\s*[rRuU]?(\"{3}|'{3})"""
_KINDS: Final = {
    "Interface": re.compile(_OPENED + rb"\s*(\w+\s+){0,2}(?i:interface|protocol)\s+(for|of|to|that)\b"),
    "Null": re.compile(_OPENED + rb"\s*(\w+\s+)?(?i:no-?op|placeholder|dummy)\b"),
}
_METHOD: Final = re.compile(rb"(?m)^[ \t]+(?:async[ \t]+)?def[ \t]+(\w+)")
_NEXT: Final = re.compile(rb"(?m)^(?=[^\s#)\]}])")


@dataclass(frozen=True)
class Kin:
    """Relatives of a class in its package: if it has subclasses, their methods, and inherited methods with code."""

    is_base: bool = False
    derived: frozenset[str] = frozenset()
    inherited: frozenset[str] = frozenset()


def find_bases(document: Document, owner: str) -> frozenset[str]:
    """The words in the class's list of bases, and the kind of class that its docstring states."""
    return frozenset().union(*(bases for name, bases in document.derive(_read_classes) if name == owner)) - {"object"}


def is_overridden(document: Document, owner: str, method: str) -> bool:
    """True if a direct or indirect subclass of `owner` in the document has the method."""
    found, size = {owner}, 0
    while len(found) > size:
        size = len(found)
        found |= {name for name, bases in document.derive(_read_classes) if bases & found}
    methods = {function.path[-2:] for function in outline(document).functions}
    return any((name, method) in methods for name in found - {owner})


def find_kin(document: Document, owner: str) -> Kin:
    """Reads the document, and the files of its package that name the class or its bases, nearest first."""
    language, bases = require_syntax(document), {(base,) for base in find_bases(document, owner)}
    own, named = re.escape(owner.encode()), b"|".join(re.escape(base.encode()) for (base,) in bases)
    derives = re.compile(rb"class\s+\w+\s*\((?:[^()]|\([^()]*\))*\b" + own + rb"\b(?:[^()]|\([^()]*\))*\)\s*:")
    is_basis = re.compile(rb"class\s+(?:" + named + rb")\b[^:]*:") if bases else None
    derived, inherited, is_base = set[bytes](), set[str](), False
    for source in chain((document.source,), _read_package(document.path)):
        if owner.encode() in source:
            for match in derives.finditer(source):
                is_base, end = True, _NEXT.search(source, source.find(b"\n", match.end()) + 1)
                derived.update(_METHOD.findall(source, match.end(), end.start() if end else len(source)))
        if is_basis and is_basis.search(source):
            for function in read_outline(language, source).functions:
                is_written = function.statements and not (function.is_stub or function.is_deliberate)
                if is_written and function.path[-2:-1] in bases:
                    inherited.add(function.path[-1])
    return Kin(is_base, frozenset(name.decode() for name in derived), frozenset(inherited))


def _read_package(path: Path | None) -> Iterator[bytes]:
    """The Python files of a file's folder and, in a package, of the whole package; does not follow links."""
    for file in islice(_list_package(os.path.dirname(os.path.abspath(path))), MAX_FILES) if path else ():
        try:
            status = os.lstat(file)
            if stat.S_ISREG(status.st_mode) and status.st_size <= MAX_FILE_BYTES:
                with open(file, "rb") as opened:
                    yield opened.read()
        except OSError:
            continue


def _list_package(folder: str) -> Iterator[str]:
    is_package, known = _is_package(folder), ""
    while True:
        for here, folders, names in os.walk(folder):
            kept = [name for name in folders if is_package and name[0] != "." and os.path.join(here, name) != known]
            folders[:] = sorted(kept)
            yield from (os.path.join(here, name) for name in sorted(names) if name.endswith(".py"))
        known, folder = folder, os.path.dirname(folder)
        if not is_package or not _is_package(folder):
            return


def _is_package(folder: str) -> bool:
    return os.path.exists(os.path.join(folder, "__init__.py"))


def _read_classes(document: Document) -> tuple[tuple[str, frozenset[str]], ...]:
    """Each class of the document with its bases."""
    return tuple(
        (
            match["name"].decode(),
            frozenset(re.findall(r"\w+", (match["python"] or match["others"] or b"").decode("utf-8", "replace")))
            | {kind for kind, doc in _KINDS.items() if doc.match(document.source, match.end())},
        )
        for match in _CLASS.finditer(document.source)
    )
