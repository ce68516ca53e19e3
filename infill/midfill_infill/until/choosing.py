"""Finds the tests that reach a function, lines of them that call it, and commands that run them. Runs nothing."""

import json
import os
import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Final

from midfill_infill.context.imports import find_imports
from midfill_infill.context.neighbors import is_test
from midfill_infill.context.references import read_text
from midfill_infill.errors import MidfillError
from midfill_infill.languages import find_language
from midfill_infill.repository.roots import Repository, find_repository
from midfill_infill.repository.walk import list_files
from midfill_infill.text.document import Document
from midfill_infill.text.encoding import is_decoded
from midfill_infill.text.spans import Hole

PLACEHOLDER: Final = "{tests}"  # in a command, for the paths of the tests
GO_TEST: Final = "_test.go"  # what its file names end with
MAX_FILES: Final = 3000  # files whose imports are followed
MAX_EXAMPLES: Final = 6  # lines of tests that are shown to the model for a hole
_SHELL: Final = re.compile(r"[|&;<>`$()]")  # in a command that is more than one command
_ASSERTION: Final = re.compile(r"\b(assert|expect|assert_eq|assertEqual|require|should)\b|self\.assert|t\.Error|if got")


class ReachingTests:
    """Finds which test files of a tree reach a source file by their imports. Each file is read once."""

    def __init__(self, repository: Repository) -> None:
        self._root = repository.root
        files = [repository.root / name for name in list_files(repository)]
        self._tests = [path for path in files if is_test(path)]
        self._conftests = {path for path in files if path.name == "conftest.py"}
        self._find_reached = cache(self._follow_imports)
        self._find_imports = cache(self._read_imports)

    def find(self, path: Path, name: str | None = None) -> list[Path]:
        """The test files that reach `path`, the fewest that fit: only those with the name of the function `name`, if
        there are such; otherwise only those that import `path` directly; otherwise all.
        """
        reaching = [test for test in self._tests if path in self._find_reached(test) and find_language(test)]
        if name:
            word = re.compile(rf"\b{re.escape(name.rpartition('.')[2])}\b")
            naming = [test for test in reaching if word.search(_read(test))]
            if naming:
                return naming
        direct = [test for test in reaching if path in self._find_imports(test)]
        return direct or reaching

    def find_files(self, tests: Iterable[Path]) -> set[Path]:
        """The files that these test files import, directly or through other files, and the tests themselves."""
        return set().union(*(self._find_reached(test) for test in tests))

    def _follow_imports(self, test: Path) -> frozenset[Path]:
        """The test itself and the files that it imports, directly or through other files."""
        reached = {test}
        pending = [test]
        while pending and len(reached) < MAX_FILES:
            for imported in self._find_imports(pending.pop()):
                if imported not in reached:
                    reached.add(imported)
                    pending.append(imported)
        return frozenset(reached)

    def _read_imports(self, path: Path) -> tuple[Path, ...]:
        """The files that a file imports, and for a test the `conftest.py` files around it; none if it is no text. For a
        test of Go the other files of its folder, which are its package's.
        """
        if path.name.endswith(GO_TEST):
            return tuple(file for file in sorted(path.parent.glob("*.go")) if not is_test(file))
        try:
            imports = find_imports(Document.read(path), path, self._root)
        except MidfillError:
            return ()
        if not is_test(path):
            return tuple(imports)
        return (*imports, *(self._conftests & {folder / "conftest.py" for folder in path.parents}))


def _read(path: Path) -> str:
    """The text of a file; empty if the file cannot be read as text."""
    return read_text(path) or ""


def add_tests(line: str, tests: Sequence[str], folder: Path) -> str:
    """The command `line` for these test files, to be run in `folder`: they replace `{tests}`, or are added to a pytest
    that names no files. Go runs packages: a test of Go stands there as its folder.
    """
    joined_tests = shlex.join(dict.fromkeys(map(_name_package, tests)))
    if PLACEHOLDER in line:
        return line.replace(PLACEHOLDER, joined_tests)
    return f"{line} {joined_tests}" if tests and takes_tests(line, folder) else line


