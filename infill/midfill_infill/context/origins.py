"""Names the files that the texts of a request come from, for engines of other projects. Reads no file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from midfill_infill.context.excerpts import Excerpt
from midfill_infill.context.references import Reference, find_root
from midfill_infill.text.document import Document

UNNAMED: Final = "untitled"


@dataclass(frozen=True)
class Origins:
    """Where the texts of a request come from: `name` of the repository, `path` of the document, and in `files` the path
    of each excerpt by its text. Paths are relative to the repository. `comment` starts a line comment in the document's
    language.
    """

    name: str = "project"
    path: str = UNNAMED
    comment: str = "#"
    files: Mapping[str, str] = field(default_factory=dict)


def find_origins(
    document: Document, comment: str, excerpts: Sequence[Excerpt], references: Sequence[Reference]
) -> Origins:
    """The origins of a document and its excerpts. Outside of a repository no folder's name is told, because it may be a
    user's name. A file without a usable name is called untitled, with the extension of the document's language.
    """
    root = find_root(document.path) if document.path else None
    name = Origins.name
    if root is not None and (root / ".git").exists() and root.name and root.name.isprintable():
        name = root.name
    unnamed = UNNAMED + (document.syntax.extensions[0] if document.syntax else "")
    document_path = _name_file(document.path, root) or unnamed
    files: dict[str, str] = {}
    for excerpt in excerpts:
        files[excerpt.text] = document_path
        if excerpt.source < len(references):
            files[excerpt.text] = _name_file(references[excerpt.source].path, root) or unnamed
    return Origins(name, document_path, comment, files)


def _name_file(path: Path | None, root: Path | None) -> str:
    """The path of a file relative to `root`, its name alone elsewhere; empty without a printable one."""
    if path is None:
        return ""
    name = path.name
    if root is not None and path.absolute().is_relative_to(root):
        name = path.absolute().relative_to(root).as_posix()
    return name if name.isprintable() else ""
