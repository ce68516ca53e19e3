"""Finds files that are related to a file by name: its tests, the tested file, files in its folder. Reads no file."""

import os
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final

from midfill_infill.languages import find_language

MAX_NEIGHBORS: Final = 32
MAX_ENTRIES: Final = 4096  # of a folder that are read

_TEST_NAME: Final = re.compile(r"^test[_-]|[._-](?:tests?|spec)$|(?:Tests?|Spec)$")
_TEST_NAME_FORMATS: Final = ("test_{}", "{}_test", "{}.test", "{}.spec", "{}Test")
_TEST_FOLDERS: Final = ("tests", "test", "__tests__")
_WORD: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|\d+")


def is_test(path: Path) -> bool:
    """True if a file is named as a test."""
    return _TEST_NAME.search(path.stem) is not None


def find_neighbors(path: Path, root: Path) -> list[Path]:
    """At most 32 files related to `path`: its tests or the tested file, then files of its language in its folder, the
    most similar names first. Tests are searched within `root`.
    """
    neighbors = dict.fromkeys([*_find_partners(path, root), *_find_beside(path)])
    neighbors.pop(path, None)
    return list(neighbors)[:MAX_NEIGHBORS]


def _find_partners(path: Path, root: Path) -> Iterator[Path]:
    """Yields the tests of a file, or the file that a test tests. Searches its folder, the one above and `root`, and the
    folders of tests and sources in these.
    """
    tested_name = _TEST_NAME.sub("", path.stem)
    names = [tested_name]
    if tested_name == path.stem:  # it is no test
        names = [name_format.format(tested_name) for name_format in _TEST_NAME_FORMATS]
    bases = [str(base) for base in (path.parent, path.parent.parent, root) if base.is_relative_to(root)]
    folders = list(bases)
    for base in bases:
        for folder_name in (*_TEST_FOLDERS, "src"):
            folders.append(os.path.join(base, folder_name))
    for folder in filter(os.path.isdir, dict.fromkeys(folders)):  # 20 times as fast as Path
        for name in names:
            file = os.path.join(folder, f"{name}{path.suffix}")
            if os.path.isfile(file):
                yield Path(file)


def _find_beside(path: Path) -> list[Path]:
    """The files of the same language in the folder of `path`, the most similar names first."""
    try:
        with os.scandir(path.parent) as entries:
            names = [entry.name for entry in islice(entries, MAX_ENTRIES) if entry.name != path.name]
    except OSError:
        return []
    family = _family(path)
    words = _words(path)
    relatives = [path.parent / name for name in sorted(names) if _family(Path(name)) == family]

    def rate(other: Path) -> float:
        """The share of common words in both names."""
        other_words = _words(other)
        return len(words & other_words) / (1 + len(words | other_words))

    return sorted(relatives, key=rate, reverse=True)


def _family(path: Path) -> str:
    """The language of a file by its name, the file extension if unknown; JavaScript and TypeScript count as one."""
    language = find_language(path) or path.suffix
    return "typescript" if language in ("javascript", "tsx") else language


def _words(path: Path) -> set[str]:
    """The words in a file's name, in lower case."""
    return {word.lower() for word in _WORD.findall(path.stem)}
