"""Decides whether a `.h` file is C or C++: by keywords, by which grammar parses better, by sources beside it."""

import json
import os
import re
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Final

from midfill_infill.languages import c, cpp
from midfill_infill.languages.language import weigh_errors

_NO_CODE: Final = re.compile(rb'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|^[ \t]*#[^\n]*', re.DOTALL | re.MULTILINE)
_CPP_ONLY: Final = re.compile(
    rb"^\s*(?:template\s*<|namespace\b[\s\w:]*\{|class\s+\w|using\s+\w|(?:public|private|protected)\s*:)"
    rb"|\b\w+::~?\w|\boperator\s*[^\w\s;,)]|\b(?:virtual|noexcept|nullptr|constexpr|decltype|static_cast)\b",
    re.MULTILINE,
)
# Code that `extern "C"` headers hide from a C compiler.
_FOR_CPP: Final = re.compile(
    rb"^[ \t]*#[ \t]*if(?:def[ \t]+|[ \t]+defined\W*)__cplusplus.*?^[ \t]*#[ \t]*(?:else|endif)",
    re.DOTALL | re.MULTILINE,
)
# A few extra errors prove nothing: macros cause some in both.
_FEW_BYTES: Final = 20
HEADERS: Final = (".h", ".H", ".hh", ".hpp", ".hxx")
_SOURCES: Final = {
    extension: language.id
    for language in (c.LANGUAGE, cpp.LANGUAGE)
    for extension in language.extensions
    if extension not in HEADERS
}
_DATABASE: Final = "compile_commands.json"  # written by CMake and others for Clang's tools
_MAX_DATABASE_BYTES: Final = 16 * 1024 * 1024


def settle_header(source: bytes, path: Path | None = None) -> str:
    """`c` or `cpp`. C++ keywords decide unless the other grammar leaves far fewer errors; then neighboring sources."""
    shared = _FOR_CPP.sub(b"", source)
    is_cpp = _CPP_ONLY.search(_NO_CODE.sub(b" ", shared)) is not None
    likely, other = (cpp.LANGUAGE, c.LANGUAGE) if is_cpp else (c.LANGUAGE, cpp.LANGUAGE)
    errors = weigh_errors(likely.parse(source))
    if errors > _FEW_BYTES and errors > 2 * weigh_errors(other.parse(source)) + _FEW_BYTES:
        return other.id
    if not is_cpp and path is not None and _has_cpp_neighbours(path):
        return cpp.LANGUAGE.id
    return likely.id


def _has_cpp_neighbours(path: Path) -> bool:
    """True if the source of the same name, otherwise every source beside it or in the build's database, is C++."""
    try:
        names = [Path(entry.name) for entry in os.scandir(path.parent)]
    except OSError:
        return False
    kinds = _kinds_beside(path, names) or _kinds_beside(path, _find_compiled(path))
    return kinds == {cpp.LANGUAGE.id}


def _kinds_beside(path: Path, names: Iterable[Path]) -> set[str]:
    """The languages of the sources that have the stem of `path`; of all sources if none has."""
    kinds = [(name.stem, _SOURCES[name.suffix]) for name in names if name.suffix in _SOURCES]
    return {kind for stem, kind in kinds if stem == path.stem} or {kind for _, kind in kinds}


def _find_compiled(path: Path) -> tuple[Path, ...]:
    """Sources in the nearest compilation database, no further up than the repository's root."""
    for folder in path.absolute().parents:
        for database in (folder / _DATABASE, folder / "build" / _DATABASE):
            try:
                facts = database.stat()
            except OSError:
                continue
            if facts.st_size <= _MAX_DATABASE_BYTES and (names := _read_database(database, facts.st_mtime_ns)):
                return names
        if (folder / ".git").exists():
            break
    return ()


@lru_cache(maxsize=8)
def _read_database(path: Path, _written_ns: int) -> tuple[Path, ...]:
    try:
        entries = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return ()
    if not isinstance(entries, list):
        return ()
    names = (entry.get("file") for entry in entries if isinstance(entry, dict))
    return tuple({Path(name) for name in names if isinstance(name, str)})
