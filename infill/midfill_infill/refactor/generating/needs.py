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
        self._root, self._lock = root, threading.Lock()

    def find(self, document: Document, edit: Edit) -> tuple[str, ...]:
        """Sorted import statements for names that a fill uses and nothing in its document binds."""
        if document.language != "python" or (before := find_undefined(unquote(document.source))) is None:
            return ()
        after = find_undefined(unquote(document.put(Patch((edit,))).source))
        own = None if document.path is None else _module_name(document.path.as_posix())
        found = (self._resolve(name, edit.replacement, own) for name in (after or frozenset()) - before)
        return tuple(sorted(statement for statement in found if statement))

    def knows(self, name: str) -> bool:
        """True if an import statement for the name is found."""
        return self._resolve(name, f"{name}.".encode(), None) is not None

    def _resolve(self, name: str, text: bytes, own: str | None) -> str | None:
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
        if len(homes := defined[name] - {own}) == 1:
            return f"from {next(iter(homes))} import {name}"
        if has_parts and (name in modules or _is_installed(self._root, name)):
            return f"import {name}"
        return None

    @cached_property
    def _index(self) -> tuple[dict[str, Counter[str]], dict[str, set[str | None]], set[str]]:
        """For each name the statements that import it and the modules that define it; and the top-level modules."""
        imported = defaultdict[str, Counter[str]](Counter)
        defined, modules = defaultdict[str, set[str | None]](set), set[str]()
        for path in walk.list_files(find_place(self._root)):
            if not path.endswith(".py"):
                continue
            try:
                data = (self._root / path).read_bytes()[:MAX_DOCUMENT_BYTES]
            except OSError:
                continue
            for bound, statement in _statements(data):
                imported[bound][statement] += 1
            if (module := _module_name(path)) is not None:
                modules.add(module.partition(".")[0])
                for match in _DEFINED.finditer(data):
                    defined[match[1].decode()].add(module)
        return imported, defined, modules


def _statements(data: bytes) -> set[tuple[str, str]]:
    """Names that a file's top-level imports bind, with their statements; relative imports are skipped."""
    found = set()
    for match in _FROM.finditer(data):
        module = match[1].decode()
        for name, alias in _NAME.findall(re.sub(rb"#[^\n]*", b"", match[2])):
            if not module.startswith((".", "__future__")) and not alias:
                found.add((name.decode(), f"from {module} import {name.decode()}"))
    for match in _IMPORT.finditer(data):
        module, alias = match[1].decode(), (match[2] or b"").decode()
        if alias or "." not in module:
            found.add((alias or module, f"import {module}" + (f" as {alias}" if alias else "")))
    return found


def _module_name(path: str) -> str | None:
    """A file's import name; None for tests and scripts."""
    parts = PurePosixPath(path).with_suffix("").parts
    parts = parts[1:] if parts[0] == "src" else parts
    parts = parts[:-1] if parts[-1:] == ("__init__",) else parts
    if not parts or not all(part.isidentifier() for part in parts):
        return None
    is_test = parts[0] in ("tests", "test", "docs", "examples", "scripts") or parts[-1].startswith("test_")
    return None if is_test or parts[-1] in ("setup", "conftest", "__main__") else ".".join(parts)


@cache
def _public(module: str) -> frozenset[str]:
    loaded = import_module(module)
    return frozenset(getattr(loaded, "__all__", None) or (name for name in vars(loaded) if not name.startswith("_")))


def _is_installed(root: Path, name: str) -> bool:
    """True if the repository's own environment has a top-level package or module of that name."""
    folders = [folder for kind in (".venv", "venv") for folder in (root / kind / "lib").glob("python*/site-packages")]
    return any((folder / name).is_dir() or (folder / f"{name}.py").is_file() for folder in folders)
