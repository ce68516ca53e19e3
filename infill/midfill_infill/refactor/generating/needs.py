"""Finds the imports that a Python fill needs: of modules in the repository, the standard library, or its environment.

Reads files below the root; executes none of them.
"""

import re
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Collection
from functools import cache, cached_property
from importlib import import_module
from itertools import takewhile
from pathlib import Path, PurePath
from typing import Final

from midfill_infill.refactor.writing.imports import find_undefined
from midfill_infill.refactor.writing.quoted import unquote
from midfill_infill.repository import walk
from midfill_infill.repository.roots import find_repository
from midfill_infill.text.document import MAX_DOCUMENT_BYTES, Document
from midfill_infill.text.spans import Edit, Patch

# Standard modules whose public names are so well known that a fill may use them without the module; the first one wins.
_FAMILIAR_MODULES: Final = (
    "collections.abc", "typing", "pathlib", "dataclasses", "functools", "itertools", "collections", "contextlib",
    "enum", "datetime", "decimal", "fractions", "abc", "operator", "types", "textwrap", "tempfile",
)  # fmt: skip
_FROM_IMPORT: Final = re.compile(rb"^from[ \t]+([\w.]+)[ \t]+import[ \t]+(\([^)]*\)|[^\n#;(]+)", re.MULTILINE)
_IMPORT: Final = re.compile(rb"^import[ \t]+([\w.]+)(?:[ \t]+as[ \t]+(\w+))?[ \t]*(?:#|\r?$)", re.MULTILINE)
_DEFINITION: Final = re.compile(rb"^(?:async[ \t]+def|def|class)[ \t]+([A-Za-z]\w*)", re.MULTILINE)
_IMPORTED_NAME: Final = re.compile(rb"(\w+)(?:[ \t]+as[ \t]+(\w+))?")


class Resolver:
    """Finds the import statement that binds a name. Thread-safe. Reads the repository's Python files at first use."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._lock = threading.Lock()

    def find(self, document: Document, edit: Edit) -> tuple[str, ...]:
        """The sorted import statements for the names that a fill uses and that nothing in its document binds."""
        if document.language != "python":
            return ()
        undefined_before = find_undefined(unquote(document.source))
        if undefined_before is None:
            return ()
        undefined = find_undefined(unquote(document.with_patch(Patch((edit,))).source)) or frozenset()
        assert document.path is not None, "a planned file has a path"
        statements = [self._resolve(name, edit.replacement, document.path) for name in undefined - undefined_before]
        return tuple(sorted(filter(None, statements)))

    def _resolve(self, name: str, text: bytes, path: Path) -> str | None:
        """The statement that imports a name into the file at `path`; None if none is known. A dot after the name in
        `text`, the fill, tells that the name may be a module.
        """
        with self._lock:
            imports_of, modules_of, packages, top_modules = self._index
        own_module = _module_name(path, packages)
        for statement, _ in sorted(imports_of[name].items(), key=lambda item: (-item[1], item[0])):  # most used first
            if statement.split()[1] != own_module:
                return statement
        has_parts = re.search(rb"\b%b\s*\." % name.encode(), text) is not None
        if has_parts and name in sys.stdlib_module_names:
            return f"import {name}"
        for module in _FAMILIAR_MODULES:
            if name in _list_public_names(module):
                return f"from {module} import {name}"
        defining_modules = modules_of[name] - {own_module}
        if len(defining_modules) == 1:
            return f"from {defining_modules.pop()} import {name}"
        if has_parts and (name in top_modules or _is_installed(self._root, name)):
            return f"import {name}"
        return None

    @cached_property
    def _index(self) -> tuple[dict[str, Counter[str]], dict[str, set[str | None]], set[PurePath], set[str]]:
        """For each name its imports with the number of files, and the modules that define it; the folders of packages;
        the top-level modules.
        """
        paths = [PurePath(name) for name in walk.list_files(find_repository(self._root)) if name.endswith(".py")]
        packages = {path.parent for path in paths if path.name == "__init__.py" and len(path.parts) > 1}
        imports_of = defaultdict[str, Counter[str]](Counter)
        modules_of = defaultdict[str, set[str | None]](set)
        top_modules: set[str] = set()
        for path in paths:
            try:
                data = (self._root / path).read_bytes()[:MAX_DOCUMENT_BYTES]
            except OSError:
                continue
            for bound_name, statement in _list_imports(data):
                imports_of[bound_name][statement] += 1
            module = _module_name(path, packages)
            if module is not None:
                top_modules.add(module.partition(".")[0])
                for match in _DEFINITION.finditer(data):
                    modules_of[match[1].decode()].add(module)
        return imports_of, modules_of, packages, top_modules


def _list_imports(data: bytes) -> set[tuple[str, str]]:
    """The names that a file's top-level imports bind, each with its statement. Leaves out relative imports, `import
    a.b` and `from a import b as c`.
    """
    statements: set[tuple[str, str]] = set()
    for match in _FROM_IMPORT.finditer(data):
        module = match[1].decode()
        if module.startswith((".", "__future__")):
            continue
        for name, alias in _IMPORTED_NAME.findall(re.sub(rb"#[^\n]*", b"", match[2])):
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


def _module_name(path: PurePath, packages: Collection[PurePath]) -> str | None:
    """The dotted name by which a file is imported, from the outermost of the `packages` around it; None for tests,
    scripts and files that cannot be imported.
    """
    parts = list(path.with_suffix("").parts)
    num_packages = len([*takewhile(packages.__contains__, path.parents)])
    if num_packages:
        parts = parts[-num_packages - 1 :]
    elif parts[0] == "src":
        del parts[0]
    if parts[-1:] == ["__init__"]:
        del parts[-1]
    if not parts or not all(part.isidentifier() for part in parts):
        return None
    is_script = parts[-1].startswith("test_") or parts[-1] in ("setup", "conftest", "__main__")
    if is_script or parts[0] in ("tests", "test", "docs", "examples", "scripts"):
        return None
    return ".".join(parts)


@cache
def _list_public_names(module: str) -> frozenset[str]:
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
