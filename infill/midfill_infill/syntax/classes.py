"""Finds which classes derive from which, in a document and in the Python package around it. Knows names, no imports."""

import os
import re
import stat
from collections import defaultdict
from collections.abc import Iterator, Mapping
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
    rb"|(?P<others>(?:extends|implements|:)[^{};=]{1,1000}+)\{|:(?=\s*[rRuU]?\"{3}))"
)
# Patterns of docstrings that say what kind of class it is. The kind counts as one more base class.
_DOCSTRING_START: Final = rb"""\s*[rRuU]?(\"{3}|'{3})"""
_KINDS: Final = {
    "Interface": re.compile(_DOCSTRING_START + rb"\s*(\w+\s+){0,2}(?i:interface|protocol)\s+(for|of|to|that)\b"),
    "Null": re.compile(_DOCSTRING_START + rb"\s*(\w+\s+)?(?i:no-?op|placeholder|dummy)\b"),
}
_NAME: Final = rb"[\w\x80-\xff]+"
_DEFINED: Final = re.compile(rb"class\s+(%b)" % _NAME)
_DERIVED: Final = re.compile(rb"class\s+\w+\s*\((?P<bases>(?:[^()]++|\([^()]*\))*+)\)\s*:")
_NESTED: Final = re.compile(rb"\([^()]*\)")
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
    return document.derive(_read_classes).get(owner, frozenset()) - {"object"}


def find_overridden(document: Document, owner: str) -> frozenset[str]:
    """The names of the methods that direct or indirect subclasses of `owner` in the document have."""
    classes = document.derive(_read_classes)
    family = {owner}
    size = 0
    while len(family) > size:
        size = len(family)
        family |= {name for name, bases in classes.items() if not bases.isdisjoint(family)}
    subclasses = {(name,) for name in family - {owner}}
    functions = outline(document).functions if subclasses else ()
    return frozenset(function.path[-1] for function in functions if function.path[-2:-1] in subclasses)


def find_kin(document: Document, owner: str) -> Kin:
    """The relatives of class `owner` in the document and in the files of its package, up to `MAX_FILES` files."""
    methods_of, files_of = document.derive(_read_package)
    derived = methods_of.get(owner.encode())
    bases = find_bases(document, owner)
    files = chain.from_iterable(files_of.get(base.encode(), ()) for base in bases)
    methods = chain.from_iterable(document.derive(_read_methods, file) for file in dict.fromkeys(files))
    inherited = frozenset(method for name, method in methods if name in bases)
    return Kin(derived is not None, frozenset(name.decode() for name in derived or ()), inherited)


def _read_package(document: Document) -> tuple[Mapping[bytes, set[bytes]], Mapping[bytes, list[str | None]]]:
    """For classes of the document by their names the methods of all subclasses in its package; for all classes of the
    package the files that define one of that name, where None is the document.
    """
    owners = {function.path[-2].encode() for function in outline(document).functions if len(function.path) > 1}
    methods_of: dict[bytes, set[bytes]] = {}
    files_of: dict[bytes, list[str | None]] = defaultdict(list)
    for file in chain((None,), islice(_list_package(document.path), MAX_FILES)):
        source = document.source if file is None else _read_file(file)
        for match in _DERIVED.finditer(source):
            words = re.findall(_NAME, _NESTED.sub(b" ", match["bases"]))
            for owner in owners.intersection(words):
                end = _CLASS_END.search(source, source.find(b"\n", match.end()) + 1)
                methods = _METHOD.findall(source, match.end(), end.start() if end else len(source))
                methods_of.setdefault(owner, set()).update(methods)
        for name in set(_DEFINED.findall(source)):
            files_of[name].append(file)
    return methods_of, files_of


def _read_methods(document: Document, file: str | None) -> frozenset[tuple[str, str]]:
    """The names of the methods in a file of a document's package that have code, each behind that of its class."""
    parts = outline(document)
    if file is not None:
        parts = read_outline(require_syntax(document), _read_file(file))
    methods = (function for function in parts.functions if len(function.path) > 1 and function.statements)
    written = (method for method in methods if not (method.is_placeholder or method.is_deliberate))
    return frozenset((method.path[-2], method.path[-1]) for method in written)


def _read_file(file: str) -> bytes:
    """The content of a file; nothing of a link, a large or an unreadable file."""
    try:
        status = os.lstat(file)
        if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_FILE_BYTES:
            return b""
        with open(file, "rb") as opened:
            return opened.read()
    except OSError:
        return b""


def _list_package(path: Path | None) -> Iterator[str]:
    """The Python files in the folder of `path`; if it is a package, also of its subfolders, then of the packages around
    it.
    """
    if path is None:
        return
    folder = os.path.dirname(os.path.abspath(path))
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


def _read_classes(document: Document) -> Mapping[str, frozenset[str]]:
    """By the name of each class of the document: the words of its bases and the kinds that its docstring states."""
    classes: dict[str, frozenset[str]] = {}
    for match in _CLASS.finditer(document.source):
        listed = match["python"] or match["others"] or b""
        bases = set(re.findall(r"\w+", listed.decode("utf-8", "replace")))
        for kind, docstring in _KINDS.items():
            if docstring.match(document.source, match.end()):
                bases.add(kind)
        name = match["name"].decode()
        classes[name] = classes.get(name, frozenset()) | bases
    return classes
