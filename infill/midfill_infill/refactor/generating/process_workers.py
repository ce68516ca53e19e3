"""Several engines for one run on one machine. Knows their folders, no requests."""

import os
import queue
import shutil
import signal
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from midfill_engine.wire import InfillRequest, InfillResponse, ModelInfo
from midfill_infill.engines.client import EngineClient
from midfill_infill.engines.supervise import EngineSettings, ensure_engine, find_place
from midfill_infill.refactor.generating.engines import ask

# Engines of a killed command end after this time.
_IDLE_TIMEOUT_S: Final = 60.0
# An engine packs the steps of its open requests; one more waits in its queue.
_IN_HAND: Final = 2


class ProcessWorkers:
    """`count` engines, each with its own runtime folder. Raises MidfillError like `ensure_engine`."""

    def __init__(self, settings: EngineSettings, count: int) -> None:
        self._settings = replace(settings, idle_timeout_s=_IDLE_TIMEOUT_S)
        self._folder = Path(tempfile.mkdtemp(prefix="mf-"))
        self._clients: list[EngineClient] = []
        self._free: queue.Queue[EngineClient] = queue.Queue()
        try:
            for number in range(count):
                with _runtime_folder(self._folder / str(number)):
                    self._clients.append(EngineClient(ensure_engine(self._settings)))
        except BaseException:
            self.close()
            raise
        for client in self._clients * _IN_HAND:
            self._free.put(client)

    def models(self) -> tuple[ModelInfo, ...]:
        return self._clients[0].models()

    def infill(self, request: InfillRequest) -> InfillResponse:
        client = self._free.get()
        try:
            return ask(client, request)
        finally:
            self._free.put(client)

    def revive(self) -> None:
        for number in range(len(self._clients)):
            with _runtime_folder(self._folder / str(number)):
                ensure_engine(self._settings)

    def close(self) -> None:
        for number, client in enumerate(self._clients):
            client.close()
            with _runtime_folder(self._folder / str(number)):
                pid = find_place(self._settings).pid
            if pid is not None:
                _end(pid)
        shutil.rmtree(self._folder, ignore_errors=True)


def _end(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGTERM)
    except ProcessLookupError:
        return


@contextmanager
def _runtime_folder(folder: Path) -> Generator[None, None, None]:
    """Sets the environment variable by which engines are found; only the command's main thread may do so."""
    before = os.environ.get("MIDFILL_RUNTIME_DIR")
    os.environ["MIDFILL_RUNTIME_DIR"] = str(folder)
    try:
        yield
    finally:
        if before is None:
            del os.environ["MIDFILL_RUNTIME_DIR"]
        else:
            os.environ["MIDFILL_RUNTIME_DIR"] = before
