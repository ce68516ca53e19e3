"""Engines on a Ray cluster: one actor each, restarted when it dies. Only requests and answers go there, as JSON.

Ray is imported here and nowhere else. The journal stays with the driver, so an actor may be killed at any moment: its
requests are asked again, and an answer that comes twice is the same.
"""

import json
import os
import queue
import secrets
import tempfile
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from midfill_engine.wire import InfillRequest, InfillResponse, ModelInfo, ModelList
from midfill_infill.engines.supervise import EngineSettings
from midfill_infill.errors import TABLE, MidfillError
from midfill_infill.refactor.generating.engines import answer_json, open_client

_IN_HAND: Final = 2
_IDLE_TIMEOUT_S: Final = 60.0
# Ray's own 30 s are not enough on a busy machine.
_START_TIMEOUT_S: Final = "120"


def _prepare_environment() -> None:
    """A Ray of our own asks for a token, which is kept in no file. It is read when Ray is imported, not later."""
    os.environ["RAY_AUTH_MODE"] = "token"
    os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    os.environ.setdefault("RAY_gcs_server_port_wait_time_s", _START_TIMEOUT_S)


class FillActor:
    """One engine. It never sees a path of the repository. Its engine outlives it for a minute, and is found again."""

    def __init__(self, number: int, settings: dict[str, Any]) -> None:
        folder = Path(tempfile.gettempdir()) / f"mf-ray-{os.getuid()}-{os.environ.get('RAY_JOB_ID', '')}{number}"
        os.environ["MIDFILL_RUNTIME_DIR"] = str(folder)
        self._settings = settings
        self._client = open_client(settings)

    def models(self) -> str:
        return ModelList(data=list(self._client.models())).model_dump_json()

    def infill(self, request_json: str) -> str:
        """{"answer": ...} or {"error": [code, message]}, so that no exception of ours is pickled."""
        try:
            return json.dumps({"answer": answer_json(self._client, request_json)})
        except MidfillError as error:
            if error.code == "engine_died":
                self._client.close()
                self._client = open_client(self._settings)
            return json.dumps({"error": [error.code, error.message]})

    def pid(self) -> int:
        return os.getpid()


class RayWorkers:
    """`count` actors. Starts a Ray of its own on the loopback interface unless an address is given.

    Raises MidfillError `ray_missing`, and `engine_error` where the cluster fails.
    """

    def __init__(self, settings: EngineSettings, count: int, address: str | None = None) -> None:
        if address is None:
            _prepare_environment()
        try:
            self._ray: Any = import_module("ray")
        except ImportError:
            raise MidfillError("ray_missing", "Ray is not installed") from None
        self._owns = not self._ray.is_initialized()
        if self._owns:
            self._start(address, count)
        gpus = 1 if settings.device == "cuda" else 0
        options = {"num_cpus": 0 if gpus else 1, "num_gpus": gpus, "max_restarts": -1, "max_task_retries": -1}
        actor = self._ray.remote(**options)(FillActor)
        known = asdict(settings) | {"idle_timeout_s": _IDLE_TIMEOUT_S}
        self.actors = [actor.remote(number, known) for number in range(count)]
        self._free: queue.Queue[Any] = queue.Queue()
        for handle in self.actors * _IN_HAND:
            self._free.put(handle)

    def _start(self, address: str | None, count: int) -> None:
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}
        if address is None:
            options |= {"num_cpus": count, "include_dashboard": False, "_node_ip_address": "127.0.0.1"}
        try:
            self._ray.init(address=address, **options)
        except (RuntimeError, ConnectionError, OSError, ValueError) as error:
            said = (str(error).splitlines() or [type(error).__name__])[0]
            raise MidfillError("engine_error", f"Ray does not start ({said})", next_step="see /tmp/ray") from None

    def models(self) -> tuple[ModelInfo, ...]:
        return tuple(ModelList.model_validate_json(self._get(self.actors[0].models.remote())).data)

    def infill(self, request: InfillRequest) -> InfillResponse:
        handle = self._free.get()
        try:
            said = json.loads(self._get(handle.infill.remote(request.model_dump_json())))
        finally:
            self._free.put(handle)
        if "error" in said:
            code, message = said["error"]
            raise MidfillError(code if code in TABLE else "engine_error", message)
        return InfillResponse.model_validate_json(said["answer"])

    def _get(self, reference: Any) -> str:
        try:
            return str(self._ray.get(reference))
        except self._ray.exceptions.RayError as error:
            raise MidfillError("engine_error", f"Ray fails ({type(error).__name__})") from None

    def revive(self) -> None:
        return  # Ray restarts actors, and actors their engines

    def close(self) -> None:
        for handle in self.actors:
            self._ray.kill(handle)
        if self._owns:
            self._ray.shutdown()
