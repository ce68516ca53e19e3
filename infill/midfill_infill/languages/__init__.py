"""Registers the languages, each with a module and its queries. Knows their names, nothing of their syntax."""

import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from midfill_infill.errors import MidfillError
from midfill_infill.languages import c, cpp, go, java, javascript, python, rust, svelte, tsx, typescript, vue
from midfill_infill.languages.headers import choose_header_language
from midfill_infill.languages.language import Language

__all__ = ["REGISTRY", "Language", "find_language", "get_language"]

_MODULES: Final = (python, javascript, typescript, tsx, go, rust, java, c, cpp, vue, svelte)

REGISTRY: Final[Mapping[str, Language]] = MappingProxyType({module.LANGUAGE.id: module.LANGUAGE for module in _MODULES})


def get_language(language_id: str) -> Language:
    """The language of an id. Raises MidfillError `unknown_language`, which lists the known ids."""
    if language_id not in REGISTRY:
        known = ", ".join(REGISTRY)
        raise MidfillError("unknown_language", f"there is no language {language_id!r}", f"known are {known}")
    return REGISTRY[language_id]


_BY_EXTENSION: Final = {extension: language.id for language in REGISTRY.values() for extension in language.extensions}
_SHEBANG: Final = re.compile(
    rb"#![^\n]*[/ ](?:(?P<python>python[\d.]*|pypy[\d.]*)|(?P<node>node(?:js)?)|deno|bun|ts-node|tsx)(?:[ \r\n]|$)"
)


def find_language(path: Path, source: bytes | None = None) -> str | None:
    """The id of a file's language by its extension, or None. `.H` and `.C` are C++, `.c` is C. If `source` is given, it
    decides whether `.h` is C or C++, and its `#!` line tells the language of a file without an extension.
    """
    if path.suffix == ".h" and source is not None:
        return choose_header_language(source, path)
    shebang = None if path.suffix or source is None else _SHEBANG.match(source)
    if shebang is not None:
        return "python" if shebang["python"] else "javascript" if shebang["node"] else "typescript"
    return _BY_EXTENSION.get(path.suffix) or _BY_EXTENSION.get(path.suffix.lower())
