"""Shows a document to `infill`, alone or as a cell with the other cells of its notebook, and finds holes in it."""

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
    """One version of a document. `before` and `after` are the texts of other cells of its notebook, otherwise empty."""

    uri: str
    language_id: str | None
    text: Text
    before: str = ""
    after: str = ""

    @lru_cache(maxsize=8)  # noqa: B019 - the cache keeps at most eight views alive
    def read(self) -> Document:
        """The document with its other cells. Raises MidfillError if it is not source text or is too large."""
        language = _LANGUAGE_IDS.get(self.language_id or "", self.language_id)
        if language not in REGISTRY:
            language = None
        source = self.before + self.text.source + self.after
        return Document.from_text(source, language, find_path(self.uri))

    def byte(self, offset: int) -> int:
        """The offset in bytes of the document that `read` returns, for an offset of the text."""
        return len(self.before.encode("utf-8", "surrogatepass")) + self.text.start_byte(offset)

    def span(self, hole: Hole) -> Span:
        """The span of a hole in the text. Raises MidfillError for a hole in another cell."""
        if not self.holds(hole):
            raise MidfillError("no_hole", "the function is in another cell")
        cell_start = self.byte(0)
        start = self.text.offset_of_byte(hole.start_byte - cell_start)
        return start, self.text.offset_of_byte(hole.end_byte - cell_start)

    def holds(self, hole: Hole) -> bool:
        """False for a hole in another cell."""
        return self.byte(0) <= hole.start_byte and hole.end_byte <= self.byte(len(self.text.source))


def take_view(workspace: SyncedWorkspace, synced: SyncedDocument) -> DocumentView:
    """The current document and the code cells around it in its language. Use it on the event loop only."""
    before, after = ([cell.source for cell in cells] for cells in find_cells(workspace, synced))
    text_before = _BETWEEN_CELLS.join([*before, ""])
    text_after = _BETWEEN_CELLS.join(["", *after])
    return DocumentView(synced.uri, synced.language_id, synced.text, text_before, text_after)


def find_cells(workspace: SyncedWorkspace, synced: SyncedDocument) -> tuple[list[SyncedDocument], list[SyncedDocument]]:
    """The code cells before and after a cell that have its language; none for a document that is no cell."""
    before, after = list[SyncedDocument](), list[SyncedDocument]()
    notebook = workspace.get_notebook_document(cell_uri=synced.uri)
    side = before
    for cell in notebook.cells if notebook else ():
        other = workspace.open_document(cell.document)
        if other is synced:
            side = after
        elif other and cell.kind == types.NotebookCellKind.Code and other.language_id == synced.language_id:
            side.append(other)
    return before, after


def read_ahead(view: DocumentView, exclude: Sequence[str]) -> None:
    """Computes what a fill needs, and keeps it with the view, unless the document is excluded. Reads the disk."""
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
    """The file of a document, or of the notebook of a cell; None if it is stored nowhere or elsewhere."""
    scheme, _, after_scheme = uri.partition(":")
    if scheme not in ("file", "vscode-notebook-cell"):
        return None
    file_part, _, _ = after_scheme.partition("#")
    path = to_fs_path(f"file:{file_part}")
    return Path(path) if path else None


def find_exclusion(uri: str, patterns: Sequence[str]) -> str | None:
    """Why a document is excluded, by the user's `patterns` or in general; None if it is not. Reads the disk."""
    return find_exclusions({uri: tuple(patterns)}).get(uri)


