"""Says whether a `.h` is C or C++: by what is in it, by what parses better, by its neighbours. Knows no function."""

import os
import re
from pathlib import Path
from typing import Final

from midfill_infill.languages import c, cpp
from midfill_infill.languages.language import Language, weigh_errors

_NO_CODE: Final = re.compile(rb'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|^[ \t]*#[^\n]*', re.DOTALL | re.MULTILINE)
_CPP_ONLY: Final = re.compile(
    rb"^\s*(?:template\s*<|namespace\b[\s\w:]*\{|class\s+\w|using\s+\w|(?:public|private|protected)\s*:)"
    rb"|\b\w+::~?\w|\boperator\s*[^\w\s;,)]|\b(?:virtual|noexcept|nullptr|constexpr|decltype|static_cast)\b",
    re.MULTILINE,
)
# What `extern "C"` headers keep from a C compiler.
_FOR_CPP: Final = re.compile(
    rb"^[ \t]*#[ \t]*if(?:def[ \t]+|[ \t]+defined\W*)__cplusplus.*?^[ \t]*#[ \t]*(?:else|endif)",
    re.DOTALL | re.MULTILINE,
)
# A few errors more are no proof: macros leave some in both.
_FEW_BYTES: Final = 20


def settle_header(source: bytes, path: Path | None = None) -> str:
    """`c` or `cpp`. Words of C++ alone decide, unless the other language leaves far fewer errors; then neighbours."""
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
    """Whether the source of the same name, or else every source of the folder, is C++."""
    try:
        names = [Path(entry.name) for entry in os.scandir(path.parent)]
    except OSError:
        return False
    for stems in ({path.stem}, {name.stem for name in names}):
        kinds = {_kind(name) for name in names if name.stem in stems} - {None}
        if kinds:
            return kinds == {cpp.LANGUAGE.id}
    return False


def _kind(name: Path) -> str | None:
    def is_source(language: Language) -> bool:
        return name.suffix in language.extensions and name.suffix not in HEADERS

    return next((language.id for language in (c.LANGUAGE, cpp.LANGUAGE) if is_source(language)), None)


HEADERS: Final = (".h", ".H", ".hh", ".hpp", ".hxx")
