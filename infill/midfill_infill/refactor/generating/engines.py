"""Engines that answer many requests in parallel: the user's own, or actors of a cluster. Knows no repository."""

import threading
from collections.abc import Callable

from midfill_infill.engines.client import EngineClient
from midfill_infill.engines.offer import tell_where
from midfill_infill.engines.supervise import EngineSettings, ensure_engine


class Engine(EngineClient):
    """An engine for a whole run. Thread-safe. The code that opens it closes it."""

    def revive(self) -> None:
        """Restarts the engine if it died."""


class LocalEngine(Engine):
    """The user's own engine, found or started."""

    def __init__(self, settings: EngineSettings, note: Callable[[str], None] = lambda _: None) -> None:
        self._settings, self._note = settings, note
        self._restarting = threading.Lock()
        super().__init__(ensure_engine(settings, note))
        remark = tell_where(self.endpoint.remote_host)
        if remark is not None:
            note(remark)

    def revive(self) -> None:
        with self._restarting:
            ensure_engine(self._settings, self._note)