def find_exclusions(patterns_of: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    """The reasons why documents are excluded, by URI. `patterns_of` has the user's patterns for each document. Of one
    that is no file, such as an unsaved or a remote one, only the name is compared. Reads the disk.
    """
    reasons = dict[str, str]()
    stamps = exclusions.Stamps()
    for patterns in dict.fromkeys(patterns_of.values()):
        paths = {uri: find_path(uri) for uri, own in patterns_of.items() if own == patterns}
        files = [path for path in paths.values() if path is not None]
        excluded = exclusions.find_exclusions(files, patterns, stamps)
        for uri, path in paths.items():
            reason = excluded.get(path) if path else exclusions.find_named_exclusion(find_name(uri), patterns)
            if reason is not None:
                reasons[uri] = reason
    return reasons


def find_name(uri: str) -> str:
    """The path in the URI of a document that is no file."""
    _, _, after_scheme = uri.partition(":")
    return unquote(after_scheme.partition("#")[0].partition("?")[0]).replace("\\", "/")


@lru_cache(maxsize=1024)
def canonical_uri(uri: str) -> str:
    """The URI of a file in one spelling, so that those of its folders are prefixes; other URIs unchanged."""
    path = find_path(uri)
    return (path.absolute().as_uri() if path else uri).rstrip("/")


def find_innermost(folders: Iterable[str], uri: str) -> str:
    """The innermost of `folders` that contains a document, or the notebook of a cell; "" if none does."""
    canonical = canonical_uri(uri)
    around = [folder for folder in folders if folder and canonical.startswith(canonical_uri(folder) + "/")]
    return max(around, key=lambda folder: len(canonical_uri(folder)), default="")


def find_holes(view: DocumentView, document: Document, what: What, ranges: Sequence[types.Range]) -> list[Hole]:
    """The holes, in the order of `ranges`, or stubs in that of the document. Raises MidfillError if there are none."""
    if what is What.STUBS:
        stubs = [hole for hole in holes.find_stubs(document) if view.holds(hole)]
        if not stubs:
            raise MidfillError("no_stubs", "this file has no stubs", "put the cursor into a function")
        return stubs
    byte_ranges = [tuple(view.byte(offset) for offset in view.text.span(range)) for range in ranges]
    if what is What.BODY:
        return [holes.body_at(document, byte_ranges[0][0])]
    if what is What.HOLE:
        return [holes.hole_at_cursor(document, start) for start, _ in byte_ranges]
    return [holes.hole_at_range(document, start, end) for start, end in byte_ranges]


def find_around(view: DocumentView, range: types.Range) -> list[Span]:
    """Possible holes around a range, from the innermost statement outwards; empty for unreadable documents."""
    try:
        document = view.read()
        start, end = (view.byte(offset) for offset in view.text.span(range))
        enclosing = [Hole(*span) for span in holes.list_holes(document, start, end)]
        return [view.span(hole) for hole in enclosing if view.holds(hole)]
    except MidfillError:
        return []


def sort_with_drafts(
    view: DocumentView, document: Document, target_holes: list[Hole], drafts: Sequence[DraftParams],
    selected: Sequence[Span] = (), olds: Sequence[Hole] = (),
) -> tuple[list[Span], Document, tuple[Hole, ...]]:  # fmt: skip
    """The spans of the holes in document order, the document with the drafts in it, and its holes with anchors. A draft
    without a text keeps parts of its selection, of which the hole leaves out white space at the ends. `olds` are the
    holes of a fill that is rerolled; the new holes get their kinds and names. Raises MidfillError.
    """
    if olds:
        target_holes = [
            replace(hole, kind=old.kind, name=old.name) for hole, old in zip(target_holes, olds, strict=True)
        ]
    ordered = holes.sort_holes(document, target_holes)
    spans = [view.span(hole) for hole in ordered]
    if not drafts:
        return spans, document, ordered
    encoding = view.text.encoding
    selections = selected or [view.span(hole) for hole in target_holes]
    draft_of = {
        (hole.start_byte, hole.end_byte): (draft, selection)
        for hole, draft, selection in zip(target_holes, drafts, selections, strict=True)
    }
    texts_with_anchors: list[tuple[str | None, list[Span]]] = []
    for hole, span in zip(ordered, spans, strict=True):
        draft, selection = draft_of[hole.start_byte, hole.end_byte]
        if draft.text is None:
            kept = code_points(view.text.source[slice(*selection)], draft.keep, encoding)
            texts_with_anchors.append((None, _cut(kept, selection[0] - span[0], span[1] - span[0])))
        else:
            kept = code_points(draft.text, draft.keep, encoding)
            texts_with_anchors.append(_join_line_ends(draft.text, kept))
    drafted, placed = put_drafts(document, ordered, texts_with_anchors)
    return spans, drafted, placed


def _cut(spans: Sequence[Span], shift: int, length: int) -> list[Span]:
    """The spans, moved by `shift`, as far as they are in a text of this length."""

    def move(offset: int) -> int:
        return min(max(offset + shift, 0), length)

    return [(move(start), move(end)) for start, end in spans]


def _join_line_ends(text: str, spans: Sequence[Span]) -> tuple[str, list[Span]]:
    r"""The text with `\n` for `\r\n`, and `spans` as they are in it."""

    def join(part: str) -> str:
        return part.replace("\r\n", "\n")

    joined = [(len(join(text[:start])), len(join(text[:end]))) for start, end in spans]
    return join(text), joined