def _name_package(test: str) -> str:
    """A test's file, for Go its folder, as `go test` takes it."""
    return f"./{os.path.dirname(test)}".rstrip("/") if test.endswith(GO_TEST) else test


def takes_tests(line: str, folder: Path) -> bool:
    """True if `add_tests` adds test files to a command."""
    if PLACEHOLDER in line or _SHELL.search(line):
        return PLACEHOLDER in line
    words = line.split()
    is_pytest = [os.path.basename(word) in ("pytest", "py.test") for word in words]
    if True not in is_pytest:
        return False
    arguments = [word for word in words[is_pytest.index(True) + 1 :] if not word.startswith("-")]
    return not any("/" in word or word.endswith(".py") or (folder / word).exists() for word in arguments)


def place_tests(line: str, path: Path, functions: Sequence[str | None], folder: Path) -> str:
    """The command `line` with `{tests}` replaced by the tests that reach these functions of the file `path`, relative
    to `folder`, where it runs. Raises MidfillError `bad_request` if no test does.
    """
    if PLACEHOLDER not in line:
        return line
    file = Path(os.path.realpath(path))
    real_folder = Path(os.path.realpath(folder))
    reaching_tests = ReachingTests(find_repository(real_folder if file.is_relative_to(real_folder) else file.parent))
    tests: dict[Path, None] = {}
    for name in functions:
        tests |= dict.fromkeys(reaching_tests.find(file, name))
    if not tests:
        raise MidfillError("bad_request", f"no test imports {file.name}", "name the tests in the command")
    return add_tests(line, [os.path.relpath(test, real_folder) for test in tests], real_folder)


def with_examples(hole: Hole, tests: Sequence[Path]) -> Hole:
    """The hole with lines of `tests` that call its function and check the result, as a note for the model."""
    name = (hole.name or "").rpartition(".")[2]
    if not name or not hole.is_body:
        return hole
    examples: dict[str, None] = {}
    for test in tests:
        for line in map(str.strip, _read(test).splitlines()):
            if f"{name}(" in line and _ASSERTION.search(line) and len(line) <= 100 and is_decoded(line):
                examples[line] = None
    notes = list(examples)[:MAX_EXAMPLES]
    if hole.note:
        notes.insert(0, hole.note)
    return replace(hole, note="\n".join(notes))


def guess_commands(path: Path, folder: Path) -> list[str]:
    """Commands that probably test a file, the likeliest first, to be run in `folder`."""
    file = Path(os.path.realpath(path))
    root = Path(os.path.realpath(folder))
    commands: list[str] = []
    if file.suffix == ".py":
        pytest = "pytest -q"
        for name in ("venv", ".venv"):
            if (root / name / "bin/pytest").exists():
                pytest = f"{name}/bin/pytest -q"
        if ReachingTests(find_repository(root)).find(file):
            commands += [f"{pytest} {PLACEHOLDER}", pytest]
        elif "pytest" in _read(root / "pyproject.toml"):
            commands.append(pytest)
    npm_command = _find_npm_command(root / "package.json")
    if npm_command is not None:
        commands.append(npm_command)
    if (root / "go.mod").exists() and file.suffix == ".go":
        package = os.path.relpath(file.parent, root)
        commands.append("go test ./..." if package == "." else f"go test ./{package}")
    if (root / "Cargo.toml").exists():
        commands.append("cargo test -q")
    if re.search(r"(?m)^test\s*:", _read(root / "Makefile")):
        commands.append("make test")
    return list(dict.fromkeys(commands))


def _find_npm_command(path: Path) -> str | None:
    """The command that runs the test script of a `package.json`, by its package manager; None if it has no script."""
    try:
        script = json.loads(_read(path) or "{}").get("scripts", {}).get("test", "")
    except (ValueError, AttributeError):
        return None
    if not isinstance(script, str) or not script or "no test specified" in script:
        return None
    command_of = {"pnpm-lock.yaml": "pnpm test", "yarn.lock": "yarn test", "bun.lockb": "bun run test"}
    for lock_file, command in command_of.items():
        if (path.parent / lock_file).exists():
            return command
    return "npm test"
