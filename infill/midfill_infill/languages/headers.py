"""Decides whether a `.h` file is C or C++: by keywords, by which grammar parses better, by sources beside it."""

import json
import os
import re
import stat
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Final

from midfill_infill.languages import c, cpp
from midfill_infill.languages.language import weigh_errors

_NO_CODE: Final = re.compile(rb'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|^[ \t]*#[^\n]*', re.DOTALL | re.MULTILINE)
_CPP_ONLY: Final = re.compile(
    rb"^[^\S\n]*(?:template\s*<|namespace\b[\s\w:]*\{|class\s+\w|using\s+\w|(?:public|private|protected)\s*:)"
    rb"|\b\w+::~?\w|\boperator\s*[^\w\s;,)]|\b(?:virtual|noexcept|decltype|static_cast)\b",
    re.MULTILINE,
)
# Words of C++ that C has since C23, and words that only C has.
_SHARED: Final = re.compile(rb"\b(?:nullptr|constexpr)\b")
_C_ONLY: Final = re.compile(rb"\b(?:restrict|typeof|_(?:Generic|Atomic|Bool|BitInt|Static_assert|Noreturn))\b")
# Code for C++ alone in a header for both languages, such as its `extern "C" {`.
_FOR_CPP: Final = re.compile(
    rb"^[ \t]*#[ \t]*if(?:def[ \t]+|[ \t]+defined\W*)__cplusplus.*?^[ \t]*#[ \t]*(?:else|endif)",
    re.DOTALL | re.MULTILINE,
)
# So few bytes of errors prove nothing, because macros cause some in both languages.
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


def choose_header_language(source: bytes, path: Path | None = None) -> str:
    """`c` or `cpp`: by C++ keywords, unless the other grammar leaves far fewer errors; then by nearby sources. If these
    do not tell, a word that C++ had long before C is from C++, unless words of C stand beside it.
    """
    code = _NO_CODE.sub(b" ", _FOR_CPP.sub(b"", source))
    is_cpp = _CPP_ONLY.search(code) is not None
    likely, other = (cpp.LANGUAGE, c.LANGUAGE) if is_cpp else (c.LANGUAGE, cpp.LANGUAGE)
    errors = weigh_errors(likely.parse(source))
    if errors > _FEW_BYTES and errors > 2 * weigh_errors(other.parse(source)) + _FEW_BYTES:
        return other.id
    if is_cpp:
        return cpp.LANGUAGE.id
    near = set() if path is None else _find_near(path)
    if len(near) == 1:
        return near.pop()
    is_cpp = _SHARED.search(code) is not None and _C_ONLY.search(code) is None
    return cpp.LANGUAGE.id if is_cpp else c.LANGUAGE.id


def _find_near(header: Path) -> set[str]:
    """The languages of a header's sources: those beside it, or if there are none, those in the build's database."""
    try:
        names = [Path(entry.name) for entry in os.scandir(header.parent)]
    except OSError:
        return set()
    return _find_languages(header, names) or _find_languages(header, _find_compiled(header))


def _find_languages(header: Path, names: Iterable[Path]) -> set[str]:
    """The languages of the sources that have the stem of the header; of all sources if none has."""
    sources = [(name.stem, _SOURCES[name.suffix]) for name in names if name.suffix in _SOURCES]
    return {language for stem, language in sources if stem == header.stem} or {language for _, language in sources}


def _find_compiled(path: Path) -> tuple[Path, ...]:
    """The sources in the nearest compilation database, no further up than the repository's root."""
    for folder in path.absolute().parents:
        for database in (folder / _DATABASE, folder / "build" / _DATABASE):
            try:
                status = database.stat()
            except OSError:
                continue
            if stat.S_ISREG(status.st_mode) and status.st_size <= _MAX_DATABASE_BYTES:
                if names := _read_database(database, status.st_ctime_ns):
                    return names
        if (folder / ".git").exists():
            break
    return ()


@lru_cache(maxsize=8)
def _read_database(path: Path, _changed_ns: int) -> tuple[Path, ...]:
    """The sources that a compilation database lists. Because of the time in the key, a changed file is read again."""
    try:
        entries = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return ()
    if not isinstance(entries, list):
        return ()
    names = (entry.get("file") for entry in entries if isinstance(entry, dict))
    return tuple({Path(name) for name in names if isinstance(name, str)})
