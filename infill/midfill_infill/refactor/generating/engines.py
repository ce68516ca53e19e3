"""Answers fill requests by workers: a local engine, or a cluster's actors. Knows no repository."""

import threading
from collections.abc import Callable, Generator
from typing import Protocol

from midfill_engine.wire import InfillRequest, InfillResponse, ModelInfo, StepEvent
from midfill_infill.engines.client import EngineClient
from midfill_infill.engines.endpoint import Endpoint
from midfill_infill.engines.offer import tell_where
from midfill_infill.engines.supervise import EngineSettings, ensure_engine


class Workers(Protocol):
    """Answers requests in parallel; every worker has the same model."""

    def models(self) -> tuple[ModelInfo, ...]: ...

    def infill(self, request: InfillRequest) -> InfillResponse:
        """Raises MidfillError as `EngineClient.infill` does."""
        ...

    def revive(self) -> None:
        """Restarts dead workers, if any."""
        ...

    def close(self) -> None: ...


class Engine(EngineClient):
    """Workers as a fill asks them; its opener closes it. Thread-safe."""

    def __init__(self, workers: Workers) -> None:
        self.endpoint = Endpoint(url="http://workers")
        self._workers, self._models = workers, workers.models()
        self._lock = threading.Lock()

    def models(self) -> tuple[ModelInfo, ...]:
        return self._models

    def infill(self, request: InfillRequest) -> Generator[StepEvent | InfillResponse, None, None]:
        yield self._workers.infill(request)

    def revive(self) -> None:
        with self._lock:
            self._workers.revive()

    def close(self) -> None:
        self._workers.close()


def ask(client: EngineClient, request: InfillRequest) -> InfillResponse:
    """The answer alone."""
    stream = client.infill(request)
    try:
        for message in stream:
            if isinstance(message, InfillResponse):
                return message
    finally:
        stream.close()
    raise AssertionError("the client ends a stream with an answer or an error")


class LocalEngine:
    """The user's own engine, found or started."""

    def __init__(self, settings: EngineSettings, note: Callable[[str], None] = lambda _: None) -> None:
        self._settings, self._note = settings, note
        endpoint = ensure_engine(settings, note)
        if (told := tell_where(endpoint.remote_host)) is not None:
            note(told)
        self._client = EngineClient(endpoint)

    def models(self) -> tuple[ModelInfo, ...]:
        return self._client.models()

    def infill(self, request: InfillRequest) -> InfillResponse:
        return ask(self._client, request)

    def revive(self) -> None:
        ensure_engine(self._settings, self._note)

    def close(self) -> None:
        self._client.close()
