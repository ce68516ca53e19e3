"""Finds imports that a Python fill needs and that resolve: in the repository, the standard library, or its environment.

Reads files below the root, executes none of them.
"""

import re
import sys
import threading
from collections import Counter, defaultdict
from functools import cache, cached_property
from importlib import import_module
from pathlib import Path, PurePosixPath
from typing import Final

from midfill_infill.refactor.writing.imports import find_undefined
from midfill_infill.refactor.writing.quoted import unquote
from midfill_infill.repository import walk
from midfill_infill.repository.places import find_place
from midfill_infill.text.document import MAX_DOCUMENT_BYTES, Document
from midfill_infill.text.spans import Edit, Patch

# Modules whose public names are recognized unqualified; the first module wins.
_KNOWN: Final = (
    "collections.abc", "typing", "pathlib", "dataclasses", "functools", "itertools", "collections", "contextlib",
    "enum", "datetime", "decimal", "fractions", "abc", "operator", "types", "textwrap", "tempfile",
)  # fmt: skip
_FROM: Final = re.compile(rb"^from[ \t]+([\w.]+)[ \t]+import[ \t]+(\([^)]*\)|[^\n#;(]+)", re.MULTILINE)
_IMPORT: Final = re.compile(rb"^import[ \t]+([\w.]+)(?:[ \t]+as[ \t]+(\w+))?[ \t]*(?:#|\r?$)", re.MULTILINE)
_DEFINED: Final = re.compile(rb"^(?:async[ \t]+def|def|class)[ \t]+([A-Za-z]\w*)", re.MULTILINE)
_NAME: Final = re.compile(rb"(\w+)(?:[ \t]+as[ \t]+(\w+))?")


class Resolver:
    """Finds the import statement that binds a name. Thread-safe. Reads the repository at first use."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._lock = threading.Lock()

    def find(self, document: Document, edit: Edit) -> tuple[str, ...]:
        """Sorted import statements for names that a fill uses and nothing in its document binds."""
        if document.language != "python":
            return ()
        before = find_undefined(unquote(document.source))
        if before is None:
            return ()
        after = find_undefined(unquote(document.put(Patch((edit,))).source)) or frozenset()
        own = None
        if document.path is not None:
            own = _module_name(document.path.as_posix())
        statements = (self._resolve(name, edit.replacement, own) for name in after - before)
        return tuple(sorted(filter(None, statements)))

    def knows(self, name: str) -> bool:
        """True if an import statement for the name is found."""
        return self._resolve(name, f"{name}.".encode(), None) is not None

    def _resolve(self, name: str, text: bytes, own: str | None) -> str | None:
        """The statement that imports a name into the module `own`; None if none is known."""
        with self._lock:
            imported, defined, modules = self._index
        for statement, _ in sorted(imported[name].items(), key=lambda pair: (-pair[1], pair[0])):
            if statement.split()[1] != own:
                return statement
        has_parts = re.search(rb"\b%b\s*\." % name.encode(), text) is not None
        if has_parts and name in sys.stdlib_module_names:
            return f"import {name}"
        for module in _KNOWN:
            if name in _public(module):
                return f"from {module} import {name}"
        homes = defined[name] - {own}
        if len(homes) == 1:
            return f"from {homes.pop()} import {name}"
        if has_parts and (name in modules or _is_installed(self._root, name)):
            return f"import {name}"
        return None

    @cached_property
    def _index(self) -> tuple[dict[str, Counter[str]], dict[str, set[str | None]], set[str]]:
        """For each name the statements that import it and the modules that define it; and the top-level modules."""
        imported = defaultdict[str, Counter[str]](Counter)
        defined = defaultdict[str, set[str | None]](set)
        modules: set[str] = set()
        for path in walk.list_files(find_place(self._root)):
            if not path.endswith(".py"):
                continue
            try:
                data = (self._root / path).read_bytes()[:MAX_DOCUMENT_BYTES]
            except OSError:
                continue
            for bound, statement in _statements(data):
                imported[bound][statement] += 1
            module = _module_name(path)
            if module is not None:
                modules.add(module.partition(".")[0])
                for match in _DEFINED.finditer(data):
                    defined[match[1].decode()].add(module)
        return imported, defined, modules


def _statements(data: bytes) -> set[tuple[str, str]]:
    """Names that a file's top-level imports bind, with their statements; relative imports are skipped."""
    statements: set[tuple[str, str]] = set()
    for match in _FROM.finditer(data):
        module = match[1].decode()
        if module.startswith((".", "__future__")):
            continue
        for name, alias in _NAME.findall(re.sub(rb"#[^\n]*", b"", match[2])):
            if not alias:
                statements.add((name.decode(), f"from {module} import {name.decode()}"))
    for match in _IMPORT.finditer(data):
        module = match[1].decode()
        alias = (match[2] or b"").decode()
        if alias:
            statements.add((alias, f"import {module} as {alias}"))
        elif "." not in module:
            statements.add((module, f"import {module}"))
    return statements


def _module_name(path: str) -> str | None:
    """A file's import name; None for tests and scripts."""
    parts = list(PurePosixPath(path).with_suffix("").parts)
    if parts[0] == "src":
        del parts[0]
    if parts[-1:] == ["__init__"]:
        del parts[-1]
    if not parts or not all(part.isidentifier() for part in parts):
        return None
    if parts[0] in ("tests", "test", "docs", "examples", "scripts") or parts[-1].startswith("test_"):
        return None
    if parts[-1] in ("setup", "conftest", "__main__"):
        return None
    return ".".join(parts)


@cache
def _public(module: str) -> frozenset[str]:
    loaded = import_module(module)
    names = getattr(loaded, "__all__", None)
    if not names:
        names = [name for name in vars(loaded) if not name.startswith("_")]
    return frozenset(names)


def _is_installed(root: Path, name: str) -> bool:
    """True if the repository's own environment has a top-level package or module of that name."""
    for kind in (".venv", "venv"):
        for folder in (root / kind / "lib").glob("python*/site-packages"):
            if (folder / name).is_dir() or (folder / f"{name}.py").is_file():
                return True
    return False
