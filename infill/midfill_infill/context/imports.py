"""Finds the files that a document imports, by their names. Knows the import syntax of some languages; reads no file."""

import os
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

from midfill_infill.syntax.outline import outline
from midfill_infill.text.document import Document

MAX_IMPORTS: Final = 64

_PYTHON: Final = re.compile(
    r"^\s*(?:from\s+(?P<dots>\.*)(?P<module>[\w.]*)\s+import\s+(?P<names>.*)|import\s+(?P<modules>.*))", re.M
)
_SCRIPT: Final = re.compile(r"""(?:\bfrom|\bimport|\brequire\s*\()\s*["'](?P<place>\.[^"'\n]*)["']""")
_INCLUDE: Final = re.compile(r'#\s*include\s*"(?P<place>[^"\n]+)"')
_SCRIPT_ENDINGS: Final = (".ts", ".tsx", ".js", ".jsx", ".mjs", ".cjs", ".mts", ".d.ts", ".vue")


def find_imports(document: Document, path: Path, root: Path) -> list[Path]:
    """Existing files that `document`, which is stored at `path`, imports; at most 64, in import order. Modules of
    Python are searched in the folders from that of `path` up to `root`, then in the `src` folders of these.
    """
    find = _FINDERS.get(document.language or "")
    if find is None:
        return []
    statements = [document.source[start:end] for start, end in outline(document).imports]
    text = b"\n".join(statements).decode("utf-8", "replace")
    files = dict.fromkeys(find(text, path.parent, root))
    return list(files)[:MAX_IMPORTS]


def _find_python(text: str, folder: Path, root: Path) -> Iterator[Path]:
    """Yields the files of the modules that the import statements in `text` name, for a file in `folder`."""
    above = [folder, *folder.parents]
    bases = [base for base in above if base.is_relative_to(root)]
    bases += [base / "src" for base in bases if (base / "src").is_dir()]
    code = re.sub(r"#.*|\\\r?\n", " ", text)  # without comments, and continued lines as one
    joined = re.sub(r"\(([^)]*)\)", lambda names: " ".join(names[1].split()), code)  # names in brackets on one line
    for match in _PYTHON.finditer(joined):
        for name in _split_names(match["modules"] or ""):
            yield from _find_module(name, bases)
        if match["names"] is None:
            continue
        num_dots = len(match["dots"])
        from_bases = above[num_dots - 1 : num_dots] if num_dots else bases
        for name in [*_split_names(match["names"]), ""]:  # the imported name may be a module itself
            yield from _find_module(f"{match['module']}.{name}".strip("."), from_bases)


def _split_names(names: str) -> list[str]:
    """The names in a list of imports, each without the alias behind `as`."""
    return [name.split(" as ")[0].strip() for name in names.split(",")]


def _find_module(name: str, bases: list[Path]) -> Iterator[Path]:
    """Yields the file of a module below the first of the folders `bases` that has one; nothing if none has."""
    parts = name.split(".")
    if not all(part.isidentifier() for part in parts):
        return
    for base in bases:
        stem = os.path.join(base, *parts)  # ten times as fast as Path for hundreds of files
        for file in (f"{stem}.py", f"{stem}/__init__.py"):
            if os.path.isfile(file):
                yield Path(file)
                return


def _find_relative(
    pattern: re.Pattern[str], endings: tuple[str, ...], text: str, folder: Path, root: Path
) -> Iterator[Path]:
    """Yields the files that the matches of `pattern` name relative to `folder`: each name itself, otherwise with one of
    the `endings`, otherwise an index file in a folder of that name. `root` is not used.
    """
    for match in pattern.finditer(text):
        named = Path(os.path.normpath(folder / match["place"]))
        stem = named.with_suffix("") if named.suffix in endings else named
        candidates = [named]
        for ending in endings:
            candidates.append(Path(f"{stem}{ending}"))
        for ending in endings:
            candidates.append(named / f"index{ending}")
        for candidate in candidates:
            if os.path.isfile(candidate):  # `Path` would raise an error for a name that is too long
                yield candidate
                break


_find_script = partial(_find_relative, _SCRIPT, _SCRIPT_ENDINGS)
_find_include = partial(_find_relative, _INCLUDE, ())
# By language: from the text of import statements, the file's folder and the root to the imported files.
_FINDERS: Final[dict[str, Callable[[str, Path, Path], Iterator[Path]]]] = {
    "python": _find_python,
    **dict.fromkeys(("javascript", "typescript", "tsx", "vue", "svelte"), _find_script),
    **dict.fromkeys(("c", "cpp"), _find_include),
}
