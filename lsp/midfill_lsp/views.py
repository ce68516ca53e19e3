"""A document as `infill` sees it: alone, or as a cell in its notebook. Finds holes in it."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from urllib.parse import unquote

from lsprotocol import types
from pygls.uris import to_fs_path

from midfill_infill.errors import MidfillError
from midfill_infill.filling.reroll import put_drafts
from midfill_infill.languages import REGISTRY
from midfill_infill.repository import exclusions
from midfill_infill.syntax import holes
from midfill_infill.syntax.outline import outline
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Hole
from midfill_lsp.messages import DraftParams, What
from midfill_lsp.text import Span, SyncedDocument, SyncedWorkspace, Text, code_points

# LSP language ids that differ from the registry's.
_LANGUAGE_IDS = {"javascriptreact": "javascript", "typescriptreact": "tsx", "c++": "cpp"}
_BETWEEN_CELLS = "\n\n"


@dataclass(frozen=True)
class DocumentView:
    """One version of a document. `before` and `after` are the other cells of its notebook, empty otherwise."""

    uri: str
    language_id: str | None
    text: Text
    before: str = ""
    after: str = ""

    @lru_cache(maxsize=8)  # noqa: B019 - a handful of views is all that it holds
    def read(self) -> Document:
        """Raises MidfillError for a document that is not source text or is too large."""
        language = _LANGUAGE_IDS.get(self.language_id or "", self.language_id)
        if language not in REGISTRY:
            language = None
        source = self.before + self.text.source + self.after
        return Document.from_text(source, language, find_path(self.uri))

    def byte(self, offset: int) -> int:
        return len(self.before.encode("utf-8", "surrogatepass")) + self.text.start_byte(offset)

    def span(self, hole: Hole) -> Span:
        """The span of a hole in the text. Raises MidfillError for a hole in another cell."""
        if not self.holds(hole):
            raise MidfillError("no_hole", "the function is in another cell")
        cell_start = self.byte(0)
        start = self.text.offset_of_byte(hole.start_byte - cell_start)
        return start, self.text.offset_of_byte(hole.end_byte - cell_start)

    def holds(self, hole: Hole) -> bool:
        return self.byte(0) <= hole.start_byte and hole.end_byte <= self.byte(len(self.text.source))


def take_view(workspace: SyncedWorkspace, synced: SyncedDocument) -> DocumentView:
    """The current document and the cells around it. Use it on the event loop only."""
    before, after = list[str](), list[str]()
    notebook = workspace.get_notebook_document(cell_uri=synced.uri)
    if notebook is None:
        return DocumentView(synced.uri, synced.language_id, synced.text)
    side = before
    for cell in notebook.cells:
        other = workspace.open_document(cell.document)
        if other is synced:
            side = after
        elif other and cell.kind == types.NotebookCellKind.Code and other.language_id == synced.language_id:
            side.append(other.source)
    text_before = _BETWEEN_CELLS.join([*before, ""])
    text_after = _BETWEEN_CELLS.join(["", *after])
    return DocumentView(synced.uri, synced.language_id, synced.text, text_before, text_after)


def read_ahead(view: DocumentView, exclude: Sequence[str]) -> None:
    """Precomputes the data for a fill, unless the document is excluded; the document keeps it. Reads the disk."""
    with suppress(MidfillError):
        if find_exclusion(view.uri, exclude):
            return
        document = view.read()
        view.text.position(0)
        view.text.offset_of_byte(0)
        outline(document)
        _ = document.indent_unit


@lru_cache(maxsize=256)
def find_path(uri: str) -> Path | None:
    """The file of a document, or of a cell's notebook."""
    scheme, _, rest = uri.partition(":")
    if scheme not in ("file", "vscode-notebook-cell"):
        return None
    place, _, _ = rest.partition("#")
    path = to_fs_path(f"file:{place}")
    if not path:
        return None
    return Path(path)


def find_exclusion(uri: str, listed: Sequence[str]) -> str | None:
    """Why a document is excluded; None if it is not. Reads the disk."""
    return find_exclusions({uri: tuple(listed)}).get(uri)


