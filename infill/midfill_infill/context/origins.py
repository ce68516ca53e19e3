"""Names the files of a request for engines of other projects. Names are relative to the repository; reads no file."""

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
    """Where the texts of a request come from: the repository, the document's own file, and the file of each excerpt by
    its text. `comment` starts a line comment in the document's language.
    """

    name: str = "project"
    path: str = UNNAMED
    comment: str = "#"
    files: Mapping[str, str] = field(default_factory=dict)


def find_origins(
    document: Document, comment: str, excerpts: Sequence[Excerpt], references: Sequence[Reference]
) -> Origins:
    """The names for a document and its excerpts. Without a repository, none of a folder is told: it may be a user's."""
    root = find_root(document.path) if document.path else None
    name = Origins.name
    if root is not None and (root / ".git").exists() and root.name and root.name.isprintable():
        name = root.name
    neutral = UNNAMED
    if document.syntax:
        neutral += document.syntax.extensions[0]
    own = _name(document.path, root) or neutral
    files: dict[str, str] = {}
    for excerpt in excerpts:
        files[excerpt.text] = own
        if excerpt.source < len(references):
            files[excerpt.text] = _name(references[excerpt.source].path, root) or neutral
    return Origins(name, own, comment, files)


def _name(path: Path | None, root: Path | None) -> str:
    """The path below `root`, elsewhere the file's name; empty for none, and for one that is no line of text."""
    if path is None:
        return ""
    name = path.name
    if root is not None and path.absolute().is_relative_to(root):
        name = path.absolute().relative_to(root).as_posix()
    return name if name.isprintable() else ""
