"""Collects the files that a fill may show its model: open, recent and related ones, none that is excluded. Knows no
fill.
"""

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from midfill_infill import config
from midfill_infill.context.excerpts import ShownExcerpts
from midfill_infill.context.references import Reference, find_references
from midfill_infill.errors import MidfillError
from midfill_infill.filling.fill import Options
from midfill_lsp.settings import Settings
from midfill_lsp.text import SyncedWorkspace
from midfill_lsp.views import find_cells, find_exclusions, find_innermost, find_path, take_view

MAX_RECENT = 32


class RelatedText:
    """Keeps the texts of the 32 files that were open last while a fill was made, and for 32 documents the excerpts that
    their last fills showed to the model. Use it on the event loop, except for what `near` returns.
    """

    def __init__(self, freeze_settings: Callable[[], Callable[[str], Settings]]) -> None:
        self._freeze_settings = freeze_settings
        self._recent: dict[str, str] = {}  # texts by URI, the newest last
        self._shown: dict[str, ShownExcerpts] = {}  # by the document's URI, the newest last
        self._lock = threading.Lock()  # of `_recent`

    def near(self, workspace: SyncedWorkspace, uri: str) -> Callable[[], Options]:
        """A function for a worker thread that returns options with the related files, if the settings allow them."""
        settings_of, own = self._freeze_settings(), workspace.open_document(uri)
        if own is None or not settings_of(uri).repository_context:
            return Options
        opened = {document.uri: document.source for document in workspace.text_documents.values()}
        folder = find_innermost(workspace.folders, uri)
        root = find_path(folder) if folder else None
        view = take_view(workspace, own)
        shown = self._shown_of(uri)
        in_view = {uri, *(cell.uri for cells in find_cells(workspace, own) for cell in cells)}

        def find() -> Options:
            with self._lock:
                texts = {key: text for key, text in self._recent.items() if key not in opened} | opened  # by URI
                excluded = find_exclusions({key: settings_of(key).exclude for key in texts})
                allowed = [key for key in texts if key not in excluded]
                self._recent = {key: texts[key] for key in allowed[-MAX_RECENT:]}
                newest_first = [(key, text) for key, text in reversed(self._recent.items()) if key not in in_view]
            held = [
                Reference("open" if key in opened else "recent", text.replace("\r\n", "\n"), find_path(key))
                for key, text in newest_first
            ]
            held.sort(key=lambda reference: reference.kind)  # stable sort: most recent first within a kind

            def leaves_out(paths: Sequence[Path]) -> set[Path]:
                path_of = {path.as_uri(): path for path in paths}
                excluded = find_exclusions({key: settings_of(key).exclude for key in path_of})
                return {path for key, path in path_of.items() if key in excluded}

            path = find_path(uri)
            try:
                if not config.shows_related(path.parent if path else root):
                    return Options(shown=shown)
                references = find_references(view.read(), path, held, root=root, leaves_out=leaves_out)
            except MidfillError:  # unreadable file or settings: the fill itself reports the file
                references = ()
            return Options(references=references, shown=shown)

        return find

    def _shown_of(self, uri: str) -> ShownExcerpts:
        """The excerpts of a document's last fill; the next fill changes the object."""
        shown = self._shown.pop(uri, None) or ShownExcerpts()
        self._shown[uri] = shown
        if len(self._shown) > MAX_RECENT:
            del self._shown[next(iter(self._shown))]
        return shown