def find_exclusions(listed: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    """Those of some documents that are excluded, each with the reason; `listed` are the user's patterns for each. One
    that is no file, such as an unsaved or a remote one, has at least a name. Reads the disk.
    """
    found = dict[str, str]()
    stamps = exclusions.Stamps()
    for patterns in dict.fromkeys(listed.values()):
        paths = {uri: find_path(uri) for uri, own in listed.items() if own == patterns}
        files = [path for path in paths.values() if path is not None]
        excluded = exclusions.find_exclusions(files, patterns, stamps)
        for uri, path in paths.items():
            if path is None:
                reason = exclusions.find_named_exclusion(find_name(uri), patterns)
            else:
                reason = excluded.get(path)
            if reason is not None:
                found[uri] = reason
    return found


def find_name(uri: str) -> str:
    """The path in the URI of a document that is no file."""
    _, _, rest = uri.partition(":")
    return unquote(rest.partition("#")[0].partition("?")[0]).replace("\\", "/")


@lru_cache(maxsize=1024)
def find_place(uri: str) -> str:
    """The file's URI in canonical spelling, so that parents are prefixes; other URIs unchanged."""
    if path := find_path(uri):
        uri = path.absolute().as_uri()
    return uri.rstrip("/")


def find_innermost(folders: Iterable[str], uri: str) -> str:
    """The innermost of `folders` that contains a document, or the notebook of a cell; "" where none does."""
    place = find_place(uri)
    around = [folder for folder in folders if folder and place.startswith(find_place(folder) + "/")]
    return max(around, key=len, default="")


def find_holes(view: DocumentView, document: Document, what: What, ranges: Sequence[types.Range]) -> list[Hole]:
    """The holes, in the order of `ranges` or of the document. Raises MidfillError if there is nothing to fill."""
    if what is What.STUBS:
        stubs = [hole for hole in holes.find_stubs(document) if view.holds(hole)]
        if not stubs:
            raise MidfillError("no_stubs", "this file has no stubs", "put the cursor into a function")
        return stubs
    places = [tuple(view.byte(offset) for offset in view.text.span(range)) for range in ranges]
    if what is What.BODY:
        return [holes.body_at(document, places[0][0])]
    if what is What.HOLE:
        return [holes.hole_at_cursor(document, start) for start, _ in places]
    return [holes.hole_at_range(document, start, end) for start, end in places]


def find_around(view: DocumentView, range: types.Range) -> list[Span]:
    """Possible holes around a range, from the innermost statement outwards; empty for unreadable documents."""
    try:
        document = view.read()
        start, end = (view.byte(offset) for offset in view.text.span(range))
        found = [Hole(*span) for span in holes.list_holes(document, start, end)]
        return [view.span(hole) for hole in found if view.holds(hole)]
    except MidfillError:
        return []


def sort_with_drafts(
    view: DocumentView, document: Document, found: list[Hole], drafts: Sequence[DraftParams], kinds: Sequence[Hole] = ()
) -> tuple[list[Span], Document, tuple[Hole, ...]]:
    """The spans of the holes in document order, the document with the drafts in it, and its holes with anchors. `kinds`
    are the holes of an earlier fill; the new holes keep their kind and name. Raises MidfillError.
    """
    if kinds:
        found = [replace(hole, kind=old.kind, name=old.name) for hole, old in zip(found, kinds, strict=True)]
    ordered = holes.sort_holes(document, found)
    spans = [view.span(hole) for hole in ordered]
    if not drafts:
        return spans, document, ordered
    encoding = view.text.encoding
    by_place = {(hole.start_byte, hole.end_byte): draft for hole, draft in zip(found, drafts, strict=True)}
    wanted: list[tuple[str | None, list[Span]]] = []
    for hole, span in zip(ordered, spans, strict=True):
        draft = by_place[hole.start_byte, hole.end_byte]
        if draft.text is None:
            text = view.text.source[slice(*span)]
            wanted.append((None, code_points(text, draft.keep, encoding)))
        else:
            kept = code_points(draft.text, draft.keep, encoding)
            wanted.append(_join_line_ends(draft.text, kept))
    drafted, placed = put_drafts(document, ordered, wanted)
    return spans, drafted, placed


def _join_line_ends(text: str, spans: Sequence[Span]) -> tuple[str, list[Span]]:
    r"""The text with `\n` for `\r\n`, and its spans there."""

    def join(part: str) -> str:
        return part.replace("\r\n", "\n")

    joined = [(len(join(text[:start])), len(join(text[:end]))) for start, end in spans]
    return join(text), joined
