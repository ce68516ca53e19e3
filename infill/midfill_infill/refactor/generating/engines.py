"""Answers fill requests: a local engine, several, or a cluster's actors, behind one cache. Knows no repository.

A fill asks through a `CachedClient`; workers receive wire requests and return answers as JSON.
"""

import hashlib
import sqlite3
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from midfill_engine.wire import InfillRequest, InfillResponse, ModelInfo, StepEvent
from midfill_infill.engines.client import EngineClient
from midfill_infill.engines.endpoint import Endpoint
from midfill_infill.engines.installed import distribution_version
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


class AnswerCache:
    """Answers by request and engine, in one SQLite file of the user. Thread-safe.

    Raises OSError or sqlite3.Error for an unusable file.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._db = sqlite3.connect(path, isolation_level=None, timeout=10.0, check_same_thread=False)
        try:
            self._db.execute("PRAGMA synchronous = OFF")
            self._db.execute("CREATE TABLE IF NOT EXISTS answers (key BLOB PRIMARY KEY, answer TEXT) WITHOUT ROWID")
            path.chmod(0o600)
        except (OSError, sqlite3.Error):
            self._db.close()
            raise

    def find(self, key: bytes) -> InfillResponse | None:
        with self._lock:
            try:
                row = self._db.execute("SELECT answer FROM answers WHERE key = ?", (key,)).fetchone()
                return None if row is None else InfillResponse.model_validate_json(row[0])
            except (sqlite3.Error, ValueError):
                return None

    def keep(self, key: bytes, answer: InfillResponse) -> None:
        with self._lock:
            try:
                values = (key, answer.model_dump_json())
                self._db.execute("INSERT OR REPLACE INTO answers VALUES (?, ?)", values)
            except sqlite3.Error:
                return

    def close(self) -> None:
        self._db.close()


class CachedClient(EngineClient):
    """A fill's access to the workers. `num_asked` counts requests that the cache did not answer."""

    def __init__(self, workers: Workers, models: tuple[ModelInfo, ...], cache: AnswerCache | None) -> None:
        self.endpoint = Endpoint(url="http://workers")
        self._workers, self._models, self._cache = workers, models, cache
        self.num_asked = 0

    def close(self) -> None:
        return

    def models(self) -> tuple[ModelInfo, ...]:
        return self._models

    def infill(self, request: InfillRequest) -> Generator[StepEvent | InfillResponse, None, None]:
        key = self._key(request)
        answer = self._cache.find(key) if self._cache else None
        if answer is None:
            self.num_asked += 1
            answer = self._workers.infill(request)
            if self._cache:
                self._cache.keep(key, answer)
        yield answer

    def _key(self, request: InfillRequest) -> bytes:
        chosen = next((info for info in self._models if info.id == request.model), self._models[0])
        return hashlib.sha256(f"{fingerprint(chosen)}\n{request.model_dump_json()}".encode()).digest()


def fingerprint(info: ModelInfo) -> str:
    """Identifies engines that answer the same request differently, as far as an engine reports it."""
    facts = info.model_dump(exclude={"description", "object", "owned_by"})
    return f"{distribution_version()} {sorted(facts.items())}"


class Engine:
    """Workers and a cache for `generate`; its opener closes it. Thread-safe."""

    def __init__(self, workers: Workers, cache: AnswerCache | None = None) -> None:
        self._workers, self._cache = workers, cache
        self._models = workers.models()
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        return fingerprint(self._models[0])

    @contextmanager
    def client(self) -> Generator[CachedClient, None, None]:
        yield CachedClient(self._workers, self._models, self._cache)

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


def answer_json(client: EngineClient, request_json: str) -> str:
    """Runs in a worker process: a JSON request to a JSON answer."""
    return ask(client, InfillRequest.model_validate_json(request_json)).model_dump_json()


def open_client(settings: dict[str, Any]) -> EngineClient:
    """A worker's own engine. Its runtime folder is in its environment."""
    return EngineClient(ensure_engine(EngineSettings(**settings)))
