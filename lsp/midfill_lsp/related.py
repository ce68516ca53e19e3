"""What other open and recent files say of the names near a place; none that is left out now. Knows no fill."""

import threading
from collections.abc import Callable

from midfill_infill.context.exclusions import Stamps
from midfill_infill.context.related import Ring
from midfill_lsp.settings import Settings
from midfill_lsp.text import SyncedDocument, SyncedWorkspace
from midfill_lsp.views import find_exclusion

NEAR_CHARS = 2000
MAX_NAMES = 256


class RelatedText:
    """For the event loop only, but for what `near` returns."""

    def __init__(self, settings_of: Callable[[str], Settings]) -> None:
        self._settings_of = settings_of
        self._ring = Ring()
        self._names: dict[str, None] = {}
        self._lock = threading.Lock()

    def near(self, workspace: SyncedWorkspace, uri: str, line: int) -> Callable[[], tuple[str, ...]]:
        """Picks it when it is called, in a thread: every file that may be in the ring is asked for again.

        Nothing where the settings of `uri` want no repository context.
        """
        if not self._settings_of(uri).repository_context:
            return tuple
        others = {
            other.uri: (other.version, other.source)
            for other in workspace.text_documents.values()
            if other.uri != uri and isinstance(other, SyncedDocument)
        }
        self._remember(others)
        files = [(name, self._settings_of(name).exclude) for name in self._names]
        own = workspace.open_document(uri)
        starts = own.text.line_starts if own else [0]
        middle = starts[min(line, len(starts) - 1)]
        near = own.source[max(0, middle - NEAR_CHARS) : middle + NEAR_CHARS] if own else ""

        def pick() -> tuple[str, ...]:
            stamps = Stamps()
            with self._lock:
                for name, exclude in files:
                    if find_exclusion(name, exclude, stamps):
                        self._ring.drop(name)
                    elif name in others:
                        self._ring.put(name, *others[name])
                return self._ring.pick(uri, near)

        return pick

    def _remember(self, names: dict[str, tuple[int | None, str]]) -> None:
        self._names = {name: None for name in self._names if name not in names} | dict.fromkeys(names)
        for name in list(self._names)[:-MAX_NAMES]:
            del self._names[name]
            self._ring.drop(name)
